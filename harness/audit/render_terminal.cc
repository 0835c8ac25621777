#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "harness/audit/pattern.h"
#include "harness/audit/render.h"
#include "harness/audit/text.h"
#include "reports/text.h"

namespace assay::audit {
namespace {

using reports::Visible;
constexpr int kColumns = 80;

std::string Paint(std::string_view text, const char* code, bool colour) {
  return colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

// Lines of at most 80 columns, the second and later ones below the text.
std::string Hanging(const std::string& head, const std::string& text) {
  const auto indent = static_cast<int>(head.size());
  std::string out;
  for (const std::string& line : reports::Wrapped(head + Visible(text), kColumns, indent)) {
    out += line + "\n";
  }
  return out;
}

std::string Head(const Report& report) {
  const double rate = GigabytesPerSecond(report.speed.bytes, report.speed.seconds);
  std::string out = "audit " + Visible(report.path) + "\n";
  out += Hanging(
      "", fmt::format("{}; {}, {}, {}; read in {}, {:.1f} GB/s, {}", report.model,
                      reports::Counted(report.files, "file"),
                      reports::Counted(static_cast<int64_t>(report.tensors.size()), "tensor"),
                      SizeText(report.bytes), reports::DurationText(report.speed.seconds), rate,
                      reports::Counted(report.speed.threads, "thread")));
  return out;
}

std::string Methods(const Report& report) {
  std::string out = fmt::format("\n{:<34}{:>10}{:>14}\n", "method", "tensors", "bytes");
  for (const MethodRow& row : report.methods) {
    if (row.tensors == 0) continue;
    out += fmt::format("{:<34}{:>10}{:>14}\n", Visible(row.id), row.tensors, SizeText(row.bytes));
  }
  return out;
}

// "4.7 GiB", or "4.7 to 5.1 GiB" where ranks differ.
std::string BytesOfRanks(const DegreeRow& row) {
  if (row.bytes.empty()) return "-";
  const auto [least, largest] = std::minmax_element(row.bytes.begin(), row.bytes.end());
  if (*least == *largest) return SizeText(*least);
  return SizeText(*least) + " to " + SizeText(*largest);
}

std::string Degrees(const Report& report) {
  std::string out = fmt::format("\n{:>4} {:<8}{:>8}{:>8}{:>9}{:>8}{:>9}  {}\n", "TP", "", "cut",
                                "whole", "replicas", "padded", "refused", "bytes a rank");
  for (const DegreeRow& row : report.tps) {
    const char* word = !row.legal ? "unknown" : *row.legal ? "legal" : "REFUSED";
    out += fmt::format("{:>4} {:<8}{:>8}{:>8}{:>9}{:>8}{:>9}  {}\n", row.tp, word, row.cut,
                       row.whole, row.replicated, row.padded, row.refused, BytesOfRanks(row));
  }
  std::string before;
  for (const DegreeRow& row : report.tps) {
    if (row.why.empty() || row.why == before) continue;
    before = row.why;
    out +=
        row.legal ? fmt::format("TP {}: {}\n", row.tp, Visible(row.why)) : Visible(row.why) + "\n";
  }
  if (!report.largest_legal_tp) return out;
  const std::string legal = report.legal_degrees.empty()
                                ? "no TP from 1 to 64 is legal"
                                : fmt::format("largest legal TP {} ({})", *report.largest_legal_tp,
                                              fmt::join(report.legal_degrees, ", "));
  const int64_t unplanned = report.tps.empty() ? 0 : report.tps[0].unplanned;
  const std::string but = unplanned == 0 ? ""
                                         : fmt::format("; {} not planned, see the notes",
                                                       reports::Counted(unplanned, "tensor"));
  return out + Hanging("", legal + "; split even, attn_tp = tp, 1 to 64 tried" + but);
}

std::string HiddenRows(const Report& report) {
  if (report.hidden.empty()) return "";
  std::string out = "\nfaults that this geometry hides\n";
  for (const HiddenRow& row : HiddenRowsOf(report)) {
    const std::string tp =
        row.degrees.empty() ? "any TP" : fmt::format("TP {}", fmt::join(row.degrees, ","));
    const std::string tensors =
        row.first->tensors == 0
            ? ""
            : fmt::format(" ({})", reports::Counted(row.first->tensors, "tensor"));
    out += Hanging(fmt::format("{:<5}{:<12} ", row.first->kind, tp), row.first->text + tensors);
  }
  return out;
}

std::string Lines(std::string_view title, const std::vector<Finding>& findings, bool colour,
                  const char* code) {
  if (findings.empty()) return "";
  std::string out = fmt::format("\n{}\n", title);
  for (const Finding& finding : findings) {
    const std::string line = FindingLine(finding);
    const size_t kind = finding.kind.size();
    out += Paint(line.substr(0, kind), code, colour) + line.substr(kind) + "\n";
  }
  return out;
}

}  // namespace

std::string FindingLine(const Finding& f) {
  std::string line = f.kind;
  if (!f.tensor.empty()) line += " " + f.tensor;
  const std::string file =
      f.file.substr(f.file.rfind('/') == f.file.npos ? 0 : f.file.rfind('/') + 1);
  if (!file.empty()) line += f.tensor.empty() ? " " + file : " (" + file + ")";
  return Visible(line + ": " + f.detail);
}

std::vector<HiddenRow> HiddenRowsOf(const Report& report) {
  std::map<std::pair<std::string, std::string>, HiddenRow> rows;
  for (const Hidden& hidden : report.hidden) {
    HiddenRow& row = rows[{hidden.kind, hidden.text}];
    if (row.first == nullptr) row.first = &hidden;
    if (hidden.tp > 0) row.degrees.push_back(hidden.tp);
  }
  std::vector<HiddenRow> list;
  for (auto& [key, row] : rows) list.push_back(std::move(row));
  return list;
}

std::vector<Form> FormsOf(const Report& report) {
  std::map<std::tuple<std::string, uint32_t, uint32_t, std::vector<int64_t>>, Form> forms;
  for (const TensorRow& row : report.tensors) {
    std::string pattern = PatternOf(row.name);
    Form& form = forms[{pattern, row.method, row.placement, row.shape}];
    if (form.first == nullptr) form = {&row, pattern, 0, 0};
    ++form.tensors;
    form.bytes += row.bytes;
  }
  std::vector<Form> list;
  for (auto& [key, form] : forms) list.push_back(std::move(form));
  return list;
}

std::string RenderTerminal(const Report& report, bool colour) {
  std::string out = Head(report) + Methods(report) + Degrees(report) + HiddenRows(report);
  out += Lines("notes", report.notes, colour, "1");
  out += Lines("findings", report.findings, colour, "1;31");
  out += report.findings.empty()
             ? "\nno findings\n"
             : fmt::format("\n{}\n", reports::Counted(static_cast<int64_t>(report.findings.size()),
                                                      "finding"));
  return out;
}

}  // namespace assay::audit
