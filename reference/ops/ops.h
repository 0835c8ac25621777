// The ops, each a plain function over dense doubles in a file of its own. All give the value; with
// `bounds` also what a bound on somebody else's evaluation needs (oracle.h, Evaluation). Shapes
// have been checked by the caller. Inputs' error pointers may be null.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "harness/units/dtype.h"
#include "reference/oracle.h"
#include "reference/weights.h"

namespace assay::reference::ops {

// Σ a[k]·b[k], in eight interleaved sums: depth n/8 + 3.
double Dot(const double* a, const double* b, int64_t n);
double DotAbs(const double* a, const double* b, int64_t n);

Tensor Zeros(std::vector<int64_t> shape);

// y = x Wᵀ + b. x [T, K], W [N, K] -> [T, N]. magnitude Σ|x||w|, function |b|, exact
// (numerics.md §1.1); of weights d·q + m magnitude is Σ|x|(|d·q| + |m|). Large products are shared
// by threads, rows of W each; the result does not depend on their number.
Evaluation Linear(const Input& x, const WeightRows& weight, const std::vector<double>* bias,
                  bool bounds);

// x·rsqrt(mean(x²) + eps)·w over rows of weight.size() values; x may be wider (MLA's kv_a): its
// first values. function |y|, terms the width.
Evaluation RmsNorm(const Input& x, const std::vector<double>& weight, double eps, bool bounds);
// The same for each block of weight.size() columns.
Evaluation HeadNorm(const Input& x, const std::vector<double>& weight, double eps, bool bounds);

// Angles of one dimension pair a position, and the factor that cos and sin carry.
struct RopeTable {
  std::vector<double> inverse_frequency;
  double factor = 1;
};
// As Hugging Face computes them (modeling_rope_utils): default, linear, llama3, yarn. `dim`:
// rotated dimensions of a head. Error kUnsupported: another type. kBadInput: parameters out of
// range.
Result<RopeTable> MakeRopeTable(const RopeConfig& config, int64_t dim, int64_t max_position);
// Rotates, in each block of `block` columns, the last 2·pairs. interleaved: pairs (2i, 2i+1);
// otherwise (i, i + pairs). function |x1| + |x2|.
struct RopeLayout {
  int64_t block = 0;
  bool interleaved = false;
};
Evaluation Rope(const Input& x, const RopeTable& table, const RopeLayout& layout,
                int64_t first_position, DType table_type, bool bounds);

// Grouped query attention of local heads. kv_of[h]: local key/value head of local head h.
struct Gqa {
  int64_t dim = 0;
  std::vector<int64_t> kv_of;
  double scale = 1;
  int64_t first_position = 0;
};
Evaluation GqaScores(const Input& q, const Input& k, const Gqa& shape, bool bounds);
Evaluation GqaContext(const Input& scores, const Input& v, const Gqa& shape, DType probs,
                      bool bounds);

// Multi-head latent attention of `heads` local heads.
struct Mla {
  int64_t heads = 0, nope = 0, rope = 0, v = 0, lora = 0;
  double scale = 1;
  int64_t first_position = 0;
};
Evaluation MlaScores(const Input& q, const Input& k_rot, const Input& kv_b, const Mla& shape,
                     bool bounds);
Evaluation MlaContext(const Input& scores, const Input& kv_b, const Mla& shape, DType probs,
                      bool bounds);
// The absorbed form: q·W_kc against the latent, probabilities over the latent, then W_vc. `latent`
// is kv_a_norm for all keys [keys, lora]; kv_b is the weight, per head rows [nope | v]. No bounds.
Tensor MlaAbsorbedScores(const Tensor& q, const Tensor& k_rot, const Tensor& latent,
                         WeightRows* kv_b, const Mla& shape);
Tensor MlaAbsorbedContext(const Tensor& scores, const Tensor& latent, WeightRows* kv_b,
                          const Mla& shape, DType probs);

// silu(min(gate, limit))·clamp(up, −limit, limit); +inf: no limit. function: its absolute value.
// Errors of an input have no effect where they cannot bring it below the limit again.
Evaluation Activation(const Input& gate, const Input& up, double limit, bool bounds);

// SiTU: β·tanh(g/β)·sigmoid(g)·u, and SiTUv2, where u is β_l·tanh(u/β_l) (models.md). β is never
// defaulted. Some kernels clamp g and u first, as above. function: its absolute value.
struct SituParameters {
  double beta = 0;
  std::optional<double> linear_beta;  // of SiTUv2; nullopt: SiTU
  double limit = std::numeric_limits<double>::infinity();
};
Evaluation Situ(const Input& gate, const Input& up, const SituParameters& parameters, bool bounds);

// sigmoid. function |s|.
Evaluation RouterScores(const Input& logits, bool bounds);
struct Routing {
  int64_t top_k = 1, groups = 1, topk_group = 1;
  bool renormalise = true;
  double scaling = 1;
};
// Ids ascending [T, top_k], lowest id first on ties. margin [T, 1]; propagated [T, 1] bounds how
// far errors of the scores move the deciding gap.
Evaluation RouterIds(const Input& scores, const std::vector<double>& bias, const Routing& routing,
                     bool bounds);
// Weights of the chosen, [T, top_k], from the scores without bias. function |w|.
Evaluation RouterWeights(const Input& scores, const Tensor& ids, const Routing& routing,
                         bool bounds);
// Rows of the tokens whose ids contain this expert, ascending.
std::vector<int64_t> RoutedRows(const Tensor& ids, int64_t expert);

// Σ over the chosen experts of weight · that expert's row. experts[e] null: no token went there.
Evaluation Combine(const Tensor& ids, const Input& weights, std::span<const Input> experts,
                   int64_t hidden, bool bounds);

// Element by element sum of any number of tensors; magnitude Σ|terms| if there are several.
Evaluation Sum(std::span<const Input> terms, bool bounds);

}  // namespace assay::reference::ops
