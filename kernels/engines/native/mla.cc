// Multi-head latent attention, plain form: keys and values are expanded from the latent through
// kv_b, and cached expanded.
#include <fmt/format.h>

#include <cstring>

#include "kernels/engines/native/blocks.h"
#include "kernels/engines/native/contract_types.h"
#include "kernels/engines/native/ops.h"
#include "kernels/loaders/engine_error.h"

namespace assay::kernels::native {
namespace {

void CheckExpansion(const Session& s, const Matrix& kv_b, const HeadShape& shape) {
  const int64_t expected = shape.heads * (s.config().qk_nope + s.config().v_dim);
  if (kv_b.columns == expected) return;
  throw EngineError(ASSAY_FAILED,
                    fmt::format("kv_b has {} columns, must be {}", kv_b.columns, expected));
}

void CopyFloats(float* to, const float* from, int64_t count) {
  if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

}  // namespace

Matrix MlaKeys(Session& s, const Matrix& kv_b, const Matrix& k_rot, const HeadShape& shape) {
  CheckExpansion(s, kv_b, shape);
  const int64_t nope = s.config().qk_nope, rope = s.config().qk_rope, v = s.config().v_dim;
  if (k_rot.rows != kv_b.rows || k_rot.columns != rope) {
    throw EngineError(ASSAY_FAILED, fmt::format("k_rot is [{}, {}], must be [{}, {}]", k_rot.rows,
                                                k_rot.columns, kv_b.rows, rope));
  }
  Matrix keys(s.memory(), kv_b.rows, shape.heads * shape.key_dim, kLinearType);
  for (int64_t i = 0; i < keys.rows; ++i) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      float* key = keys.row(i) + h * shape.key_dim;
      CopyFloats(key, kv_b.row(i) + h * (nope + v), nope);
      CopyFloats(key + nope, k_rot.row(i), rope);
    }
  }
  return keys;
}

Matrix MlaValues(Session& s, const Matrix& kv_b, const HeadShape& shape) {
  CheckExpansion(s, kv_b, shape);
  const int64_t nope = s.config().qk_nope, v = s.config().v_dim;
  Matrix values(s.memory(), kv_b.rows, shape.heads * v, kLinearType);
  for (int64_t i = 0; i < values.rows; ++i) {
    for (int64_t h = 0; h < shape.heads; ++h) {
      CopyFloats(values.row(i) + h * v, kv_b.row(i) + h * (nope + v) + nope, v);
    }
  }
  return values;
}

Matrix MlaRank(Session& s, int rank, int64_t layer, const Matrix& normed, int64_t first_position) {
  const auto tap = [&](std::string_view rest) { return LayerTap(layer, rest); };
  const ModelConfig& c = s.config();
  const HeadShape shape = HeadShapeOf(s);
  Matrix q, kv_a;
  if (c.q_lora > 0) {
    Matrices low = LinearOps(s, rank, {tap("attn.q_a"), tap("attn.kv_a")}, normed);
    kv_a = std::move(low[1]);
    q = LinearOp(s, rank, tap("attn.q"), NormOp(s, rank, tap("attn.q_a_norm"), low[0]));
  } else {
    Matrices both = LinearOps(s, rank, {tap("attn.q"), tap("attn.kv_a")}, normed);
    q = std::move(both[0]);
    kv_a = std::move(both[1]);
  }
  const Matrix latent =
      NormOp(s, rank, tap("attn.kv_a_norm"), ColumnsOf(s.memory(), kv_a, 0, c.kv_lora));
  const Matrix kv_b = LinearOp(s, rank, tap("attn.kv_b"), latent);
  q = RopeOp(s, rank, tap("attn.q_rot"), q, {shape.heads, shape.key_dim, c.qk_nope},
             first_position);
  const Matrix k_rot =
      RopeOp(s, rank, tap("attn.k_rot"), ColumnsOf(s.memory(), kv_a, c.kv_lora, c.qk_rope),
             {1, c.qk_rope, 0}, first_position);
  const Matrix context =
      Attend(s, rank, layer, q, MlaKeys(s, kv_b, k_rot, shape), MlaValues(s, kv_b, shape));
  return LinearOp(s, rank, tap("attn.partial"), context);
}

}  // namespace assay::kernels::native
