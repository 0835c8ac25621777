// What the files of this room share; nobody else includes it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/judge/judge.h"

namespace assay::judge {

// "2^-24", "3·2^-25" or the number itself.
std::string PowerText(double value);
// Least normal and largest finite number of a floating type.
double SmallestNormal(DType dtype);
double LargestFinite(DType dtype);

// How far an activation's scale may be from fl(amax / 127), in units of the last place of fp32: a
// division and a product by fl(1/127) may differ by that much. How far x / s may be from a tie for
// the neighbour's code to be right as well (numerics.md §1.2).
inline constexpr int kScaleUlps = 1;
inline constexpr int kTieUlps = 2;

// What rounding on the wire may do to a sum of `ranks` partials (numerics.md §1.3 "wire"). Calls
// `add` with an amount per element, or not at all where the wire is the accumulator's type.
void AddWire(const Contract& contract, int ranks, std::span<const reference::Input> inputs,
             const reference::Evaluation& evaluation,
             const std::function<void(const std::vector<double>&, std::string)>& add);

// What is demanded of each element of an op's output.
struct Demand {
  const reference::Evaluation* evaluation = nullptr;
  Tolerance tolerance;
  DType out = DType::kF32;
  DType accumulator = DType::kF32;
  // Where strict[i], the kernel must equal want[i] exactly (empty: nowhere).
  std::vector<uint8_t> strict;
  std::vector<double> want;
  std::string strict_mode;  // "exact" or "bitwise"
};
// A failure of which there are no numbers: another shape or type.
void Fail(OpJudgement* j, std::string reason);
// Fills the numbers of a judgement: ratios, first, wrong, metrics, condition, pass, mode, reason.
void Compare(const Demand& demand, const reference::Tensor& kernel, OpJudgement* judgement);

// Exact models of ops whose every rounding is known; false: only a bound holds.
// A sum over ranks only where the contract declares its order and wire, or nothing is open.
bool DemandStrict(const reference::Node& node, std::span<const reference::Input> inputs,
                  const Contract& contract, bool inputs_shown, Demand* demand);

// 8-bit activations of one linear op on one rank: what it read, and what the engine shows.
struct ActivationCase {
  const reference::Tensor* x = nullptr;      // the op's own rows
  const reference::Tensor* error = nullptr;  // of x, where the oracle made it
  ActQuantiser quantiser;
};
// Scales against the oracle's, in fp32's last place. Error: x cannot be cut into such groups.
Status JudgeScales(const ActivationCase& given, const reference::Tensor& scales, OpJudgement* j);
// Codes against x over the engine's own scales, by the contract's rule. The same error.
Status JudgeCodes(const ActivationCase& given, const reference::Tensor& codes,
                  const reference::Tensor& scales, OpJudgement* j);

// kRouterIds: sets against sets, with margins.
struct IdsRequest {
  const reference::Evaluation* evaluation = nullptr;
  const reference::Tensor* scores = nullptr;        // that the choice was made from
  const reference::Tensor* scores_error = nullptr;  // nullptr: they are the engine's own
  double bias_max = 0;                              // largest |correction bias|
  double u_acc = 0;
  bool forced = false;  // any difference is wrong
};
// Tolerance of the deciding score in a row.
double ScoreTolerance(const IdsRequest& request, int64_t row);
// False: some row is no legal choice at all, and nothing can be computed from it.
bool CompareIds(const IdsRequest& request, const reference::Tensor& kernel, OpJudgement* judgement);

// Error of the kernel over that of a plain fp32 evaluation in order, both against the oracle;
// nullopt: the op is too large or not of a kind that is evaluated plainly.
bool IsPlain(reference::Op op);  // there is such an evaluation
std::optional<double> ThreeWay(const reference::Oracle& oracle, const reference::Node& node,
                               std::span<const reference::Input> inputs,
                               const reference::Where& where, const Contract& contract,
                               const TensorSource* weights, const reference::Tensor& value,
                               const reference::Tensor& kernel);

}  // namespace assay::judge
