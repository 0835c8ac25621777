// Tolerances: numerics.md §1.3, one function an op class. Every number that enters a bound is a
// unit roundoff, a depth or a stated error of the contract, and is written into the term's text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/judge/internal.h"
#include "harness/judge/judge.h"

namespace assay::judge {
namespace {

using reference::Evaluation;
using reference::Input;
using reference::Node;
using reference::Op;
using reference::Tensor;

// Bounds add up term by term; the rounding of the output comes last, since it also rounds what
// went before.
class Builder {
 public:
  Builder(const Evaluation& evaluation, const Contract& contract)
      : evaluation_(evaluation), u_(UnitRoundoff(contract.accumulator)) {
    tolerance_.bound.assign(evaluation.value.data.size(), 0.0);
    tolerance_.u_acc = u_;
  }

  double u() const { return u_; }
  void SetDepth(double depth, double c) {
    tolerance_.depth = depth;
    tolerance_.c = c;
  }

  void Add(std::string name, double coefficient, const std::vector<double>& magnitude,
           std::string derivation) {
    if (magnitude.empty() || coefficient == 0) return;
    for (size_t i = 0; i < tolerance_.bound.size(); ++i) {
      const double m = std::abs(magnitude[i]);
      if (std::isfinite(m)) tolerance_.bound[i] += coefficient * m;
    }
    tolerance_.terms.push_back({std::move(name), std::move(derivation)});
  }

  // An error that is not known to be finite leaves nothing to demand.
  void AddPropagated() {
    const std::vector<double>& error = evaluation_.propagated.data;
    Add("propagated", 1, error,
        "first-order effect of the bounds of inputs that the engine did not show");
    for (size_t i = 0; i < error.size(); ++i) {
      if (!std::isfinite(error[i])) Unbind(i);
    }
  }
  void Unbind(size_t i) { tolerance_.bound[i] = INFINITY; }
  void Say(std::string name, std::string derivation) {
    tolerance_.terms.push_back({std::move(name), std::move(derivation)});
  }

  void AddConstant(std::string name, double amount, std::string derivation) {
    if (amount == 0) return;
    for (double& b : tolerance_.bound) b += amount;
    tolerance_.terms.push_back({std::move(name), std::move(derivation)});
  }

  Tolerance Round(DType out) {
    const double u = UnitRoundoff(out), least = HalfSmallestSubnormal(out);
    for (size_t i = 0; i < tolerance_.bound.size(); ++i) {
      const double y = std::abs(evaluation_.value.data[i]);
      if (!std::isfinite(y)) continue;
      tolerance_.bound[i] += std::max(u * (y + tolerance_.bound[i]), least);
    }
    tolerance_.terms.push_back(
        {"out", fmt::format("max(u·(|y| + all above), h), u = {} ({}), h = {}", PowerText(u),
                            NameOf(out), PowerText(least))});
    return std::move(tolerance_);
  }

 private:
  const Evaluation& evaluation_;
  double u_;
  Tolerance tolerance_;
};

struct Depth {
  double d = 0;
  std::string text;
};

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

// Any dot product: c·u·G, and the products' gradual underflow. `more`: roundings after the sum.
void AddDot(Builder& b, const Evaluation& e, const Contract& contract, const KernelFacts* kernel,
            int more, std::string_view why_more) {
  const Depth depth = DepthText(e.terms, contract, kernel);
  const double c = depth.d + more;
  b.SetDepth(depth.d, c);
  b.Add("acc", c * b.u(), e.magnitude.data,
        fmt::format("c·u·G, c = d{} = {}, {}, u = {}, G = Σ|x||w|",
                    more > 0 ? fmt::format(" + {} ({})", more, why_more) : "", c, depth.text,
                    PowerText(b.u())));
  AddProducts(b, contract, e.terms, more);
}

void Linear(Builder& b, const Evaluation& e, const Contract& contract, const KernelFacts* kernel) {
  const bool bias = !e.function.data.empty();
  AddDot(b, e, contract, kernel, bias ? 1 : 0, "bias");
  if (bias) {
    b.Add("function", b.u() * (e.terms > 0 ? DepthText(e.terms, contract, kernel).d + 1 : 1),
          e.function.data, "c·u·|bias|: it may be what the sum starts from");
  }
}

// Where the sum of squares may leave the accumulator's range, the norm of a finite row is 0, or
// whatever an engine with another order of scaling makes of it: nothing is demanded there.
void SumOfSquaresInRange(Builder& b, const Evaluation& e, const Contract& contract, double d,
                         std::span<const Input> inputs) {
  const int64_t n = e.terms, columns = e.value.columns();
  if (inputs.empty() || inputs[0].value == nullptr || n <= 0 || columns % n != 0) return;
  const Tensor& x = *inputs[0].value;  // may be wider: kv_a has the rotated part behind
  if (x.rows() != e.value.rows() || x.columns() < columns) return;
  const double largest = LargestFinite(contract.accumulator);
  int64_t beyond = 0;
  for (int64_t row = 0; row < x.rows(); ++row) {
    for (int64_t first = 0; first < columns; first += n) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double v = x.data[static_cast<size_t>(row * x.columns() + first + i)];
        sum += v * v;
      }
      if (!(sum * (1 + d * b.u()) > largest)) continue;
      for (int64_t i = 0; i < n; ++i) b.Unbind(static_cast<size_t>(row * columns + first + i));
      beyond += n;
    }
  }
  if (beyond == 0) return;
  b.Say("range", fmt::format("Σx²·(1 + d·u) > {:.3g}, beyond the accumulator's range, for {} "
                             "elements: they are not judged",
                             largest, beyond));
}

