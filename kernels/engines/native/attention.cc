// Grouped-query attention, and the core that MLA shares: scores, softmax, context.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/engines/native/blocks.h"
#include "kernels/engines/native/contract_types.h"
#include "kernels/engines/native/ops.h"
#include "kernels/loaders/engine_error.h"

namespace assay::kernels::native {
namespace {

// How many keys query i of T sees when all S keys are there: itself and those before it.
int64_t Visible(int64_t i, int64_t queries, int64_t keys) { return keys - queries + i + 1; }

void CheckWidth(const std::string& tap, const char* what, int64_t got, int64_t expected) {
  if (got == expected) return;
  throw EngineError(ASSAY_FAILED,
                    fmt::format("{}: {} has {} columns, must be {}", tap, what, got, expected));
}

Matrix GqaRank(Session& s, int rank, int64_t layer, const Matrix& normed, int64_t first_position) {
  const auto tap = [&](std::string_view rest) { return LayerTap(layer, rest); };
  const HeadShape shape = HeadShapeOf(s);
  Matrices qkv = LinearOps(s, rank, {tap("attn.q"), tap("attn.k"), tap("attn.v")}, normed);
  Matrix& q = qkv[0];
  Matrix& k = qkv[1];
  if (s.config().qk_norm) {
    q = NormOp(s, rank, tap("attn.q_norm"), q);
    k = NormOp(s, rank, tap("attn.k_norm"), k);
  }
  q = RopeOp(s, rank, tap("attn.q_rot"), q, {shape.heads, shape.key_dim, 0}, first_position);
  k = RopeOp(s, rank, tap("attn.k_rot"), k, {shape.kv_heads, shape.key_dim, 0}, first_position);
  const Matrix context = Attend(s, rank, layer, q, k, qkv[2]);
  return LinearOp(s, rank, tap("attn.partial"), context);
}

}  // namespace

HeadShape HeadShapeOf(const Session& s) {
  const ModelConfig& c = s.config();
  const int64_t parts = s.attn_tp();
  const bool kv_fit = c.is_mla() || c.kv_heads % parts == 0 || parts % c.kv_heads == 0;
  if (c.heads % parts != 0 || !kv_fit) {
    throw EngineError(ASSAY_REFUSED, fmt::format("{} heads and {} KV heads over {} ranks", c.heads,
                                                 c.kv_heads, parts));
  }
  const int64_t heads = c.heads / parts;
  if (c.is_mla()) return {heads, heads, c.qk_nope + c.qk_rope, c.v_dim};
  return {heads, std::max<int64_t>(1, c.kv_heads / parts), c.head_dim, c.head_dim};
}

Matrix ScoresOp(Session& s, int rank, const std::string& tap, const Matrix& q, const Matrix& keys,
                const HeadShape& shape) {
  CheckWidth(tap, "q", q.columns, shape.heads * shape.key_dim);
  CheckWidth(tap, "k", keys.columns, shape.kv_heads * shape.key_dim);
  if (keys.rows < q.rows) {
    throw EngineError(ASSAY_FAILED, fmt::format("{}: {} queries, {} keys", tap, q.rows, keys.rows));
  }
  const auto scale = static_cast<float>(SoftmaxScale(s.config()));
  const int64_t sharing = shape.heads / shape.kv_heads;
  Matrix scores(s.memory(), q.rows, CheckedProduct(shape.heads, keys.rows), kScoresType);
  for (int64_t i = 0; i < q.rows; ++i) {
    const int64_t visible = Visible(i, q.rows, keys.rows);
    for (int64_t h = 0; h < shape.heads; ++h) {
      float* row = scores.row(i) + h * keys.rows;
      s.dispatcher().elementwise().scores(q.row(i) + h * shape.key_dim,
                                          keys.data() + h / sharing * shape.key_dim, shape.key_dim,
                                          keys.columns, visible, scale, row);
      std::fill(row + visible, row + keys.rows, -std::numeric_limits<float>::infinity());
    }
  }
  s.dispatcher().RecordElementwise(tap, rank, "scores");
  s.Round(tap, rank, &scores);
  s.Emit(tap, rank, scores, {q.rows, shape.heads, keys.rows});
  return scores;
}

Matrix ContextOp(Session& s, int rank, const std::string& tap, const Matrix& scores,
                 const Matrix& values, const HeadShape& shape) {
  CheckWidth(tap, "v", values.columns, shape.kv_heads * shape.value_dim);
  CheckWidth(tap, "scores", scores.columns, shape.heads * values.rows);
  if (values.rows < scores.rows) {
    throw EngineError(ASSAY_FAILED,
                      fmt::format("{}: {} queries, {} values", tap, scores.rows, values.rows));
  }
  const int64_t sharing = shape.heads / shape.kv_heads;
  Matrix context(s.memory(), scores.rows, shape.heads * shape.value_dim, kContextType);
  Array<float> row(s.memory(), values.rows);  // the kernel overwrites it
  for (int64_t i = 0; i < scores.rows; ++i) {
    // Only the keys that the query sees: a row's bits must not depend on what follows it.
    const int64_t visible = Visible(i, scores.rows, values.rows);
    for (int64_t h = 0; h < shape.heads; ++h) {
      std::memcpy(row.data(), scores.row(i) + h * values.rows,
                  static_cast<size_t>(visible) * sizeof(float));
      s.dispatcher().elementwise().context(
          row.data(), values.data() + h / sharing * shape.value_dim, shape.value_dim,
          values.columns, visible, context.row(i) + h * shape.value_dim);
    }
  }
  s.dispatcher().RecordElementwise(tap, rank, "context");
  return s.Finish(tap, rank, std::move(context));
}

Matrix Attend(Session& s, int rank, int64_t layer, const Matrix& q, const Matrix& keys,
              const Matrix& values) {
  KvCache& cache = s.rank(rank).cache[static_cast<size_t>(layer)];
  cache.Append(s.memory(), keys, values);
  const HeadShape shape = HeadShapeOf(s);
  const Matrix scores =
      ScoresOp(s, rank, LayerTap(layer, "attn.scores"), q, cache.Keys(s.memory()), shape);
  return ContextOp(s, rank, LayerTap(layer, "attn.ctx"), scores, cache.Values(s.memory()), shape);
}

Matrices AttentionBlock(Session& s, int64_t layer, const Matrices& normed, int64_t first_position) {
  Matrices partial;
  for (int rank = 0; rank < s.tp(); ++rank) {
    const Matrix& x = normed[static_cast<size_t>(rank)];
    partial.push_back(s.config().is_mla() ? MlaRank(s, rank, layer, x, first_position)
                                          : GqaRank(s, rank, layer, x, first_position));
  }
  return AllReduce(s, LayerTap(layer, "attn.out"), partial, s.attn_tp());
}

}  // namespace assay::kernels::native
