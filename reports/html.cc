#include "reports/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "reports/html_parts.h"
#include "reports/text.h"

namespace assay::reports {
namespace {

constexpr size_t kFindingsUnfolded = 3;

// Twelve digits tell one revision from another; the title has them all.
std::string RevisionHtml(const std::string& value) {
  constexpr size_t kShown = 12;
  const auto end = std::find_if_not(value.begin(), value.end(),
                                    [](unsigned char c) { return std::isxdigit(c) != 0; });
  const auto digits = static_cast<size_t>(end - value.begin());
  if (digits <= kShown) return fmt::format("<b>{}</b>", Escaped(value));
  return fmt::format("<b title=\"{}\">{}</b>", Escaped(value),
                     Escaped(value.substr(0, kShown) + value.substr(digits)));
}

std::string Facts(const RunRecord& record) {
  std::string out = "<p class=\"facts\">";
  for (const auto& [name, value] : RunFacts(record)) {
    out += fmt::format(
        "<span>{} {}</span>\n", Escaped(name),
        name.ends_with("revision") ? RevisionHtml(value) : "<b>" + Escaped(value) + "</b>");
  }
  return out + "</p>\n";
}

std::string TotalsHtml(const Totals& totals) {
  std::string bar, counts, sums;
  for (const Verdict verdict : WorstFirst()) {
    const int64_t count = CountOf(totals, verdict);
    if (count > 0) {
      bar += fmt::format("<i class=\"{}\" style=\"flex:{}\"></i>", CssClass(verdict), count);
    }
    counts += fmt::format("<span{}><span class=\"n\">{}</span>{}</span>\n",
                          count == 0 ? " class=\"zero\"" : "", count, VerdictChip(verdict));
  }
  for (const std::vector<std::string>& words : TotalsWords(totals)) {
    std::vector<std::string> kept;  // a number stays with its name
    for (const std::string& word : words) kept.push_back("<span>" + Escaped(word) + "</span>");
    sums += fmt::format("<p class=\"sums\">{}</p>\n", Joined(kept, " "));
  }
  return fmt::format(
      "<section class=\"totals\" aria-label=\"totals\"><div class=\"bar\" "
      "aria-hidden=\"true\">{}</div><div class=\"counts\">{}</div>\n{}</section>\n",
      bar, counts, sums);
}

// What makes the run red beside its cells.
std::string Complaints(const RunRecord& record) {
  if (record.complaints.empty()) return "";
  std::string items;
  for (const std::string& line : record.complaints) items += "<li>" + Escaped(line) + "</li>\n";
  return "<section class=\"finding\" aria-label=\"demands\"><h3>Demands that were not "
         "met</h3>\n<ul>" +
         items + "</ul></section>\n";
}

std::string Findings(const std::vector<Group>& groups) {
  if (groups.empty()) return "";
  std::string out = "<section aria-label=\"findings\">\n";
  for (size_t i = 0; i < groups.size(); ++i) {
    out += FindingArticle(groups[i], i, i < kFindingsUnfolded);
  }
  return out + "</section>\n";
}

// Cells that did not compute anything, by reason.
std::string Reasons(const RunRecord& record, Verdict verdict, std::string_view title) {
  const std::vector<Reason> reasons = GroupByReason(record, verdict);
  if (reasons.empty()) return "";
  std::string out =
      fmt::format("<h2>{}</h2>\n<p class=\"soft\">{} {}</p>\n<ul class=\"reasons\">\n", title,
                  VerdictChip(verdict), Escaped(Meaning(verdict)));
  for (const Reason& reason : reasons) {
    const Keys varying = VaryingKeys(reason.cells);
    std::string cells;
    for (const CellResult* cell : reason.cells) {
      cells += "<li>" + ShortHtml(*cell, varying) + "</li>\n";
    }
    out += fmt::format("<li>{}<details><summary>{}</summary><ul>{}</ul></details></li>\n",
                       Escaped(reason.text), Counted(reason.cells.size(), "cell"), cells);
  }
  return out + "</ul>\n";
}

}  // namespace

std::string RenderHtml(const RunRecord& record) {
  const std::vector<Group> findings = GroupFindings(record);
  const std::string headline = Escaped(Headline(record));
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{} – Assay</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n"
      "<header><div class=\"brand\">Assay</div>\n<h1>{}</h1>\n",
      headline, kStyle, headline);
  out += Facts(record) + "</header>\n";
  out += TotalsHtml(record.Count());
  out += Complaints(record);
  out += Findings(findings);
  out += HeatSection(record, findings);
  out += Reasons(record, Verdict::kNotExecuted, "Not executed");
  out += Reasons(record, Verdict::kSkipped, "Skipped");
  out += Reasons(record, Verdict::kRefused, "Refused, as expected");
  return out + "</main>\n</body>\n</html>\n";
}

}  // namespace assay::reports
