// Tolerances of norms, rotations and elementary functions (numerics.md §1.3 "Other ops").
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/judge/builder.h"
#include "harness/judge/internal.h"

namespace assay::judge {

using reference::Evaluation;
using reference::Input;
using reference::Node;
using reference::Tensor;

namespace {

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

}  // namespace

void AddNorm(Builder& b, const Evaluation& e, const Contract& contract, const KernelFacts* kernel,
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

void AddRope(Builder& b, const Evaluation& e, const Contract& contract) {
  const double table = UnitRoundoff(contract.rope_table);
  const double c = (contract.sin_ulp + 2) * b.u() + table;
  b.SetDepth(2, contract.sin_ulp + 2);
  b.Add("function", c, e.function.data,
        fmt::format("((e(sin) + 2)·u + u_table)·(|x1| + |x2|), e = {}, u = {}, u_table = {}",
                    contract.sin_ulp, PowerText(b.u()), PowerText(table)));
  AddProducts(b, contract, 2, 0);
}

void AddContext(Builder& b, const Evaluation& e, const Contract& contract,
                const KernelFacts* kernel, std::span<const Input> inputs) {
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

void AddActivation(Builder& b, const Node& node, const Evaluation& e, const Contract& contract,
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
  if (node.tanhs > 0) {
    // β·tanh(x / β): the quotient, or a product with a rounded reciprocal, whose relative error
    // tanh passes on at most whole; tanh's own; the product with β, and one more factor.
    const double each = 2 * contract.tanh_ulp + 2 * contract.div_ulp + 3;
    b.Add("tanh", node.tanhs * each * b.u(), f,
          fmt::format("{}·(2·e(tanh) + 2·e(div) + 3)·u·|f|, e = {}, {} ulp of at most 2u, u = {}",
                      node.tanhs, contract.tanh_ulp, contract.div_ulp, PowerText(b.u())));
  }
  // Where exp(−g) overflows, silu(g) is lost whole: below |g|·least normal, |g| < −ln(least).
  const double least = SmallestNormal(contract.accumulator);
  const double up = std::max(1.0, LargestOf(inputs.size() > 1 ? inputs[1].value : nullptr, 1));
  b.AddConstant(
      "subnormal", -2 * std::log(least) * least * up,
      fmt::format("2·ln(1/h)·h·max|up|, h = {}: silu underflows with exp", PowerText(least)));
  // silu(−inf) is −inf·0 or −inf/inf: NaN, an infinity or 0, as the formula is arranged. SiTU's is
  // −β·0.
  if (node.tanhs > 0 || inputs.empty() || inputs[0].value == nullptr) return;
  const std::vector<double>& gate = inputs[0].value->data;
  int64_t beyond = 0;
  for (size_t i = 0; i < gate.size() && gate.size() == e.value.data.size(); ++i) {
    if (gate[i] != -INFINITY) continue;
    b.Unbind(i);
    ++beyond;
  }
  if (beyond > 0) b.Say("range", fmt::format("gate is -inf for {} elements", beyond));
}

void AddRouterScores(Builder& b, const Evaluation& e, const Contract& contract) {
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

void AddRouterWeights(Builder& b, const Evaluation& e, const Contract& contract,
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
}  // namespace assay::judge
