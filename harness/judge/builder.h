// Bounds add up term by term. Only for the files of this room that derive them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/judge/judge.h"

namespace assay::judge {

// The rounding of the output comes last, since it also rounds what went before.
class Builder {
 public:
  Builder(const reference::Evaluation& evaluation, const Contract& contract);

  double u() const { return u_; }
  void SetDepth(double depth, double c);
  // coefficient times a magnitude per element.
  void Add(std::string name, double coefficient, const std::vector<double>& magnitude,
           std::string derivation);
  void AddConstant(std::string name, double amount, std::string derivation);
  // An error that is not known to be finite leaves nothing to demand.
  void AddPropagated();
  void Unbind(size_t i);
  void Say(std::string name, std::string derivation);
  Tolerance Round(DType out);

 private:
  const reference::Evaluation& evaluation_;
  double u_;
  Tolerance tolerance_;
};

struct Depth {
  double d = 0;
  std::string text;
};
Depth DepthText(int64_t n, const Contract& contract, const KernelFacts* kernel);
// What one rounding to below the least normal number loses at most: half the smallest subnormal,
// or, flushed, all of it.
double LostBelowNormal(const Contract& contract);
// Products that are then summed. Sums of subnormals are exact, unless they are flushed as well.
void AddProducts(Builder& b, const Contract& contract, int64_t terms, int more);
// Largest finite |value|.
double LargestOf(const reference::Tensor* tensor, double otherwise);

// One function an op class.
void AddDot(Builder& b, const reference::Evaluation& e, const Contract& contract,
            const KernelFacts* kernel, int more, std::string_view why_more);
void AddLinear(Builder& b, const reference::Evaluation& e, const Contract& contract,
               const KernelFacts* kernel, std::span<const reference::Input> inputs);
void AddCombine(Builder& b, const reference::Evaluation& e, const Contract& contract);
void AddReduce(Builder& b, const reference::Evaluation& e, const Contract& contract, int ranks,
               std::span<const reference::Input> inputs);
void AddNorm(Builder& b, const reference::Evaluation& e, const Contract& contract,
             const KernelFacts* kernel, std::span<const reference::Input> inputs, double gain);
void AddRope(Builder& b, const reference::Evaluation& e, const Contract& contract);
void AddContext(Builder& b, const reference::Evaluation& e, const Contract& contract,
                const KernelFacts* kernel, std::span<const reference::Input> inputs);
void AddActivation(Builder& b, const reference::Node& node, const reference::Evaluation& e,
                   const Contract& contract, std::span<const reference::Input> inputs);
void AddRouterScores(Builder& b, const reference::Evaluation& e, const Contract& contract);
void AddRouterWeights(Builder& b, const reference::Evaluation& e, const Contract& contract,
                      std::span<const reference::Input> inputs);

}  // namespace assay::judge
