#include "reports/markdown.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/heat.h"
#include "reports/short_form.h"
#include "reports/text.h"
#include "reports/view.h"

namespace assay::reports {
namespace {

constexpr size_t kFindingsShown = 50;
constexpr size_t kOthersListed = 5;  // of a finding, cells that show it too

// Plain text in which nothing means anything to Markdown, on one line.
std::string Plain(std::string_view text) {
  std::string out;
  for (const char c : Visible(text)) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      if (std::string_view("\\`*_[]|~#>!@").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

// The longest run of backticks decides how many fence it in.
size_t Backticks(std::string_view text) {
  size_t longest = 0, run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest;
}

std::string Code(std::string_view text) {
  const std::string visible = Visible(text);
  const std::string fence(Backticks(visible) + 1, '`');
  const bool edge = visible.empty() || visible.front() == '`' || visible.back() == '`';
  const std::string pad = edge ? " " : "";
  return fence + pad + visible + pad + fence;
}

std::string Block(std::string_view text) {
  const std::string visible = Visible(text, /*lines=*/true);
  const std::string fence(std::max<size_t>(3, Backticks(visible) + 1), '`');
  return fmt::format("{}\n{}\n{}\n", fence, visible, fence);
}

std::string OtherCells(const Group& group) {
  if (group.cells.size() < 2) return "";
  const size_t others = group.cells.size() - 1, listed = std::min(others, kOthersListed);
  std::vector<std::string> items;
  for (size_t i = 1; i <= listed; ++i) {
    items.push_back(Code(Difference(*group.cells[i], *group.cells[0])));
  }
  if (others > listed) items.push_back(fmt::format("… and {} more", others - listed));
  return fmt::format("- the same in {}: {}\n", Counted(static_cast<int64_t>(others), "more cell"),
                     Joined(items, ", "));
}

std::string FindingText(const Group& group) {
  const CellResult& cell = *group.cells.front();
  std::string out = fmt::format("### {} {}: {}\n\n", NameOf(cell.verdict), Plain(Label(cell)),
                                Plain(Finding(cell)));
  if (!cell.divergences.empty()) {
    const Divergence& first = cell.divergences.front();
    std::vector<std::string> steps;
    for (const auto& [name, value] : Path(first)) steps.push_back(name + " " + Code(value));
    if (!steps.empty()) out += "- path: " + Joined(steps, " → ") + "\n";
    if (!first.tensor.empty()) out += "- tensor: " + Code(first.tensor) + "\n";
    const auto [expected, got] = ValueTexts(first.expected, first.got);
    if (first.expected || first.got) {
      const bool bits = first.bits.size() == 2;
      out += fmt::format("- expected {}{}, got {}{}\n", expected,
                         bits ? " (" + Code(first.bits[0]) + ")" : "", got,
                         bits ? " (" + Code(first.bits[1]) + ")" : "");
    }
    if (!first.signature.id.empty()) {
      out += fmt::format("- signature {}: {}\n", Code(first.signature.id),
                         Plain(first.signature.evidence));
    }
    if (!first.cleared.empty()) out += "- cleared: " + Plain(Joined(first.cleared, ", ")) + "\n";
    if (!first.propagated.empty()) {
      out += fmt::format("- propagated to {}\n", Plain(Joined(first.propagated, ", ")));
    }
    if (cell.divergences.size() > 1) {
      out += fmt::format("- {}\n", Counted(cell.divergences.size() - 1, "more finding"));
    }
  }
  if (const std::string reason = FurtherReason(cell); !reason.empty()) {
    out += "- reason: " + Plain(reason) + "\n";
  }
  for (const std::string& line : MetricLines(cell)) out += "- " + Plain(line) + "\n";
  if (const std::string line = ToleranceLine(cell); !line.empty()) {
    out += "- tolerance " + Plain(line) + "\n";
  }
  return out + OtherCells(group) + "\n" + (cell.repro.empty() ? "" : Block(cell.repro) + "\n");
}

std::string MapText(const HeatMap& map) {
  std::string out = fmt::format("### {}\n\n| kind | method | tier |", Plain(map.model));
  std::string rule = "|---|---|---|";
  for (const Degree& degree : map.degrees) {
    out += fmt::format(" {} |", degree.Text());
    rule += "---|";
  }
  out += "\n" + rule + "\n";
  for (const HeatRow& row : map.rows) {
    out += fmt::format("| {} | {} | {} |", Plain(row.kind), Plain(row.method), Plain(row.tier));
    for (const Degree& degree : map.degrees) {
      const auto at = row.squares.find(degree);
      if (at == row.squares.end()) {
        out += " – |";
        continue;
      }
      const Verdict worst = at->second.worst->verdict;
      const std::string word = Plain(NameOf(worst));
      out += fmt::format(" {}{} |", IsRed(worst) ? "**" + word + "**" : word,
                         at->second.total > 1 ? " (" + Plain(at->second.CountsText()) + ")" : "");
    }
    out += "\n";
  }
  return out + "\n";
}

std::string ReasonsText(const RunRecord& record, Verdict verdict, std::string_view title) {
  const std::vector<Reason> reasons = GroupByReason(record, verdict);
  if (reasons.empty()) return "";
  std::string out = fmt::format("## {}\n\n", title);
  for (const Reason& reason : reasons) {
    out += fmt::format("- {}: {}\n", Counted(reason.cells.size(), "cell"), Plain(reason.text));
  }
  return out + "\n";
}

}  // namespace

std::string RenderMarkdown(const RunRecord& record) {
  std::string out = fmt::format("# {}\n\n", Plain(Headline(record)));
  for (const auto& [name, value] : RunFacts(record)) {
    out += fmt::format("- {}: {}\n", Plain(name), Plain(value));
  }
  out += "\n";
  for (const std::string& line : TotalsLines(record.Count())) {
    out += fmt::format("- {}\n", Plain(line));
  }
  out += "\n";
  if (!record.complaints.empty()) out += "## Demands that were not met\n\n";
  for (const std::string& line : record.complaints) out += fmt::format("- {}\n", Plain(line));
  if (!record.complaints.empty()) out += "\n";
  const std::vector<Group> findings = GroupFindings(record);
  if (!findings.empty()) out += "## Findings\n\n";
  for (size_t i = 0; i < std::min(findings.size(), kFindingsShown); ++i) {
    out += FindingText(findings[i]);
  }
  if (findings.size() > kFindingsShown) {
    const size_t more = findings.size() - kFindingsShown;
    out += fmt::format("{} {} in report.html.\n\n", Counted(more, "more finding"),
                       more == 1 ? "is" : "are");
  }
  out += "## Every cell\n\nA square shows the worst verdict of its cells.\n\n";
  for (const HeatMap& map : HeatMaps(record.cells)) out += MapText(map);
  out += ReasonsText(record, Verdict::kNotExecuted, "Not executed");
  out += ReasonsText(record, Verdict::kSkipped, "Skipped");
  out += ReasonsText(record, Verdict::kRefused, "Refused, as expected");
  return out;
}

}  // namespace assay::reports
