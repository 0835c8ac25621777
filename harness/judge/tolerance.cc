// Tolerances: numerics.md §1.3. Every number that enters a bound is a unit roundoff, a depth or a
// stated error of the contract, and is written into the term's text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/judge/builder.h"
#include "harness/judge/internal.h"

namespace assay::judge {

using reference::Evaluation;
using reference::Input;
using reference::Node;
using reference::Op;
using reference::Tensor;

Builder::Builder(const Evaluation& evaluation, const Contract& contract)
    : evaluation_(evaluation), u_(UnitRoundoff(contract.accumulator)) {
  tolerance_.bound.assign(evaluation.value.data.size(), 0.0);
  tolerance_.u_acc = u_;
}

void Builder::SetDepth(double depth, double c) {
  tolerance_.depth = depth;
  tolerance_.c = c;
}

void Builder::Add(std::string name, double coefficient, const std::vector<double>& magnitude,
                  std::string derivation) {
  if (magnitude.empty() || coefficient == 0) return;
  for (size_t i = 0; i < tolerance_.bound.size(); ++i) {
    const double m = std::abs(magnitude[i]);
    if (std::isfinite(m)) tolerance_.bound[i] += coefficient * m;
  }
  tolerance_.terms.push_back({std::move(name), std::move(derivation)});
}

void Builder::AddConstant(std::string name, double amount, std::string derivation) {
  if (amount == 0) return;
  for (double& b : tolerance_.bound) b += amount;
  tolerance_.terms.push_back({std::move(name), std::move(derivation)});
}

void Builder::AddPropagated() {
  const std::vector<double>& error = evaluation_.propagated.data;
  Add("propagated", 1, error,
      "first-order effect of the bounds of inputs that the engine did not show");
  for (size_t i = 0; i < error.size(); ++i) {
    if (!std::isfinite(error[i])) Unbind(i);
  }
}

void Builder::Unbind(size_t i) { tolerance_.bound[i] = INFINITY; }

void Builder::Say(std::string name, std::string derivation) {
  tolerance_.terms.push_back({std::move(name), std::move(derivation)});
}

// What is rounded is some v with |v| ≤ |y| + all above; to nearest, it moves by half a unit in the
// last place of v at most, and that grows with |v|.
Tolerance Builder::Round(DType out) {
  const double u = UnitRoundoff(out), least = HalfSmallestSubnormal(out);
  for (size_t i = 0; i < tolerance_.bound.size(); ++i) {
    const double y = std::abs(evaluation_.value.data[i]);
    const double largest = y + tolerance_.bound[i];
    if (!std::isfinite(largest)) continue;
    const double half_ulp = largest > 0 ? std::ldexp(u, std::ilogb(largest)) : 0;
    tolerance_.bound[i] += std::max(half_ulp, least);
  }
  tolerance_.terms.push_back(
      {"out", fmt::format("max(u·2^floor(log2(|y| + all above)), h): half a unit in the last place "
                          "of the largest value that may have been rounded, u = {} ({}), h = {}",
                          PowerText(u), NameOf(out), PowerText(least))});
  return std::move(tolerance_);
}

Depth DepthText(int64_t n, const Contract& contract, const KernelFacts* kernel) {
  const int lanes = kernel != nullptr ? kernel->lanes : contract.lanes;
  const int extra = kernel != nullptr ? kernel->extra : contract.extra;
  Depth depth{DepthOf(n, lanes, extra), ""};
  if (lanes <= 0 || depth.d == static_cast<double>(n + extra)) {
    depth.text = fmt::format("d = n + extra = {} + {} = {}", n, extra, depth.d);
  } else {
    depth.text = fmt::format("d = ceil({}/{}) + ceil(log2 {}) + {} + 1 = {}", n, lanes, lanes,
                             extra, depth.d);
  }
  return depth;
}

// What one rounding to below the least normal number loses at most: half the smallest subnormal,
// or, flushed, all of it.
double LostBelowNormal(const Contract& contract) {
  return contract.ftz ? SmallestNormal(contract.accumulator)
                      : HalfSmallestSubnormal(contract.accumulator);
}

// Products that are then summed. Sums of subnormals are exact, unless they are flushed as well.
void AddProducts(Builder& b, const Contract& contract, int64_t terms, int more) {
  const double each = LostBelowNormal(contract) * (contract.ftz ? 2 : 1);
  b.AddConstant(
      "subnormal", static_cast<double>(terms + more) * each,
      fmt::format("n·h, n = {}{}, h = {}{}", terms, more > 0 ? fmt::format(" + {}", more) : "",
                  PowerText(each), contract.ftz ? " (flushed products and sums)" : ""));
}

double LargestOf(const Tensor* tensor, double otherwise) {
  if (tensor == nullptr) return otherwise;
  double largest = 0;
  for (const double v : tensor->data) {
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  }
  return largest;
}

double DepthOf(int64_t n, int lanes, int extra) {
  // In order, one accumulator: n − 1 additions and the product.
  const double sequential = static_cast<double>(n + extra);
  if (lanes <= 0) return sequential;
  const double folded =
      std::ceil(static_cast<double>(n) / lanes) + std::ceil(std::log2(lanes)) + extra + 1;
  // More lanes than terms: most lanes add nothing but zeros, which is exact.
  return std::min(sequential, folded);
}

Tolerance Derive(const Node& node, const Evaluation& evaluation, DType out,
                 const Contract& contract, const KernelFacts* kernel, int ranks,
                 std::span<const Input> inputs, double gain) {
  Builder b(evaluation, contract);
  switch (node.op) {
    case Op::kEmbed:
    case Op::kRouterIds:
      break;  // exact
    case Op::kRmsNorm:
    case Op::kHeadNorm:
      AddNorm(b, evaluation, contract, kernel, inputs, gain);
      break;
    case Op::kLinear:
      AddLinear(b, evaluation, contract, kernel, inputs);
      break;
    case Op::kRope:
      AddRope(b, evaluation, contract);
      break;
    case Op::kScores:
      AddDot(b, evaluation, contract, kernel, 2, "the softmax scale and its own rounding");
      break;
    case Op::kContext:
      AddContext(b, evaluation, contract, kernel, inputs);
      break;
    case Op::kActivation:
      AddActivation(b, node, evaluation, contract, inputs);
      break;
    case Op::kRouterScores:
      AddRouterScores(b, evaluation, contract);
      break;
    case Op::kRouterWeights:
      AddRouterWeights(b, evaluation, contract, inputs);
      break;
    case Op::kCombine:
      AddCombine(b, evaluation, contract);
      break;
    case Op::kReduce:
      AddReduce(b, evaluation, contract, ranks, inputs);
      break;
    case Op::kAdd:
      b.SetDepth(1, 1);
      b.Add("acc", b.u(), evaluation.value.data,
            fmt::format("u·|a + b|, u = {}", PowerText(b.u())));
      if (contract.ftz) {
        b.AddConstant("subnormal", LostBelowNormal(contract), "a sum that is flushed");
      }
      break;
  }
  // The oracle's own sums in double: only seen against a contract of that precision.
  if (b.u() <= UnitRoundoff(DType::kF64)) {
    const double n = static_cast<double>(std::max<int64_t>(evaluation.terms, 1));
    const auto& scale =
        evaluation.magnitude.data.empty() ? evaluation.value.data : evaluation.magnitude.data;
    b.Add("oracle", n * UnitRoundoff(DType::kF64), scale,
          fmt::format("n·u·G of the oracle's own sum, n = {}", n));
  }
  b.AddPropagated();
  return b.Round(out);
}

}  // namespace assay::judge
