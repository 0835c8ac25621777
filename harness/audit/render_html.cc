#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/audit/render.h"
#include "harness/audit/text.h"
#include "reports/html_parts.h"
#include "reports/text.h"

namespace assay::audit {
namespace {

using reports::Escaped;

constexpr size_t kMostForms = 2000;  // rows of the table of tensors

std::string Facts(const Report& report) {
  const double rate = GigabytesPerSecond(report.speed.bytes, report.speed.seconds);
  std::string out = "<p class=\"facts\">";
  const auto add = [&](std::string_view name, const std::string& value) {
    out += fmt::format("<span>{} <b>{}</b></span>\n", name, Escaped(value));
  };
  add("checkpoint", report.path);
  add("model", report.model);
  add("files", std::to_string(report.files));
  add("tensors", std::to_string(report.tensors.size()));
  add("bytes", SizeText(report.bytes));
  add("read in", fmt::format("{}, {:.1f} GB/s", reports::DurationText(report.speed.seconds), rate));
  return out + "</p>\n";
}

std::string FindingItems(const std::vector<Finding>& findings, const char* chip) {
  std::string out = "<ul class=\"reasons\">\n";
  for (const Finding& f : findings) {
    out += fmt::format("<li><span class=\"v {}\">{}</span> ", chip, Escaped(f.kind));
    if (!f.tensor.empty()) out += fmt::format("<code>{}</code> ", Escaped(f.tensor));
    if (!f.file.empty()) {
      const size_t slash = f.file.rfind('/');
      out += fmt::format("<span class=\"soft\">{}</span> ",
                         Escaped(slash == f.file.npos ? f.file : f.file.substr(slash + 1)));
    }
    out += fmt::format("<p>{}</p></li>\n", Escaped(f.detail));
  }
  return out + "</ul>\n";
}

std::string LegalChip(const std::optional<bool>& legal) {
  if (!legal) return "<span class=\"v not-executed\">unknown</span>";
  return *legal ? "<span class=\"v pass\">legal</span>"
                : "<span class=\"v refused\">refused</span>";
}

std::string BytesOfRanks(const DegreeRow& row) {
  if (row.bytes.empty()) return "&ndash;";
  const auto [least, largest] = std::minmax_element(row.bytes.begin(), row.bytes.end());
  return *least == *largest ? SizeText(*least) : SizeText(*least) + " to " + SizeText(*largest);
}

std::string Degrees(const Report& report) {
  std::string out =
      "<h2>Tensor-parallel degrees</h2>\n<div class=\"scroll\"><table>\n<tr><th "
      "class=\"num\">TP</th>"
      "<th></th><th class=\"num\">cut</th><th class=\"num\">whole</th><th "
      "class=\"num\">replicas</th>"
      "<th class=\"num\">padded</th><th class=\"num\">refused</th><th>bytes a rank</th></tr>\n";
  for (const DegreeRow& row : report.tps) {
    out += fmt::format(
        "<tr><td class=\"num\">{}</td><td>{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td>"
        "<td class=\"num\">{}</td><td class=\"num\">{}</td><td "
        "class=\"num\">{}</td><td>{}</td></tr>\n",
        row.tp, LegalChip(row.legal), row.cut, row.whole, row.replicated, row.padded, row.refused,
        BytesOfRanks(row));
  }
  out += "</table></div>\n";
  std::string before;
  for (const DegreeRow& row : report.tps) {
    if (row.why.empty() || row.why == before) continue;
    before = row.why;
    out += row.legal ? fmt::format("<p>TP {}: <code>{}</code></p>\n", row.tp, Escaped(row.why))
                     : fmt::format("<p>{}</p>\n", Escaped(row.why));
  }
  if (!report.largest_legal_tp) return out;
  return out + (report.legal_degrees.empty()
                    ? "<p>No TP from 1 to 64 is legal.</p>\n"
                    : fmt::format("<p>Largest legal TP <b>{}</b> of {} (1 to 64 tried, split even, "
                                  "attn_tp = tp; {} not planned).</p>\n",
                                  *report.largest_legal_tp, fmt::join(report.legal_degrees, ", "),
                                  reports::Counted(report.tps.empty() ? 0 : report.tps[0].unplanned,
                                                   "tensor")));
}

std::string Methods(const Report& report) {
  std::string out =
      "<h2>Storage methods</h2>\n<div class=\"scroll\"><table>\n<tr><th>method</th>"
      "<th class=\"num\">tensors</th><th class=\"num\">bytes</th></tr>\n";
  for (const MethodRow& row : report.methods) {
    if (row.tensors == 0) continue;
    out += fmt::format(
        "<tr><td><code>{}</code></td><td class=\"num\">{}</td><td class=\"num\">{}</td></tr>\n",
        Escaped(row.id), row.tensors, SizeText(row.bytes));
  }
  return out + "</table></div>\n";
}

std::string HiddenRows(const Report& report) {
  if (report.hidden.empty()) return "";
  std::string out =
      "<h2>Faults that this geometry hides</h2>\n<div class=\"scroll\"><table>\n<tr><th>kind</th>"
      "<th>TP</th><th>why</th><th class=\"num\">tensors</th></tr>\n";
  for (const HiddenRow& row : HiddenRowsOf(report)) {
    const Hidden& hidden = *row.first;
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"num\" title=\"{}\">{}</td></tr>\n",
        Escaped(hidden.kind),
        row.degrees.empty() ? std::string("any") : fmt::format("{}", fmt::join(row.degrees, ", ")),
        Escaped(hidden.text), Escaped(hidden.first),
        hidden.tensors == 0 ? "" : std::to_string(hidden.tensors));
  }
  return out + "</table></div>\n";
}

std::string Tensors(const Report& report) {
  const std::vector<Form> forms = FormsOf(report);
  std::string out =
      "<h2>Tensors</h2>\n<details><summary>" +
      reports::Counted(static_cast<int64_t>(forms.size()), "form") +
      " of names that differ only in numbers</summary>\n<div class=\"scroll\"><table>\n"
      "<tr><th>first of its form</th><th class=\"num\">tensors</th><th>method</th>"
      "<th>shape</th>";
  for (const int tp : report.degrees) out += fmt::format("<th>TP {}</th>", tp);
  out += "</tr>\n";
  for (size_t i = 0; i < std::min(forms.size(), kMostForms); ++i) {
    const TensorRow& row = *forms[i].first;
    out +=
        fmt::format("<tr><td><code>{}</code></td><td class=\"num\">{}</td><td>{}</td><td>[{}]</td>",
                    Escaped(row.name), forms[i].tensors, Escaped(report.methods[row.method].id),
                    fmt::join(row.shape, ", "));
    for (size_t d = 0; d < report.degrees.size(); ++d) {
      if (report.placements.empty()) break;
      const Placement& p = report.placements[row.placement][d];
      out += fmt::format("<td title=\"{}\">{}</td>", Escaped(p.why),
                         !p.legal   ? "not planned"
                         : *p.legal ? Escaped(p.plan)
                                    : "<span class=\"v refused\">refused</span>");
    }
    out += "</tr>\n";
  }
  out += "</table></div>\n";
  if (forms.size() > kMostForms) {
    out += fmt::format("<p class=\"soft\">{} more forms; all tensors are in audit.json.</p>\n",
                       forms.size() - kMostForms);
  }
  return out + "</details>\n";
}

}  // namespace

std::string RenderHtml(const Report& report) {
  const std::string headline =
      report.findings.empty()
          ? "No findings"
          : reports::Counted(static_cast<int64_t>(report.findings.size()), "finding");
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{} – Assay audit</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n"
      "<header><div class=\"brand\">Assay audit</div>\n<h1>{}</h1>\n",
      headline, reports::kStyle, headline);
  out += Facts(report) + "</header>\n";
  if (!report.findings.empty())
    out += "<h2>Findings</h2>\n" + FindingItems(report.findings, "fail");
  out += Degrees(report) + Methods(report) + HiddenRows(report);
  if (!report.notes.empty()) {
    out += "<h2>Notes</h2>\n" + FindingItems(report.notes, "not-executed");
  }
  return out + Tensors(report) + "</main>\n</body>\n</html>\n";
}

}  // namespace assay::audit
