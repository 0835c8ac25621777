// Decides whether each op of an engine's run is what its inputs and the contract demand
// (numerics.md §1). Exactness before bounds; every tolerance carries its derivation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/abi/contract.h"
#include "harness/store/result.h"
#include "harness/store/trace.h"
#include "reference/oracle.h"

namespace assay::judge {

// What the judging of one kernel's sums depends on; from describe()'s list of kernels.
struct KernelFacts {
  std::string name, op, method, tier, layout, act, arithmetic_class;
  int lanes = 0, extra = 0;
};

// A term of a tolerance: coefficient times a magnitude per element, with the words for it.
struct Term {
  std::string name;        // "acc", "out", "function", "propagated", "wire", "subnormal", "range"
  std::string derivation;  // "c·u·G, c = d = ceil(256/8)+3+1 = 36, u = 2^-24"
};

struct Tolerance {
  // Per element, what |kernel − oracle| may be; infinite where nothing can be demanded.
  std::vector<double> bound;
  std::vector<Term> terms;
  double u_acc = 0, depth = 0, c = 0;
  ToleranceFacts Facts() const;
  std::string Print() const;  // a line per term
};

// Tolerance of one op's output of type `out`, from the oracle's evaluation. `ranks`: how many
// partial sums a kReduce adds. `inputs`: as the oracle was fed; without them the terms that need
// them (the spread of scores before a softmax, each rank's partial on a rounding wire) take their
// worst case. `gain`: of norms, the largest |weight|.
Tolerance Derive(const reference::Node& node, const reference::Evaluation& evaluation, DType out,
                 const Contract& contract, const KernelFacts* kernel, int ranks,
                 std::span<const reference::Input> inputs = {}, double gain = 1);
// The reduction depth alone: roundings on a term's way into a sum of n terms.
double DepthOf(int64_t n, int lanes, int extra);

// 8-bit activations are judged as ops of their own, which no graph has: `T.x_scale` and `T.x_q`
// before the linear op T. Their node reads what T reads, and `T.x_q` also `T.x_scale`; class and
// path are T's with the suffix. The tap of T, or empty for any other tap.
std::string_view LinearOf(std::string_view tap);
// What codes stand for: code times scale, [rows, k].
reference::Tensor ActivationValues(const reference::Codes& codes);

// How one op on one rank in one step came out.
struct OpJudgement {
  const reference::Node* node = nullptr;
  std::shared_ptr<const reference::Node> made;  // keeps `node` alive where no graph has it
  int step = 0;
  int rank = -1;
  bool shown = false;      // the engine gave this tap
  bool judged = false;     // false: not shown, or its inputs are not known
  bool gather = false;     // ranks' parts against one value for all: no op was evaluated
  bool composite = false;  // inputs that the engine does not show were evaluated by the oracle
  bool pass = true;
  std::string mode;        // "exact", "bounded", "bitwise", "discrete"
  std::string reason;      // of a failure, or of not being judged
  double max_ratio = 0;    // +inf: non-finite where the oracle is finite, or exact bits differ
  double bound_ratio = 0;  // largest |error| / bound, also of elements that must equal bit for bit
  int64_t worst = -1;      // flat local index of the worst element
  int64_t first = -1;      // flat local index of the first element beyond its bound
  int64_t wrong = 0;       // elements beyond their bound
  int64_t elements = 0;
  // Discrete decisions adopted because the margin was too small: choices, codes near a tie.
  int64_t ambiguous = 0;
  int64_t proves_nothing = 0;    // elements whose bound exceeds their value
  int64_t not_finite = 0;        // elements that are not finite (masked scores are not counted)
  double expected = 0, got = 0;  // at `first` (or `worst` if none)
  double cosine = 1, rel_l2 = 0, max_abs = 0, condition = 1;
  std::optional<double> three_way;
  Tolerance tolerance;  // its bound vector is dropped where the op passed
  // Kept where the op failed, for signatures: what the oracle says and what the engine gave.
  reference::Tensor oracle, kernel;
  int64_t offset = 0;               // of a reduce-scatter's chunk: its first value in the flat sum
  std::optional<int> same_as_rank;  // bit-equal inputs and output: that rank's judgement holds
};

struct JudgeRequest {
  const reference::Oracle* oracle = nullptr;
  const EngineTrace* trace = nullptr;
  Contract contract;
  std::vector<KernelFacts> kernels;
  reference::Parallel degrees;
  std::vector<reference::Step> steps;
  std::vector<const reference::Node*> nodes;  // the scope, in data-flow order
  // Inputs of the scope that the harness gave the engine: whole (rank −1) or per rank.
  std::map<TapKey, TapValue> given;
  bool routing_forced = false;
  // Replaces the checkpoint's weights by the engine's own shards on that rank (substitution);
  // nullptr result: as in the checkpoint.
  std::function<const TensorSource*(int rank)> weights;
};

// In data-flow order, then rank, then step. Error: the trace contradicts the graph (a tap of
// another shape than the plan says is a failed judgement, not an error).
Result<std::vector<OpJudgement>> JudgeTrace(const JudgeRequest& request);

// Judges one node on one rank and step again under other weights: for substitution.
Result<OpJudgement> JudgeOne(const JudgeRequest& request, const reference::Node& node, int rank,
                             int step);

// A collective alone: what came of the ranks' parts.
struct CollectiveRequest {
  const reference::Node* node = nullptr;  // the kReduce; of a gather the op whose columns they are
  std::string kind = "all_reduce";        // "all_reduce", "reduce_scatter", "gather"
  std::vector<reference::Tensor> parts;   // each rank's partial sum, or its columns
  // all_reduce, gather: one for all ranks, or one a rank. reduce_scatter: rank r's chunk [count].
  // nullptr: that one was not given.
  std::vector<const TapValue*> outputs;
  // Order, wire, whether they are declared (reduce_exact), and what the result is rounded to.
  Contract contract;
  int64_t columns = 0;  // gather: of the whole; columns of the ranks behind it are padding
};
// One judgement for each output (rank −1 where one stands for all): bit for bit where the contract
// declares order and wire, and for gathers; else by the bound. Error: parts or kind that cannot be.
Result<std::vector<OpJudgement>> JudgeCollective(const CollectiveRequest& request);

// A tap as the harness sees it, in double.
reference::Tensor ToTensor(const TapValue& value);

// Of two whole tensors.
Metrics CompareWhole(const reference::Tensor& oracle, const reference::Tensor& kernel);
// Adds KL divergence (mean over rows, standard error) and top-1 agreement of logits.
void AddLogitMetrics(const reference::Tensor& oracle, const reference::Tensor& kernel,
                     Metrics* metrics);
// Joins the ranks' taps to the whole tensor (columns placed, partials summed, replicas rank 0's).
Result<reference::Tensor> JoinRanks(const reference::Oracle& oracle, const reference::Node& node,
                                    const EngineTrace& trace, const reference::Parallel& degrees,
                                    int step);

// Whether a passing cell proves little (numerics.md §3): mostly zeros, constant, saturated, not
// finite, or bounds above values. Decided for each op that the verdict rests on: the last one that
// is shown, and all with hidden inputs. Gathers and replicas are no evidence. Returns the reason,
// empty if it is sound. `output`: the last op's, empty if it could not be joined.
std::string Mistrust(const std::vector<OpJudgement>& judgements, const reference::Tensor& output);

}  // namespace assay::judge
