// The oracle: scalar, double precision, written from formats.md and models.md. It knows a model as
// a graph of ops, each with a named output (a tap). It evaluates the whole chain (golden,
// accumulated error) and any single op on inputs that somebody else computed (local error), on the
// whole tensor or on what one rank holds. It shares no line with kernels/ and slices by its own
// rules.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/abi/contract.h"
#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/tensor_source.h"
#include "harness/units/status.h"
#include "reference/tensor.h"

namespace assay::reference {

enum class Op {
  kEmbed,          // tokens -> [T, H]
  kRmsNorm,        // x -> x·rsqrt(mean x² + eps)·w over the full row
  kHeadNorm,       // the same per head: QK norm
  kLinear,         // x [, ids] -> x Wᵀ (+ b). With an expert: rows = tokens routed to it
  kRope,           // q or k, rotated; kv_a's rope part for MLA's k_rot
  kScores,         // q_rot, k_rot (MLA: + kv_b) -> [T, heads, keys], masked ones are -inf
  kContext,        // scores, v (MLA: kv_b) -> softmax(scores)·v, [T, heads·v_dim]
  kActivation,     // gate, up -> silu(gate)·up, or SiTU (Node::tanhs)
  kRouterScores,   // router logits -> sigmoid
  kRouterIds,      // scores -> ids ascending, [T, top_k]
  kRouterWeights,  // scores, ids -> weights in that order
  kCombine,        // ids, weights, e{E}.down ... -> Σ w·down, [T, H]: moe.partial
  kReduce,         // partial sums of the ranks -> their sum
  kAdd,            // a, b -> a + b
};

// How a tap is spread over ranks.
enum class Spread {
  kReplicated,  // every rank has the same
  kColumns,     // every rank has some columns (heads, intermediate, vocabulary)
  kPartial,     // every rank has a summand of the whole
};
// Which degree cuts it.
enum class Domain { kNone, kAttention, kTensor };

struct Node {
  std::string tap;       // "L1.moe.e5.down"
  std::string path;      // "moe.down": without layer and expert
  std::string op_class;  // contract.h's classes: "linear", "partial", "norm" ...
  Op op = Op::kAdd;
  int64_t layer = -1, expert = -1;
  std::vector<std::string> inputs;  // taps; "tokens" for kEmbed
  std::string weight;               // parameter without suffix, "L1.moe.e5.down"; empty: none
  Spread spread = Spread::kReplicated;
  Domain domain = Domain::kNone;
  bool cuts_contraction = false;  // row-parallel: the rank's input is its columns
  // kActivation: how many tanh its function has. 0: SiLU; 1: SiTU; 2: SiTUv2, with one of up too.
  int tanhs = 0;
};

// How the intermediate axis of an MLP or of experts is cut.
enum class Split {
  kEven,  // equal parts; what does not divide, or would cut a stored unit, is refused
  kCeil,  // ceil(units / parts) units each, padded with zeros to the same
  kList,  // so many units for each part, nothing padded
};

// The same degrees as harness/shard/plan.h's, in the oracle's own words.
struct Parallel {
  int tp = 1;
  int attn_tp = 1;  // 0: tp / dp. Rank r has attention rank r % attention().
  // Data-parallel attention: where it is more than 1, shared experts and dense MLPs are cut by
  // attention() too, and the embedding is whole on every rank.
  int dp = 1;
  // Routed experts: rank r is expert rank r / (tp / ep), and part r % (tp / ep) of its experts.
  int ep = 1;
  bool lm_head_dp = false;  // the output matrix is cut by attention() instead of tp
  Split split = Split::kEven;
  std::vector<int64_t> list = {};  // of kList: units of each part
  // Routed experts from this one on are whole on rank 0 and nowhere else; -1: all are cut.
  int64_t hybrid = -1;
  // Physical slot -> logical expert, -1: an empty slot. The slots are dealt out to the expert ranks
  // in equal contiguous runs. Empty: slot i is expert i.
  std::vector<int64_t> physical_to_logical = {};
  int attention() const { return attn_tp == 0 ? tp / std::max(dp, 1) : attn_tp; }
};
struct Where {
  Parallel degrees;
  int rank = -1;  // -1: the whole tensor, degrees are not looked at
};

// The rows of one step: one sequence, tokens at first_position … For attention the keys of earlier
// steps are part of the inputs.
struct Step {
  std::vector<int32_t> tokens;
  int64_t first_position = 0;
};

// 8-bit activations that somebody shows: of the rows that the op computes (an expert's: the tokens
// routed to it, not all of the step's).
struct Codes {
  const Tensor* codes = nullptr;   // [rows, k], integers
  const Tensor* scales = nullptr;  // [rows, k/group]
  int64_t group = 0;               // 0: one scale a row
};
// An input, and optionally a bound on how far it is from what it stands for; its effect on the
// output is carried to first order (for engines that do not give every inner tap).
struct Input {
  const Tensor* value = nullptr;  // nullptr: an expert that no token was routed to
  const Tensor* error = nullptr;
  // Linear ops on quantised weights: the product is evaluated on these 8-bit activations, code
  // times scale exactly, instead of `value` (which must be there all the same). Without them, under
  // a contract whose `act` quantises, the oracle quantises `value` itself; codes near a tie enter
  // as an error of the input.
  const Codes* codes = nullptr;
};

// 8-bit activations as a contract's quantiser makes them from x [rows, k], in fp32's arithmetic:
// x is taken as fp32. A group with an infinity or NaN has the scale NaN and codes 0.
struct QuantisedActivation {
  Tensor codes, scales;
  // How far x / s, as the quantiser's rule evaluates it, lies from the nearest k + ½, in units of
  // the last place (fp32) of x / s: within 2 the code may be the neighbour's. +inf where s is 0 or
  // no number, and beyond the last tie (±126.5), where there is no other code.
  Tensor tie_ulps;
  int64_t group = 0;
};
// `scales` [rows, k/group]: make the codes with these (an engine's own) instead of amax / 127;
// CodeRule::kTimesInverse does not look at them but for 0 and NaN.
// Error kBadInput: k is no multiple of the group, or the scales' shape is another.
Result<QuantisedActivation> Quantise(const Tensor& x, const ActQuantiser& quantiser,
                                     const Tensor* scales = nullptr);

// The sum over ranks exactly as contract.md defines order and wire: fp32 additions, wire roundings;
// the output's own rounding is not included. parts: one a rank, equal shapes, taken as fp32.
// kind "all_reduce": one tensor of that shape; "reduce_scatter": one chunk a rank, [count of the
// chunk]. One rank: its values as they are. Error kUnsupported: a kind, order or wire (F64, F32,
// F16, BF16 are) that is not modelled; kBadInput: no parts, or shapes that differ.
Result<std::vector<Tensor>> ModelReduce(std::span<const Tensor* const> parts, std::string_view kind,
                                        std::string_view order, DType wire);

// One op in double precision, not rounded, and what a bound on somebody else's evaluation needs.
// magnitude and terms by op: linear, scores, ctx, combine, reduce: of their sums; router.weights:
// of the renormalisation; a + b: |a + b| and 1, for it is rounded once; norms: no magnitude, terms
// is the width. kRouterIds: propagated is [T, 1], how far the scores' errors move the margin.
struct Evaluation {
  Tensor value;
  // Σ|terms| that an accumulator adds for each element (empty: nothing is accumulated).
  Tensor magnitude;
  int64_t terms = 0;  // number of them
  // What errors of elementary functions scale with, each element (empty: none). Linear: |bias|.
  // RMSNorm: |y|. Activation: |f(g)·u|. Context: Σ p|v|. Rope: |x1| + |x2|. Weights: |w|.
  Tensor function;
  // First-order effect of the inputs' errors (empty: inputs had none).
  Tensor propagated;
  // kReduce under a contract that declares order and wire (reduce_exact): what they give, before
  // the output's rounding; empty otherwise. `value` is the exact sum all the same.
  Tensor modelled;
  // Linear ops: 1 where every fp32 partial sum is exact in any order (numerics.md §1.1). Stored
  // minima are terms too, here and in magnitude: Σ|x|·(|d·q| + |m|).
  std::vector<uint8_t> exact;
  // kRouterIds: [T, 1] the gap in the deciding score between the last choice taken and the first
  // not taken, the smaller of groups and experts.
  Tensor margin;
};

// What a rank holds of a component, as stored, sliced by the oracle's own brute-force rules. A
// tensor of one dimension (a norm's weight, a bias) has one column and a row per value. Rows and
// columns are those of the component's grid: of a tensor of all experts, one expert's, and one
// half's; a matrix that the file stores transposed for all experts is [N, K] here.
struct Slice {
  DType dtype = DType::kBF16;
  std::string unit;  // of a column: "element", "word", "group", "block"
  int64_t elements_per_column = 1;
  std::vector<int64_t> rows;     // global row of each local row; -1: padding
  std::vector<int64_t> columns;  // global column of each local one, stored values; -1: padding
  std::vector<std::byte> bytes;  // row major; padding zero
  // As `unit` and `elements_per_column`, of a row. Where values straddle words a unit is several
  // stored values: `elements_per_column` elements lie in `columns_per_unit` of them.
  std::string row_unit = "element";
  int64_t elements_per_row = 1;
  int64_t columns_per_unit = 1, rows_per_unit = 1;
  // Every rank has all of it. A rank that does not hold an expert has no rows and no columns.
  bool replicated = false;
  bool absent = false;
};

// A tensor of the checkpoint that no component takes.
inline constexpr std::string_view kNotPlanned = "not yet planned";
struct UnusedTensor {
  std::string tensor;
  std::string reason;  // why that is as it should be; empty: nothing explains it, a finding
};

struct RunRequest {
  std::vector<Step> steps;        // prefill, then decodes
  int64_t first_layer = 0;        // with `input`: start here ...
  int64_t last_layer = -1;        // ... and stop after it; -1: to the logits
  const Tensor* input = nullptr;  // residual stream before first_layer, instead of the embedding
  // Taps to use instead of computing them: forced routing ("L1.router.ids"), or a block's inputs.
  // Rows are all steps' tokens, one step after the other.
  std::map<std::string, Tensor> given;
  // Empty: all. Otherwise only these taps and what they need.
  std::vector<std::string> wanted;
  // With it row-parallel ops are evaluated rank by rank, as the contract has it: each rank
  // quantises its own part of the activations, rounds its own partial, and the sum goes in the
  // contract's order and wire (taps of partials are then the plain sum of the ranks'). Without it
  // ops are whole, which is the same function only where none of these rounds.
  std::optional<Parallel> parallel;
  // The absorbed form of latent attention: scores and ctx read kv_a_norm instead of kv_b. (Taps
  // named kv_b are computed all the same where they are wanted.)
  bool mla_absorbed = false;
  // Called with each op's evaluation (magnitudes included; not for the absorbed form) before its
  // output is rounded; it may change the value: noise floors, amplification of roundings. With
  // `parallel` a row-parallel op comes once for each rank, from rank 0 on.
  std::function<void(const Node&, int step, Evaluation* evaluation)> observe;
  // false: observe() gets values alone, without magnitudes, which cost as much again.
  bool observe_bounds = true;
};
// Taps of each step.
using Trace = std::vector<std::map<std::string, Tensor>>;

class Oracle {
 public:
  // Error kUnsupported: a family, method or option that the oracle does not know (says which). Of
  // some families it knows the parameters and not the ops: runs() is false then, Run and Evaluate
  // are errors of this kind, and everything about components holds.
  // kBadInput: the checkpoint contradicts its config. `source` must outlive the oracle. Weights
  // are decoded when needed, row by row where they are large; the cache is bounded.
  static Result<std::unique_ptr<Oracle>> Create(const ModelConfig& config,
                                                const TensorSource& source);
  virtual ~Oracle() = default;

