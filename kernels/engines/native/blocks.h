// The blocks of a decoder over all ranks: attention, MLP, experts, and the sums between ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/engines/native/session.h"
#include "kernels/engines/native/values.h"

namespace assay::kernels::native {

inline constexpr std::string_view kGatherName = "gather_columns";

// --- reduce.cc
// "all_reduce_ring_bf16"
std::string ReductionName(std::string_view kind, const Reduction& reduction);
// Σ over ranks in the session's order and wire, rounded to the contract's type: each rank's copy.
// No tap, no record.
Matrices ReduceParts(Session& s, const std::string& tap, std::span<const Matrix> parts);
// Every rank's copy of the sum over its group of `degree` consecutive ranks.
Matrices AllReduce(Session& s, const std::string& tap, const Matrices& parts, int degree);

// --- attention.cc (GQA), mla.cc
struct HeadShape {
  int64_t heads;     // query heads of this rank
  int64_t kv_heads;  // KV heads of this rank; heads/kv_heads share one
  int64_t key_dim, value_dim;
};
// Of one attention rank. Throws EngineError (refused) where heads do not divide.
HeadShape HeadShapeOf(const Session& s);
// scores [T, heads·keys], scale included, −inf where a key lies behind the query. keys [S, ...];
// the T queries are the last T of the S positions.
Matrix ScoresOp(Session& s, int rank, const std::string& tap, const Matrix& q, const Matrix& keys,
                const HeadShape& shape);
// softmax(scores)·V per head, [T, heads·value_dim].
Matrix ContextOp(Session& s, int rank, const std::string& tap, const Matrix& scores,
                 const Matrix& values, const HeadShape& shape);
// Appends to the layer's cache and attends over all of it.
Matrix Attend(Session& s, int rank, int64_t layer, const Matrix& q, const Matrix& keys,
              const Matrix& values);
// k_nope | k_rot of each head, and v of each head, from kv_b's rows per head [k_nope | v].
Matrix MlaKeys(Session& s, const Matrix& kv_b, const Matrix& k_rot, const HeadShape& shape);
Matrix MlaValues(Session& s, const Matrix& kv_b, const HeadShape& shape);
// The part of one rank: attn.q … attn.partial.
Matrix MlaRank(Session& s, int rank, int64_t layer, const Matrix& normed, int64_t first_position);
// input_norm -> attn.out
Matrices AttentionBlock(Session& s, int64_t layer, const Matrices& normed, int64_t first_position);

// --- router.cc
struct Routing {
  std::vector<int32_t> ids;  // [T, top_k], ascending in each row
  Matrix weights;            // [T, top_k], renormalised and scaled
};
Matrix RouterScoresOp(Session& s, int rank, const std::string& tap, const Matrix& logits);
std::vector<int32_t> RouterIdsOp(Session& s, int rank, const std::string& tap,
                                 const Matrix& scores);
Matrix RouterWeightsOp(Session& s, int rank, const std::string& tap, const Matrix& scores,
                       const std::vector<int32_t>& ids);
// post_norm -> router.*
std::vector<Routing> RouteBlock(Session& s, int64_t layer, const Matrices& normed);
// Throws EngineError unless ids are [rows, top_k], ascending, and experts of the model.
void CheckIds(const ModelConfig& config, const std::vector<int32_t>& ids, int64_t rows);

// --- moe.cc
// Rows of the tokens that are routed to an expert, ascending; with their places in `ids`.
struct ExpertRows {
  std::vector<int64_t> rows, slots;
};
ExpertRows RowsOfExpert(const std::vector<int32_t>& ids, int64_t top_k, int64_t expert);
// partial = Σ_e w_e·down_e, experts ascending, over those that count on this rank. `down[e]` is
// empty where nobody is routed to e.
Matrix CombineOp(Session& s, int rank, const std::string& tap, const std::vector<int32_t>& ids,
                 const Matrix& weights, const Matrices& down, int64_t columns);
// gate, up, act, down of one gated MLP: "L0.mlp", "L1.shared", "L1.moe.e5".
Matrix GatedMlp(Session& s, int rank, const std::string& prefix, const Matrix& x);
// post_norm -> moe.out
Matrices ExpertsBlock(Session& s, int64_t layer, const Matrices& normed,
                      const std::vector<Routing>& routing);
// post_norm -> mlp.out, of an MoE layer and of a dense one.
Matrices MoeBlock(Session& s, int64_t layer, const Matrices& normed,
                  const std::vector<Routing>* forced);
Matrices DenseBlock(Session& s, int64_t layer, const Matrices& normed);

// --- embedding.cc
// tokens -> embed, on every rank. Throws EngineError for a token beyond the vocabulary.
Matrices EmbedBlock(Session& s, const std::vector<int32_t>& tokens);
// final_norm -> logits [T, vocab], gathered.
Matrix LogitsBlock(Session& s, const Matrices& normed);

}  // namespace assay::kernels::native
