#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "harness/audit/render.h"
#include "harness/audit/text.h"

namespace assay::audit {
namespace {

// A JSON string. Bytes that are no UTF-8 become U+FFFD.
std::string Text(std::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string Truth(const std::optional<bool>& value) {
  return !value ? "null" : *value ? "true" : "false";
}

std::string FindingJson(const Finding& f) {
  return fmt::format(R"({{"kind":{},"tensor":{},"file":{},"detail":{}}})", Text(f.kind),
                     Text(f.tensor), Text(f.file), Text(f.detail));
}

std::string PlacementsJson(const Report& report, const std::vector<Placement>& placements) {
  std::string text = "{";
  for (size_t d = 0; d < placements.size(); ++d) {
    const Placement& p = placements[d];
    text += fmt::format(R"({}"{}":{{"plan":{},"legal":{},"why":{}}})", d == 0 ? "" : ",",
                        report.degrees[d], Text(p.plan), Truth(p.legal), Text(p.why));
  }
  return text + "}";
}

template <class Items, class Print>
void List(std::string_view key, const Items& items,
          const std::function<void(std::string_view)>& out, Print print) {
  out(fmt::format(",\n\"{}\":[", key));
  bool first = true;
  for (const auto& item : items) {
    out(first ? "\n" : ",\n");
    first = false;
    out(print(item));
  }
  out("]");
}

std::string DegreeJson(const DegreeRow& row) {
  return fmt::format(
      R"({{"tp":{},"legal":{},"cut":{},"whole":{},"replicated":{},"padded":{},"refused":{},)"
      R"("unplanned":{},"why":{}}})",
      row.tp, Truth(row.legal), row.cut, row.whole, row.replicated, row.padded, row.refused,
      row.unplanned, Text(row.why));
}

std::string BytesPerRank(const Report& report) {
  std::string text = "{";
  for (const DegreeRow& row : report.tps) {
    text += fmt::format(R"({}"{}":)", text.size() == 1 ? "" : ",", row.tp);
    text += row.bytes.empty() ? "null" : fmt::format("[{}]", fmt::join(row.bytes, ","));
  }
  return text + "}";
}

}  // namespace

void WriteJson(const Report& report, const std::function<void(std::string_view)>& out) {
  out(fmt::format("{{\"checkpoint\":{},\"model\":{},\"files\":{},\"bytes\":{}", Text(report.path),
                  Text(report.model), report.files, report.bytes));
  // A set of placements is said of many tensors: its text is made once.
  std::vector<std::string> placements;
  for (const auto& each : report.placements) placements.push_back(PlacementsJson(report, each));
  List("tensors", report.tensors, out, [&](const TensorRow& row) {
    return fmt::format(R"({{"name":{},"method":{},"dtype":"{}","shape":[{}],"tp":{}}})",
                       Text(row.name), Text(report.methods[row.method].id), NameOf(row.dtype),
                       fmt::join(row.shape, ","),
                       placements.empty() ? "{}" : placements[row.placement]);
  });
  List("findings", report.findings, out, FindingJson);
  List("notes", report.notes, out, FindingJson);
  const std::string largest =
      report.largest_legal_tp ? std::to_string(*report.largest_legal_tp) : "null";
  out(fmt::format(",\n\"largest_legal_tp\":{},\"legal_degrees\":[{}],\"bytes_per_rank\":{}",
                  largest, fmt::join(report.legal_degrees, ","), BytesPerRank(report)));
  List("degrees", report.tps, out, DegreeJson);
  List("methods", report.methods, out, [](const MethodRow& row) {
    return fmt::format(R"({{"method":{},"tensors":{},"bytes":{}}})", Text(row.id), row.tensors,
                       row.bytes);
  });
  List("hidden", report.hidden, out, [](const Hidden& row) {
    return fmt::format(R"({{"kind":"{}","tp":{},"text":{},"tensors":{},"first":{}}})", row.kind,
                       row.tp == 0 ? std::string("null") : std::to_string(row.tp), Text(row.text),
                       row.tensors, Text(row.first));
  });
  const double rate = GigabytesPerSecond(report.speed.bytes, report.speed.seconds);
  out(fmt::format(
      ",\n\"read\":{{\"bytes\":{},\"seconds\":{:.6g},\"gb_s\":{:.6g},\"threads\":{}}}}}\n",
      report.speed.bytes, report.speed.seconds, rate, report.speed.threads));
}

}  // namespace assay::audit
