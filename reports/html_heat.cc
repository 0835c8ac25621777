#include <fmt/format.h>

#include <map>

#include "reports/heat.h"
#include "reports/html_parts.h"
#include "reports/text.h"

namespace assay::reports {
namespace {

// In pixels. The longest verdict fits into a square; a map of more degrees than the page has room
// for is scrolled.
constexpr size_t kNameWidth = 200, kSquareWidth = 98;
constexpr size_t kWideNameWidth = 270, kFewDegrees = 6;  // then there is room for a name on a line

using Links = std::map<const CellResult*, std::string>;  // a red cell's article

// A counted verdict is spelt out only where the square holds more than one.
std::string SquareHtml(const Square& square, const Links& links) {
  const Verdict worst = square.worst->verdict;
  std::string text(NameOf(worst));
  if (square.total > 1) {
    const int64_t same = square.counts[static_cast<size_t>(worst)];
    text += same == square.total ? fmt::format("<small>{} cells</small>", square.total)
                                 : fmt::format("<small>{}</small>", square.CountsText());
  }
  const std::string title =
      Escaped(square.total == 1 ? fmt::format("{} {}", NameOf(worst), CellText(*square.worst))
                                : square.CountsText());
  const auto link = links.find(square.worst);
  if (link != links.end()) {
    return fmt::format("<a class=\"v {}\" href=\"#{}\" title=\"{}\">{}</a>", CssClass(worst),
                       link->second, title, text);
  }
  return fmt::format("<span class=\"v {}\" title=\"{}\">{}</span>", CssClass(worst), title, text);
}

std::string MapHtml(const HeatMap& map, const Links& links) {
  const size_t name_width = map.degrees.size() <= kFewDegrees ? kWideNameWidth : kNameWidth;
  std::string head =
      fmt::format("<th scope=\"col\" style=\"width:{}px\">kind, method, tier</th>", name_width);
  for (const Degree& degree : map.degrees) {
    head += fmt::format("<th scope=\"col\">{}</th>", degree.Text());
  }
  std::string rows;
  for (const HeatRow& row : map.rows) {
    rows += fmt::format("<tr><th scope=\"row\"><b>{}</b> · {} · {}</th>", Escaped(row.kind),
                        Escaped(row.method), Escaped(row.tier));
    for (const Degree& degree : map.degrees) {
      const auto at = row.squares.find(degree);
      rows += at == row.squares.end()
                  ? "<td class=\"none\" title=\"no such cell in this run\">–</td>"
                  : fmt::format("<td><span class=\"tp\">{}</span>{}</td>", degree.Text(),
                                SquareHtml(at->second, links));
    }
    rows += "</tr>\n";
  }
  return fmt::format(
      "<div class=\"heat\"><h3>{}</h3><table "
      "style=\"min-width:{}px\"><thead><tr>{}</tr></thead>\n<tbody>\n{}"
      "</tbody></table></div>\n",
      Escaped(map.model), name_width + kSquareWidth * map.degrees.size(), head, rows);
}

}  // namespace

std::string HeatSection(const RunRecord& record, const std::vector<Group>& findings) {
  Links links;
  for (size_t i = 0; i < findings.size(); ++i) {
    for (const CellResult* cell : findings[i].cells) links.emplace(cell, FindingId(i));
  }
  std::string out =
      "<h2 id=\"map\">Every cell</h2>\n<p class=\"legend\">TP × method × tier for each model. A "
      "square that stands for several cells shows the worst verdict and the counts.</p>\n";
  const Totals totals = record.Count();
  out += "<ul class=\"legend\">";
  for (const Verdict verdict : WorstFirst()) {
    if (CountOf(totals, verdict) == 0) continue;
    out += fmt::format("<li>{} {}</li>\n", VerdictChip(verdict), Meaning(verdict));
  }
  out += "</ul>\n";
  for (const HeatMap& map : HeatMaps(record.cells)) out += MapHtml(map, links);
  return out;
}

}  // namespace assay::reports