  // In data-flow order. All experts are listed.
  virtual const std::vector<Node>& graph() const = 0;
  virtual const Node* FindNode(std::string_view tap) const = 0;

  // The chain, each op's output rounded as the contract says.
  virtual Result<Trace> Run(const RunRequest& request, const Contract& contract) const = 0;

  // One op. Inputs in the order of node.inputs, as that rank has them. For kScores/kContext, k_rot
  // and v (kv_b) inputs hold all positions from 0. kReduce: inputs are the ranks' partials.
  // `weights`: read the op's parameters from here (components of the rank's shard under Assay's
  // names, as ExpectedSlice gives them) instead of slicing the checkpoint.
  virtual Result<Evaluation> Evaluate(const Node& node, std::span<const Input> inputs,
                                      const Where& where, const Step& step,
                                      const Contract& contract,
                                      const TensorSource* weights = nullptr) const = 0;

  // Global columns of a tap that the rank has (its own order); all of them for replicated and
  // partial taps. Padding of the vocabulary: -1. kScores: its heads, for its columns are keys.
  virtual Result<std::vector<int64_t>> TapColumns(const Node& node, const Where& where) const = 0;

  // Every component in data-flow order: "embed.weight", "L0.input_norm.weight", ...,
  // "L1.moe.e5.down.weight", "L1.moe.e5.down.scale", ..., "logits.weight" (also when tied).
  virtual std::vector<std::string> Components(int64_t layer = -1) const = 0;
  // Error kRefused if this degree is illegal for the component (the reason in the message).
  virtual Result<Slice> ExpectedSlice(std::string_view component, const Where& where) const = 0;
  // The checkpoint's tensor behind a component.
  virtual Result<std::string> SourceName(std::string_view component) const = 0;

  // Whether the family's ops are known.
  virtual bool runs() const { return true; }
  // The method (harness/units/scheme.h) of a parameter ("L1.moe.e5.down", or one of its
  // components), from what is in the file and the config alone. A table of integers is "i64".
  virtual Result<std::string> MethodOf(std::string_view parameter) const {
    return Error{"no method of " + std::string(parameter) + " is known", ErrorKind::kUnsupported};
  }
  // Every tensor of the source that no component takes, sorted.
  virtual std::vector<UnusedTensor> Unused() const { return {}; }
};

}  // namespace assay::reference
