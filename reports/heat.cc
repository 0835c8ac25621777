#include "reports/heat.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <compare>
#include <set>
#include <tuple>

#include "reports/text.h"
#include "reports/view.h"

namespace assay::reports {
namespace {

int64_t NumberOr(const std::string& text, int64_t fallback) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : fallback;
}

void Put(const CellResult& cell, Square* square) {
  ++square->counts[static_cast<size_t>(cell.verdict)];
  ++square->total;
  if (square->worst == nullptr || Severity(cell.verdict) > Severity(square->worst->verdict)) {
    square->worst = &cell;
  }
}

// Rows of a kind together, within it those of a method, in the order of their first cells: a run
// goes from the lower tier to the higher one.
void GroupRows(std::vector<HeatRow>* rows) {
  std::map<std::string, size_t> kinds, methods, tiers;
  for (const HeatRow& row : *rows) {
    kinds.emplace(row.kind, kinds.size());
    methods.emplace(row.method, methods.size());
    tiers.emplace(row.tier, tiers.size());
  }
  std::stable_sort(rows->begin(), rows->end(), [&](const HeatRow& a, const HeatRow& b) {
    return std::tuple(kinds[a.kind], methods[a.method], tiers[a.tier]) <
           std::tuple(kinds[b.kind], methods[b.method], tiers[b.tier]);
  });
}

}  // namespace

std::string Square::CountsText() const {
  std::vector<std::string> parts;
  for (const Verdict verdict : WorstFirst()) {
    const int64_t count = counts[static_cast<size_t>(verdict)];
    if (count > 0) parts.push_back(fmt::format("{} {}", count, NameOf(verdict)));
  }
  return Joined(parts, ", ");
}

std::string Degree::Text() const {
  return tp == attn_tp ? fmt::format("TP {}", tp) : fmt::format("TP {}, attn {}", tp, attn_tp);
}

std::vector<HeatMap> HeatMaps(const std::vector<CellResult>& cells) {
  std::vector<HeatMap> maps;
  std::map<std::string, size_t> models;
  std::map<std::tuple<size_t, std::string, std::string, std::string>, size_t> rows;
  std::vector<std::set<Degree>> degrees;
  for (const CellResult& cell : cells) {
    const ProblemView view = View(cell.problem);
    const std::string model = view.Get("model", "no model");
    const auto [map_at, new_map] = models.emplace(model, maps.size());
    if (new_map) {
      maps.push_back({model, {}, {}});
      degrees.emplace_back();
    }
    const size_t index = map_at->second;
    const std::string method = view.Get("method", "–"), tier = view.Get("tier", "–");
    const auto [row_at, new_row] =
        rows.emplace(std::tuple(index, view.kind, method, tier), maps[index].rows.size());
    if (new_row) maps[index].rows.push_back({view.kind, method, tier, {}});
    Degree degree;
    degree.tp = NumberOr(view.Get("tp"), 1);
    degree.attn_tp = NumberOr(view.Get("attn_tp"), degree.tp);
    degrees[index].insert(degree);
    Put(cell, &maps[index].rows[row_at->second].squares[degree]);
  }
  for (size_t i = 0; i < maps.size(); ++i) {
    maps[i].degrees.assign(degrees[i].begin(), degrees[i].end());
    GroupRows(&maps[i].rows);
  }
  return maps;
}

}  // namespace assay::reports
