// Gated MLPs: dense, shared and routed experts.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/engines/native/blocks.h"
#include "kernels/engines/native/contract_types.h"
#include "kernels/engines/native/ops.h"
#include "kernels/loaders/engine_error.h"

namespace assay::kernels::native {

ExpertRows RowsOfExpert(const std::vector<int32_t>& ids, int64_t top_k, int64_t expert) {
  ExpertRows found;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] != expert) continue;
    found.rows.push_back(static_cast<int64_t>(i) / top_k);
    found.slots.push_back(static_cast<int64_t>(i));
  }
  return found;
}

Matrix CombineOp(Session& s, int rank, const std::string& tap, const std::vector<int32_t>& ids,
                 const Matrix& weights, const Matrices& down, int64_t columns) {
  Matrix sum(s.memory(), weights.rows, columns, kCombineType);
  std::fill_n(sum.data(), sum.count(), 0.0f);
  for (size_t e = 0; e < down.size(); ++e) {
    const ExpertRows routed = RowsOfExpert(ids, weights.columns, static_cast<int64_t>(e));
    if (routed.rows.empty() || !s.Contributes(static_cast<int64_t>(e), rank)) continue;
    const auto rows = static_cast<int64_t>(routed.rows.size());
    if (down[e].empty() || down[e].rows != rows || down[e].columns != columns) {
      throw EngineError(ASSAY_FAILED,
                        fmt::format("{}: expert {} has output [{}, {}], must be [{}, {}]", tap, e,
                                    down[e].rows, down[e].columns, rows, columns));
    }
    for (int64_t i = 0; i < rows; ++i) {
      s.dispatcher().elementwise().axpy(weights.values[routed.slots[static_cast<size_t>(i)]],
                                        down[e].row(i), columns,
                                        sum.row(routed.rows[static_cast<size_t>(i)]));
    }
  }
  s.dispatcher().RecordElementwise(tap, rank, "axpy");
  return s.Finish(tap, rank, std::move(sum));
}

Matrix GatedMlp(Session& s, int rank, const std::string& prefix, const Matrix& x) {
  const Matrices gate_up = LinearOps(s, rank, {prefix + ".gate", prefix + ".up"}, x);
  const Matrix act = ActOp(s, rank, prefix + ".act", gate_up[0], gate_up[1]);
  return LinearOp(s, rank, prefix + ".down", act);
}

Matrices ExpertsBlock(Session& s, int64_t layer, const Matrices& normed,
                      const std::vector<Routing>& routing) {
  const ModelConfig& c = s.config();
  Matrices partial;
  for (int rank = 0; rank < s.tp(); ++rank) {
    const Matrix& x = normed[static_cast<size_t>(rank)];
    const Routing& chosen = routing[static_cast<size_t>(rank)];
    Matrices down(static_cast<size_t>(c.experts));
    for (int64_t e = 0; e < c.experts; ++e) {
      const ExpertRows routed = RowsOfExpert(chosen.ids, c.top_k, e);
      if (routed.rows.empty() || !s.Contributes(e, rank)) continue;
      down[static_cast<size_t>(e)] = GatedMlp(s, rank, fmt::format("L{}.moe.e{}", layer, e),
                                              RowsOf(s.memory(), x, routed.rows));
    }
    partial.push_back(CombineOp(s, rank, LayerTap(layer, "moe.partial"), chosen.ids, chosen.weights,
                                down, c.hidden));
  }
  return AllReduce(s, LayerTap(layer, "moe.out"), partial, s.tp());
}

Matrices MoeBlock(Session& s, int64_t layer, const Matrices& normed,
                  const std::vector<Routing>* forced) {
  const std::vector<Routing> own = RouteBlock(s, layer, normed);
  Matrices routed = ExpertsBlock(s, layer, normed, forced != nullptr ? *forced : own);
  Matrices shared;
  if (s.config().shared_experts > 0) {
    for (int rank = 0; rank < s.tp(); ++rank) {
      shared.push_back(
          GatedMlp(s, rank, LayerTap(layer, "shared"), normed[static_cast<size_t>(rank)]));
    }
    shared = AllReduce(s, LayerTap(layer, "shared.out"), shared, s.tp());
  }
  const std::string tap = LayerTap(layer, "mlp.out");
  for (int rank = 0; rank < s.tp(); ++rank) {
    Matrix& out = routed[static_cast<size_t>(rank)];
    if (shared.empty()) {
      s.dispatcher().RecordUntiered(tap, rank, "copy");
      s.Emit(tap, rank, out);
    } else {
      out = AddOp(s, rank, tap, out, shared[static_cast<size_t>(rank)]);
    }
  }
  return routed;
}

Matrices DenseBlock(Session& s, int64_t layer, const Matrices& normed) {
  Matrices partial;
  for (int rank = 0; rank < s.tp(); ++rank) {
    partial.push_back(GatedMlp(s, rank, LayerTap(layer, "mlp"), normed[static_cast<size_t>(rank)]));
  }
  return AllReduce(s, LayerTap(layer, "mlp.out"), partial, s.tp());
}

}  // namespace assay::kernels::native
