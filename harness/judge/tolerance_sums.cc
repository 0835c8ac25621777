// Tolerances of sums: dot products, experts, ranks (numerics.md §1.3).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/judge/builder.h"
#include "harness/judge/internal.h"

namespace assay::judge {

using reference::Evaluation;
using reference::Input;

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

void AddLinear(Builder& b, const Evaluation& e, const Contract& contract, const KernelFacts* kernel,
               std::span<const Input> inputs) {
  const bool bias = !e.function.data.empty();
  const bool codes = !inputs.empty() && inputs[0].codes != nullptr;
  const bool quantised = codes || contract.QuantiserOf(contract.act).has_value();
  // The products by the activation's and the weight's scale; a kernel counts its own in `extra`.
  const bool powers = !codes && contract.VariantOf(contract.act).has_value();
  const int scales = (quantised || powers) && kernel == nullptr ? 2 : 0;
  std::string why = bias ? "bias" : "";
  if (scales > 0) why += fmt::format("{}two products by scales", bias ? ", " : "");
  AddDot(b, e, contract, kernel, scales + (bias ? 1 : 0), why);
  if (quantised && !codes) {
    b.Add("x_scale", kScaleUlps * 2 * b.u(), e.magnitude.data,
          fmt::format("{}·2u·G: the engine does not show its activations' scales, and each may be "
                      "{} ulp off",
                      kScaleUlps, kScaleUlps));
  }
  if (bias) {
    b.Add("function", b.u() * (e.terms > 0 ? DepthText(e.terms, contract, kernel).d + 1 : 1),
          e.function.data, "c·u·|bias|: it may be what the sum starts from");
  }
}

void AddCombine(Builder& b, const Evaluation& e, const Contract& contract) {
  // Experts are added one after the other whatever the lanes of a dot product are.
  const double n = static_cast<double>(e.terms);
  b.SetDepth(n, n);
  b.Add("acc", n * b.u(), e.magnitude.data,
        fmt::format("c·u·Σ|w||y|, c = d = n = {}, u = {}", n, PowerText(b.u())));
  AddProducts(b, contract, e.terms, 0);
}

void AddReduce(Builder& b, const Evaluation& e, const Contract& contract, int ranks,
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

}  // namespace assay::judge
