#include "reports/terminal_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/text.h"
#include "reports/view.h"

namespace assay::reports {
namespace {

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

}  // namespace

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

std::string BriefLine(const CellResult& cell, const Style& style) {
  const std::string time = cell.executed ? fmt::format("  {:.1f} ms", cell.ms) : "";
  const std::string line = fmt::format("{} {}", NameOf(cell.verdict), Shown(CellText(cell), style));
  const std::string_view ellipsis = style.utf8 ? "…" : "...";
  return Painted(Shortened(line, style.columns - Width(time), ellipsis), cell.verdict, style) +
         time + "\n";
}

}  // namespace assay::reports
