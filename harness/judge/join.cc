// Ranks' taps to whole tensors.
#include <fmt/format.h>

#include "harness/judge/judge.h"

namespace assay::judge {
namespace {

using reference::Domain;
using reference::Node;
using reference::Spread;
using reference::Tensor;

const TapValue* Find(const EngineTrace& trace, const std::string& tap, int rank, int step) {
  const auto found = trace.taps.find({step, tap, rank});
  return found == trace.taps.end() ? nullptr : &found->second;
}

Result<Tensor> SumPartials(const Node& node, const EngineTrace& trace,
                           const reference::Parallel& degrees, int step) {
  const int degree = node.domain == Domain::kAttention ? degrees.attn_tp : degrees.tp;
  Tensor whole;
  for (int r = 0; r < degree; ++r) {
    const TapValue* tap = Find(trace, node.tap, r, step);
    if (tap == nullptr) return Error{fmt::format("{}@r{} is not shown", node.tap, r)};
    Tensor part = ToTensor(*tap);
    if (r == 0) {
      whole = std::move(part);
      continue;
    }
    if (part.shape != whole.shape) {
      return Error{fmt::format("{}@r{} has another shape than rank 0's", node.tap, r)};
    }
    for (size_t i = 0; i < part.data.size(); ++i) whole.data[i] += part.data[i];
  }
  return whole;
}

// Places a rank's columns; a column of the plan may be a block (a head's keys).
Status Place(const Tensor& part, const std::vector<int64_t>& columns, int64_t whole_columns,
             Tensor* whole, const std::string& what) {
  const int64_t n = static_cast<int64_t>(columns.size());
  if (n == 0) return Ok();
  if (part.columns() % n != 0 ||
      part.rows() * part.columns() != static_cast<int64_t>(part.data.size())) {
    return Error{fmt::format("{} has {} columns, the graph says {}", what, part.columns(), n)};
  }
  const int64_t block = part.columns() / n;
  if (whole->shape.empty()) {
    whole->shape = part.shape;
    whole->shape[1] =
        part.shape.size() > 2 && part.shape[1] == n ? whole_columns : whole_columns * block;
    whole->data.assign(static_cast<size_t>(part.rows() * whole_columns * block), 0.0);
  }
  if (part.rows() != whole->rows() || whole->columns() != whole_columns * block) {
    return Error{fmt::format("{} has another shape than rank 0's", what)};
  }
  for (int64_t row = 0; row < part.rows(); ++row) {
    for (int64_t c = 0; c < n; ++c) {
      if (columns[c] < 0) continue;
      if (columns[c] >= whole_columns) {
        return Error{fmt::format("{}: column {} of {}", what, columns[c], whole_columns)};
      }
      for (int64_t i = 0; i < block; ++i) {
        whole->data[(row * whole_columns + columns[c]) * block + i] =
            part.data[(row * n + c) * block + i];
      }
    }
  }
  return Ok();
}

}  // namespace

Result<Tensor> JoinRanks(const reference::Oracle& oracle, const Node& node,
                         const EngineTrace& trace, const reference::Parallel& degrees, int step) {
  const TapValue* first = Find(trace, node.tap, 0, step);
  if (first == nullptr) {
    const TapValue* whole = Find(trace, node.tap, -1, step);
    if (whole == nullptr) return Error{fmt::format("{} is not shown in step {}", node.tap, step)};
    return ToTensor(*whole);
  }
  if (node.spread == Spread::kReplicated) return ToTensor(*first);
  if (node.spread == Spread::kPartial) return SumPartials(node, trace, degrees, step);
  auto all = oracle.TapColumns(node, {degrees, -1});
  if (!all.ok()) return all.error();
  Tensor whole;
  for (int r = 0; r < degrees.tp; ++r) {
    const TapValue* tap = Find(trace, node.tap, r, step);
    if (tap == nullptr) return Error{fmt::format("{}@r{} is not shown", node.tap, r)};
    auto columns = oracle.TapColumns(node, {degrees, r});
    if (!columns.ok()) return columns.error();
    const Status placed = Place(ToTensor(*tap), *columns, static_cast<int64_t>(all->size()), &whole,
                                fmt::format("{}@r{}", node.tap, r));
    if (!placed.ok()) return placed.error();
  }
  return whole;
}

}  // namespace assay::judge