void Norm(Builder& b, const Evaluation& e, const Contract& contract, const KernelFacts* kernel,
          std::span<const Input> inputs, double gain) {
  const Depth depth = DepthText(e.terms, contract, kernel);
  // 1 ulp is at most 2u. The mean's division and eps count half each, as the depth does: they are
  // under the root.
  const double c = depth.d / 2 + 1 + 2 * contract.rsqrt_ulp + 2;
  b.SetDepth(depth.d, c);
  b.Add("function", c * b.u(), e.value.data,
        fmt::format("(d/2 + 1 + 2·e(rsqrt) + 2)·u·|y|, e = {} ulp of at most 2u, {}, c = {}, u = "
                    "{}",
                    contract.rsqrt_ulp, depth.text, c, PowerText(b.u())));
  // x² underflows: the mean's relative error grows only where eps does not carry it, and then the
  // result is bounded by the product's own underflow.
  const double least = LostBelowNormal(contract);
  b.AddConstant("subnormal", (gain + 1) * least,
                fmt::format("h·max|w| + h: x·rsqrt underflows, then its product with w; max|w| = "
                            "{:.3g}, h = {}",
                            gain, PowerText(least)));
  SumOfSquaresInRange(b, e, contract, depth.d, inputs);
}

void Rope(Builder& b, const Evaluation& e, const Contract& contract) {
  const double table = UnitRoundoff(contract.rope_table);
  const double c = (contract.sin_ulp + 2) * b.u() + table;
  b.SetDepth(2, contract.sin_ulp + 2);
  b.Add("function", c, e.function.data,
        fmt::format("((e(sin) + 2)·u + u_table)·(|x1| + |x2|), e = {}, u = {}, u_table = {}",
                    contract.sin_ulp, PowerText(b.u()), PowerText(table)));
  AddProducts(b, contract, 2, 0);
}

// max − s_j before exp: its subtraction rounds by u·t, and exp turns that into a relative error.
// Beyond the accumulator's range exp is 0 and t no longer matters.
double ScoreSpread(const Contract& contract, std::span<const Input> inputs) {
  const double beyond = -std::log(HalfSmallestSubnormal(contract.accumulator));
  if (inputs.empty() || inputs[0].value == nullptr || inputs[0].value->shape.size() != 3) {
    return beyond;
  }
  const Tensor& scores = *inputs[0].value;
  const int64_t keys = scores.shape[2];
  double spread = 0;
  for (size_t row = 0; row + keys <= scores.data.size() && keys > 0; row += keys) {
    double low = INFINITY, high = -INFINITY;
    for (int64_t j = 0; j < keys; ++j) {
      const double s = scores.data[row + j];
      if (!std::isfinite(s)) continue;
      low = std::min(low, s);
      high = std::max(high, s);
    }
    if (high >= low) spread = std::max(spread, high - low);
  }
  return std::min(spread, beyond);
}

