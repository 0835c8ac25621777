// Which figure is of what.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "reports/text.h"
#include "reports/view.h"

namespace assay::reports {
namespace {

std::string TermText(const std::string& term) {
  static const std::map<std::string, std::string, std::less<>> kWords = {
      {"acc", "rounding of the sum, c·u·Σ|terms|"},
      {"out", "rounding of the output's type"},
      {"exp", "the exponential's own error"},
      {"function", "the function's own error"},
      {"wire", "rounding on the way between ranks"},
      {"propagated", "what the inputs' errors may become"},
      {"subnormal", "half the smallest subnormal"},
  };
  const auto word = kWords.find(term);
  return word == kWords.end() ? term : term + " (" + word->second + ")";
}

// Whose error over tolerance the cell's largest is. That is the first wrong op unless a later one
// is further beyond its bound.
std::string OfWhichOp(const CellResult& cell) {
  const bool located = !cell.divergences.empty() && !cell.divergences.front().tap.empty();
  if (!located) return "of the op with the largest error";
  const std::string& first = cell.divergences.front().tap;
  const std::string on_rank = first + "@r";
  const OpRow* largest = nullptr;
  for (const OpRow& row : cell.ops) {
    if (row.local != cell.metrics.max_ratio) continue;
    if (row.tap == first || row.tap.rfind(on_rank, 0) == 0) return "of the first wrong op";
    if (largest == nullptr) largest = &row;
  }
  return largest == nullptr ? "of the first wrong op"
                            : "of " + largest->tap + ", the furthest beyond its bound";
}

// How many runs the noise floor is of, and whether they are enough for it to decide: a pass of a
// chain says less where they are not.
void AddFloorRuns(int64_t runs, MetricSet* whole) {
  constexpr int64_t kDeciding = 59;  // numerics.md §1.4
  const bool known = !whole->values.empty();
  if (runs <= 0 || !known) {
    if (runs <= 0 && !known) {
      whole->values.emplace_back(
          "noise floor",
          fmt::format("none (its runs would take more than is allowed; {} would decide)",
                      kDeciding));
    }
    return;
  }
  whole->values.back().second +=
      fmt::format(" (largest of {}{})", Counted(runs, "run"),
                  runs < kDeciding ? fmt::format("; {} would decide", kDeciding) : "");
}

}  // namespace

std::vector<MetricSet> MetricSets(const CellResult& cell) {
  const Metrics& metrics = cell.metrics;
  MetricSet op{OfWhichOp(cell), {}}, end{"of the end result", {}}, whole{"of the whole cell", {}};
  const auto add = [](MetricSet* set, const char* name, const std::optional<double>& value) {
    if (value) set->values.emplace_back(name, NumberText(value));
  };
  add(&op, "error / tolerance", metrics.max_ratio);
  if (metrics.max_ratio && std::isinf(*metrics.max_ratio)) {
    op.values.back().second += " (bits differ where they must be equal, or a value is not finite)";
  }
  add(&op, "three-way ratio", metrics.three_way);
  add(&op, "condition of the worst element", metrics.condition);
  // Where the end result could not be compared as a whole, these are the op's too: then nothing of
  // what other harnesses gate on was computed.
  MetricSet* result = metrics.allclose_excess ? &end : &op;
  add(result, "cosine", metrics.cosine);
  add(result, "rel L2", metrics.rel_l2);
  add(result, "max abs error", metrics.max_abs);
  add(&end, "KL divergence", metrics.kld);
  add(&end, "its standard error", metrics.kld_stderr);
  add(&end, "top-1 agreement", metrics.top1);
  add(&whole, "noise floor", metrics.noise_floor);
  if (metrics.floor_runs) AddFloorRuns(*metrics.floor_runs, &whole);
  if (metrics.ambiguous.value_or(0) != 0) {
    whole.values.emplace_back("ambiguous decisions", std::to_string(*metrics.ambiguous));
  }
  std::vector<MetricSet> out;
  for (MetricSet* set : {&op, &end, &whole}) {
    if (!set->values.empty()) out.push_back(std::move(*set));
  }
  return out;
}

std::vector<std::string> MetricLines(const CellResult& cell) {
  std::vector<std::string> out;
  for (const MetricSet& set : MetricSets(cell)) {
    std::vector<std::string> parts;
    for (const auto& [name, value] : set.values) parts.push_back(name + " " + value);
    out.push_back(set.of + ": " + Joined(parts, ", "));
  }
  return out;
}

std::string ToleranceLine(const CellResult& cell) {
  if (!cell.metrics.tolerance) return "";
  const ToleranceFacts& facts = *cell.metrics.tolerance;
  std::vector<std::string> terms;
  for (const std::string& term : facts.terms) terms.push_back(TermText(term));
  return fmt::format("{}: c = {}, depth d = {}, u = {}; tolerance = {}", OfWhichOp(cell),
                     NumberText(facts.c), NumberText(facts.depth), facts.u_acc,
                     terms.empty() ? "0" : Joined(terms, " + "));
}

}  // namespace assay::reports
