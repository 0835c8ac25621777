#include "reports/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "reports/text.h"
#include "reports/view.h"

namespace assay::reports {
namespace {

constexpr int kNarrowest = 40;  // narrower terminals wrap by themselves
constexpr int kNameColumn = 14;
constexpr size_t kPropagatedShown = 8;
constexpr size_t kFindingsShown = 6;
constexpr double kBetweenLines = 10;      // seconds, in a log
constexpr double kBetweenUpdates = 0.05;  // seconds, on a terminal

std::string_view ColourOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "\x1b[32m";
    case Verdict::kFail:
      return "\x1b[1;31m";
    case Verdict::kMistrusted:
      return "\x1b[33m";
    case Verdict::kInfra:
      return "\x1b[35m";
    case Verdict::kRefused:
      return "\x1b[36m";
    case Verdict::kSkipped:
    case Verdict::kNotExecuted:
      return "\x1b[2m";
  }
  return "";
}

// Visible text in the characters that the terminal has.
std::string Shown(std::string_view text, const Style& style) {
  const std::string visible = Visible(text);
  if (style.utf8) return visible;
  static constexpr std::pair<std::string_view, std::string_view> kPlain[] = {
      {"→", "->"}, {"·", "*"}, {"–", "-"}, {"…", "..."}, {"Σ", "sum"}, {"−", "-"}, {"×", "x"}};
  std::string out;
  for (size_t i = 0; i < visible.size();) {
    const auto known = std::find_if(std::begin(kPlain), std::end(kPlain), [&](const auto& entry) {
      return visible.compare(i, entry.first.size(), entry.first) == 0;
    });
    if (known != std::end(kPlain)) {
      out += known->second;
      i += known->first.size();
    } else if (static_cast<unsigned char>(visible[i]) < 0x80) {
      out += visible[i++];
    } else {
      out += '?';
      while (++i < visible.size() && (static_cast<unsigned char>(visible[i]) & 0xC0) == 0x80) {
      }
    }
  }
  return out;
}

// Colours the verdict's word, which the text begins with.
std::string Painted(std::string text, Verdict verdict, const Style& style) {
  const std::string_view word = NameOf(verdict);
  if (!style.colour || text.rfind(word, 0) != 0) return text;
  return fmt::format("{}{}\x1b[0m{}", ColourOf(verdict), word, text.substr(word.size()));
}

std::string Lines(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

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
  const std::string word(NameOf(cell.verdict));
  const std::string time = cell.executed ? fmt::format("  {:.1f} ms", cell.ms) : "";
  std::string text = Label(cell);
  if (IsRed(cell.verdict) || !cell.executed) text += ": " + Finding(cell);
  const std::string_view ellipsis = style.utf8 ? "…" : "...";
  const std::string line = word + " " + Shown(text, style);
  return Painted(Shortened(line, style.columns - Width(time), ellipsis), cell.verdict, style) +
         time + "\n";
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
  if (!cell.divergences.empty() && !cell.reason.empty()) out += Field("reason", cell.reason, style);
  std::vector<std::string> metrics;
  for (const auto& [name, value] : MetricTexts(cell.metrics)) metrics.push_back(name + " " + value);
  if (!metrics.empty()) out += Field("metrics", Joined(metrics, ", "), style);
  if (cell.metrics.tolerance) {
    out += Field("tolerance", ToleranceText(*cell.metrics.tolerance), style);
  }
  if (!cell.repro.empty()) {
    const std::string command = Visible(cell.repro);
    const bool fits = Width(command) <= style.columns - kNameColumn;
    out += fits ? Field("repro", command, {false, false, true, style.columns})
                : "  repro\n" + CommandLines(command, style.columns);
  }
  return out;
}

std::string TotalsBlock(const Totals& totals, double seconds, const Style& style) {
  std::string out;
  for (const std::string& line : TotalsLines(totals)) {
    out += Lines(Wrapped(Shown(line, style), style.columns, 4));
  }
  return out + DurationText(seconds) + "\n";
}

std::string ProgressLine(const Totals& so_far, double seconds, const Style& style) {
  std::string out = fmt::format("{}/{} cells", so_far.collected, so_far.registered);
  for (const Verdict verdict : WorstFirst()) {
    const int64_t count = CountOf(so_far, verdict);
    if (IsRed(verdict) && count > 0) out += fmt::format("  {} {}", count, NameOf(verdict));
  }
  out += "  " + DurationText(seconds);
  const int64_t left = so_far.registered - so_far.collected;
  if (left > 0 && so_far.collected > 0) {
    const double each = seconds / static_cast<double>(so_far.collected);
    out += "  about " + DurationText(each * static_cast<double>(left)) + " left";
  }
  return Shortened(out, style.columns, style.utf8 ? "…" : "...");
}

Progress::Progress(std::FILE* stream, const Style& style, int64_t registered)
    : stream_(stream), style_(style) {
  totals_.registered = registered;
}

void Progress::Cell(const CellResult& cell, double seconds) {
  totals_.Add(cell.verdict);
  const bool red = IsRed(cell.verdict);
  if (red) Print(CellLine(cell, style_));
  const bool last = totals_.collected == totals_.registered;
  if (style_.live) {
    if (!red && !last && line_shown_ && seconds - last_print_ < kBetweenUpdates) return;
    // One column stays free: a full line would make some terminals scroll.
    Style narrower = style_;
    --narrower.columns;
    std::fprintf(stream_, "\r\x1b[K%s", ProgressLine(totals_, seconds, narrower).c_str());
    std::fflush(stream_);
    line_shown_ = true;
  } else {
    const int64_t tenth =
        totals_.registered > 0 ? totals_.collected * 10 / totals_.registered : totals_.collected;
    if (tenth == last_tenth_ && seconds - last_print_ < kBetweenLines) return;
    last_tenth_ = tenth;
    Print(ProgressLine(totals_, seconds, style_) + "\n");
  }
  last_print_ = seconds;
}

void Progress::End() { Print(""); }

void Progress::Print(const std::string& text) {
  if (line_shown_) std::fputs("\r\x1b[K", stream_);
  line_shown_ = false;
  std::fputs(text.c_str(), stream_);
  std::fflush(stream_);
}

}  // namespace assay::reports