void Context(Builder& b, const Evaluation& e, const Contract& contract, const KernelFacts* kernel,
             std::span<const Input> inputs) {
  const Depth depth = DepthText(e.terms, contract, kernel);
  const double spread = ScoreSpread(contract, inputs);
  const double softmax = 2 * (spread + 2 * contract.exp_ulp) + depth.d + 2 * contract.div_ulp;
  const double c = softmax + depth.d;
  b.SetDepth(depth.d, c);
  const std::vector<double>& weight = e.function.data.empty() ? e.magnitude.data : e.function.data;
  b.Add("function", softmax * b.u(), weight,
        fmt::format("(2·(max t + 2·e(exp)) + d + 2·e(div))·u·Σ p|v|, t = max − s up to {:.3g}, "
                    "e(exp) = {}, e(div) = {} ulp of at most 2u, {}, u = {}",
                    spread, contract.exp_ulp, contract.div_ulp, depth.text, PowerText(b.u())));
  b.Add("acc", depth.d * b.u(), weight,
        fmt::format("d·u·Σ p|v|, {}, u = {}", depth.text, PowerText(b.u())));
  if (contract.probs != contract.accumulator) {
    const double p = UnitRoundoff(contract.probs);
    b.Add("probs", p, weight, fmt::format("u_p·Σ p|v|, u_p = {}", PowerText(p)));
  }
  AddProducts(b, contract, e.terms, 0);
  // A probability below the least normal number may be lost whole with exp, and is rounded twice
  // more, by the division and to its type.
  const double least = SmallestNormal(contract.accumulator);
  const double lost = least + LostBelowNormal(contract) + HalfSmallestSubnormal(contract.probs);
  const double v = LargestOf(inputs.size() > 1 ? inputs[1].value : nullptr, 1);
  b.AddConstant("subnormal", static_cast<double>(e.terms) * lost * v,
                fmt::format("n·(h + h_div + h_p)·max|v|, n = {}, h = {}: p underflows with exp, "
                            "max|v| = {:.3g}",
                            e.terms, PowerText(least), v));
}

void Activation(Builder& b, const Evaluation& e, const Contract& contract,
                std::span<const Input> inputs) {
  // silu is g / (1 + exp(−g)) or g·sigmoid(g); whichever states the larger error.
  const double divided = 2 * contract.exp_ulp + 1 + 2 * contract.div_ulp;
  const double multiplied = 2 * contract.sigmoid_ulp + 1;
  const double c = std::max(divided, multiplied) + 1;
  b.SetDepth(0, c);
  const std::vector<double>& f = e.function.data.empty() ? e.value.data : e.function.data;
  b.Add("function", c * b.u(), f,
        fmt::format("(max(2·e(exp) + 1 + 2·e(div), 2·e(sigmoid) + 1) + 1)·u·|f|, e = {}, {}, {} "
                    "ulp of at most 2u, c = {}, u = {}",
                    contract.exp_ulp, contract.div_ulp, contract.sigmoid_ulp, c, PowerText(b.u())));
  // Where exp(−g) overflows, silu(g) is lost whole: below |g|·least normal, |g| < −ln(least).
  const double least = SmallestNormal(contract.accumulator);
  const double up = std::max(1.0, LargestOf(inputs.size() > 1 ? inputs[1].value : nullptr, 1));
  b.AddConstant(
      "subnormal", -2 * std::log(least) * least * up,
      fmt::format("2·ln(1/h)·h·max|up|, h = {}: silu underflows with exp", PowerText(least)));
  // silu(−inf) is −inf·0 or −inf/inf: NaN, an infinity or 0, as the formula is arranged.
  if (inputs.empty() || inputs[0].value == nullptr) return;
  const std::vector<double>& gate = inputs[0].value->data;
  int64_t beyond = 0;
  for (size_t i = 0; i < gate.size() && gate.size() == e.value.data.size(); ++i) {
    if (gate[i] != -INFINITY) continue;
    b.Unbind(i);
    ++beyond;
  }
  if (beyond > 0) b.Say("range", fmt::format("gate is -inf for {} elements", beyond));
}

void RouterScores(Builder& b, const Evaluation& e, const Contract& contract) {
  const double sigmoid = 2 * contract.sigmoid_ulp;
  const double n = static_cast<double>(e.terms);
  if (e.terms > 1) {  // softmax over n experts
    const double spread = -std::log(HalfSmallestSubnormal(contract.accumulator));
    const double c = 2 * (spread + 2 * contract.exp_ulp) + n + 2 * contract.div_ulp;
    b.SetDepth(n, c);
    b.Add("function", c * b.u(), e.value.data,
          fmt::format("(2·(t + 2·e(exp)) + n + 2·e(div))·u·|y|, t up to {:.3g}, n = {}, e(exp) = "
                      "{}, u = {}",
                      spread, n, contract.exp_ulp, PowerText(b.u())));
  } else {
    b.SetDepth(0, sigmoid);
    b.Add("function", sigmoid * b.u(), e.value.data,
          fmt::format("2·e(sigmoid)·u·|y|, e = {} ulp of at most 2u, u = {}", contract.sigmoid_ulp,
                      PowerText(b.u())));
  }
  b.AddConstant("subnormal", SmallestNormal(contract.accumulator),
                "least normal number: where exp overflows the score is 0");
}

