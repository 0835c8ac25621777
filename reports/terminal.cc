#include "reports/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>

#include "reports/terminal_parts.h"
#include "reports/text.h"
#include "reports/view.h"

namespace assay::reports {
namespace {

constexpr int kNarrowest = 40;  // narrower terminals wrap by themselves
constexpr int kNameColumn = 14;
constexpr size_t kPropagatedShown = 8;
constexpr size_t kFindingsShown = 6;

// "  path          layer 1 → …", continued under the value.
std::string Field(std::string_view name, std::string_view value, const Style& style) {
  const std::string text = fmt::format("  {:<{}}", name, kNameColumn - 2);
  std::string out;
  for (std::string& line :
       Wrapped(Shown(value, style), std::max(8, style.columns - kNameColumn), 0)) {
    out += (out.empty() ? text : std::string(kNameColumn, ' ')) + line + "\n";
  }
  return out;
}

std::string DivergenceFields(const Divergence& divergence, const Style& style) {
  std::string out;
  std::vector<std::string> steps;
  for (const auto& [name, value] : Path(divergence)) steps.push_back(name + " " + value);
  if (!divergence.local_index.empty() && !steps.empty()) {
    steps.back() += " (in the shard " + IndexText(divergence.local_index) + ")";
  }
  if (!steps.empty()) out += Field("path", Joined(steps, " → "), style);
  if (!divergence.tensor.empty()) out += Field("tensor", divergence.tensor, style);
  const auto [expected, got] = ValueTexts(divergence.expected, divergence.got);
  if (divergence.expected || divergence.got) {
    const auto bits = [&](size_t i) {
      return divergence.bits.size() == 2 ? fmt::format("  (bits {})", divergence.bits[i]) : "";
    };
    out += Field("expected", expected + bits(0), style);
    out += Field("got", got + bits(1), style);
  }
  const Signature& signature = divergence.signature;
  if (!signature.id.empty()) {
    out +=
        Field("signature",
              signature.evidence.empty() ? signature.id : signature.id + ": " + signature.evidence,
              style);
  }
  if (!divergence.cleared.empty()) out += Field("cleared", Joined(divergence.cleared, ", "), style);
  if (!divergence.propagated.empty()) {
    std::vector<std::string> taps = divergence.propagated;
    const size_t more = taps.size() > kPropagatedShown ? taps.size() - kPropagatedShown : 0;
    taps.resize(taps.size() - more);
    out += Field("propagated",
                 Joined(taps, ", ") + (more > 0 ? fmt::format(" and {} more", more) : ""), style);
  }
  return out;
}

}  // namespace

Style StyleFrom(bool is_terminal, int columns, const Environment& environment) {
  const auto get = [&](const char* name) {
    const char* value = environment(name);
    return std::string(value == nullptr ? "" : value);
  };
  Style style;
  const bool dumb = get("TERM") == "dumb";
  style.live = is_terminal && !dumb;
  style.colour = style.live && get("NO_COLOR").empty();
  if (is_terminal && columns > 0) style.columns = std::max(columns, kNarrowest);
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value = get(name);
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    style.utf8 =
        value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
    break;
  }
  return style;
}

Style StyleOf(std::FILE* stream) {
  const int fd = fileno(stream);
  const bool is_terminal = isatty(fd) == 1;
  winsize size = {};
  const int columns = is_terminal && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
  return StyleFrom(is_terminal, columns, [](const char* name) { return std::getenv(name); });
}

std::string CellLine(const CellResult& cell, const Style& style) {
  const auto indent = static_cast<int>(NameOf(cell.verdict).size()) + 1;
  const std::string text = fmt::format("{} {}", NameOf(cell.verdict), CellText(cell));
  std::vector<std::string> lines = Wrapped(Shown(text, style), style.columns, indent);
  if (cell.executed) {
    const std::string time = fmt::format("{:.1f} ms", cell.ms);
    if (Width(lines.back()) + 2 + Width(time) <= style.columns) {
      lines.back() += "  " + time;
    } else {
      lines.push_back(std::string(static_cast<size_t>(indent), ' ') + time);
    }
  }
  return Painted(Lines(lines), cell.verdict, style);
}

std::string CommandLines(const std::string& command, int columns) {
  std::string out, line;
  bool quoted = false;
  for (size_t i = 0; i < command.size();) {
    // A whole character, and in quotes a whole word if it fits on a line.
    size_t end = i + 1;
    while (end < command.size() && (static_cast<unsigned char>(command[end]) & 0xC0) == 0x80) ++end;
    size_t word = end;
    while (word < command.size() && command[word] != ' ' && command[word] != '\'') ++word;
    if (Width(line) + Width(std::string_view(command).substr(i)) <= columns) {
      line += command.substr(i);
      break;
    }
    const bool at_word = i > 0 && command[i - 1] == ' ';
    // Behind the piece must fit the closing quote and the backslash.
    const int room = columns - 2 - Width(line);
    const int needed = at_word ? Width(command.substr(i, word - i)) : 1;
    const bool must_break = Width(command.substr(i, end - i)) > room ||
                            (at_word && needed > room && needed <= columns - 3);
    if (must_break && !line.empty() && line != "'") {
      out += line + (quoted ? "'\\" : "\\") + "\n";
      line = quoted ? "'" : "";
    }
    if (command[i] == '\'') quoted = !quoted;
    line += command.substr(i, end - i);
    i = end;
  }
  return out + line + "\n";
}

std::string FailureBlock(const CellResult& cell, const Style& style) {
  const auto indent = static_cast<int>(NameOf(cell.verdict).size()) + 1;
  std::string out = Painted(Lines(Wrapped(Shown(Sentence(cell), style), style.columns, indent)),
                            cell.verdict, style);
  const size_t findings = cell.divergences.size();
  if (findings > 0) out += DivergenceFields(cell.divergences.front(), style);
  for (size_t i = 1; i < std::min(findings, kFindingsShown); ++i) {
    out += Field("also", Culprit(cell.divergences[i]), style);
  }
  if (findings > kFindingsShown) {
    out += Field("also", Counted(findings - kFindingsShown, "further finding"), style);
  }
  if (const std::string reason = FurtherReason(cell); !reason.empty()) {
    out += Field("reason", reason, style);
  }
  const char* name = "metrics";
  for (const std::string& line : MetricLines(cell)) {
    out += Field(std::exchange(name, ""), line, style);
  }
  if (const std::string tolerance = ToleranceLine(cell); !tolerance.empty()) {
    out += Field("tolerance", tolerance, style);
  }
  if (!cell.repro.empty()) {
    const std::string command = Visible(cell.repro);
    const bool fits = Width(command) <= style.columns - kNameColumn;
    out += fits ? Field("repro", command, {false, false, true, style.columns})
                : "  repro\n" + CommandLines(command, style.columns);
  }
  return out;
}

}  // namespace assay::reports