// The factor behind the shares, from w = f·s / Σs, or f·s without renormalisation; at least 1. What
// keeps Σs from being 0 may be left out: where a share of s ≥ least subnormal is itself subnormal,
// Σs is above 2^-23, which that constant does not change.
double ScalingFactor(const Evaluation& e, std::span<const Input> inputs) {
  double factor = 1;
  if (inputs.size() < 2 || inputs[0].value == nullptr || inputs[1].value == nullptr) return factor;
  const Tensor &scores = *inputs[0].value, &ids = *inputs[1].value;
  const int64_t k = e.value.columns(), experts = scores.columns();
  if (ids.data.size() != e.value.data.size() || scores.rows() < e.value.rows()) return factor;
  for (int64_t row = 0; row < e.value.rows(); ++row) {
    std::vector<double> chosen;
    for (int64_t i = 0; i < k; ++i) {
      const double id = ids.data[static_cast<size_t>(row * k + i)];
      if (!(id >= 0 && id < static_cast<double>(experts))) return factor;
      chosen.push_back(scores.data[static_cast<size_t>(row * experts) + static_cast<size_t>(id)]);
    }
    double sum = 1;
    if (e.terms > 0) sum = std::accumulate(chosen.begin(), chosen.end(), 0.0);
    for (int64_t i = 0; i < k; ++i) {
      const double f = std::abs(e.value.data[static_cast<size_t>(row * k + i)]) * sum / chosen[i];
      if (std::isfinite(f)) factor = std::max(factor, f);
    }
  }
  return factor;
}

void RouterWeights(Builder& b, const Evaluation& e, const Contract& contract,
                   std::span<const Input> inputs) {
  const double n = static_cast<double>(std::max<int64_t>(e.terms, 1));
  // Positive terms: n roundings of the sum, epsilon, division, scaling factor and its own rounding.
  const double c = n + 1 + 2 * contract.div_ulp + 2;
  b.SetDepth(n, c);
  b.Add("function", c * b.u(), e.value.data,
        fmt::format("(n + 1 + 2·e(div) + 2)·u·|w|, n = {}, e(div) = {}, c = {}, u = {}", n,
                    contract.div_ulp, c, PowerText(b.u())));
  const double least = LostBelowNormal(contract), factor = ScalingFactor(e, inputs);
  const double divided = std::max(1.0, 2 * contract.div_ulp);  // an ulp is 2h there
  b.AddConstant("subnormal", (divided * factor + 1) * least,
                fmt::format("max(1, 2·e(div))·h·f + h: the share underflows, then its product with "
                            "the scaling factor f = {:.6g}; h = {}",
                            factor, PowerText(least)));
}

void Combine(Builder& b, const Evaluation& e, const Contract& contract) {
  // Experts are added one after the other whatever the lanes of a dot product are.
  const double n = static_cast<double>(e.terms);
  b.SetDepth(n, n);
  b.Add("acc", n * b.u(), e.magnitude.data,
        fmt::format("c·u·Σ|w||y|, c = d = n = {}, u = {}", n, PowerText(b.u())));
  AddProducts(b, contract, e.terms, 0);
}

void Reduce(Builder& b, const Evaluation& e, const Contract& contract, int ranks,
            std::span<const Input> inputs) {
  const double d = std::max(ranks - 1, 0);
  b.SetDepth(d, d);
  b.Add("acc", d * b.u(), e.magnitude.data,
        fmt::format("c·u·Σ|p|, c = d = ranks − 1 = {}, u = {}", d, PowerText(b.u())));
  if (contract.ftz) {
    const double least = LostBelowNormal(contract);
    b.AddConstant("subnormal", d * least,
                  fmt::format("d·h, h = {}: flushed sums", PowerText(least)));
  }
  AddWire(contract, ranks, inputs, e, [&](const std::vector<double>& amount, std::string text) {
    b.Add("wire", 1, amount, std::move(text));
  });
}

}  // namespace

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
      Norm(b, evaluation, contract, kernel, inputs, gain);
      break;
    case Op::kLinear:
      Linear(b, evaluation, contract, kernel);
      break;
    case Op::kRope:
      Rope(b, evaluation, contract);
      break;
    case Op::kScores:
      AddDot(b, evaluation, contract, kernel, 2, "the softmax scale and its own rounding");
      break;
    case Op::kContext:
      Context(b, evaluation, contract, kernel, inputs);
      break;
    case Op::kActivation:
      Activation(b, evaluation, contract, inputs);
      break;
    case Op::kRouterScores:
      RouterScores(b, evaluation, contract);
      break;
    case Op::kRouterWeights:
      RouterWeights(b, evaluation, contract, inputs);
      break;
    case Op::kCombine:
      Combine(b, evaluation, contract);
      break;
    case Op::kReduce:
      Reduce(b, evaluation, contract, ranks, inputs);
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
