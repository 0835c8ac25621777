// What enters a product: an expert's rows, flushed subnormals, 8-bit activations.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "reference/model.h"
#include "reference/quantisers/variants.h"

namespace assay::reference {
namespace {

// Ties nearer than this in units of the last place may go either way: one rounding of the scale and
// one of the quotient (numerics.md §1.2).
constexpr double kAmbiguousUlps = 2;

Tensor Gather(const Tensor& from, const std::vector<int64_t>& rows) {
  const int64_t columns = from.columns();
  Tensor to = ops::Zeros({static_cast<int64_t>(rows.size()), columns});
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto at = from.data.begin() + rows[i] * columns;
    std::copy(at, at + columns, to.data.begin() + static_cast<int64_t>(i) * columns);
  }
  return to;
}

// Code times scale.
void Expand(const Tensor& codes, const Tensor& scales, Tensor* x) {
  *x = codes;
  const auto group = static_cast<size_t>(codes.columns() / scales.columns());
  for (size_t i = 0; i < x->data.size(); ++i) x->data[i] *= scales.data[i / group];
}

// The input of one product, with the memory of what was made of it.
struct Operand {
  Tensor value, error;
  bool has_error = false;
  Input Get() const { return {&value, has_error ? &error : nullptr}; }
};

// Codes that somebody shows: code times scale, in place of the value.
Status TakeCodes(const Node& node, const Codes& shown, Operand* x) {
  const int64_t rows = x->value.rows(), k = x->value.columns();
  const int64_t group = shown.group > 0 ? shown.group : k;
  const auto fits = [&](const Tensor* tensor, int64_t columns) {
    return tensor != nullptr && tensor->rows() == rows && tensor->columns() == columns &&
           static_cast<int64_t>(tensor->data.size()) == rows * columns;
  };
  if (k % group != 0 || !fits(shown.codes, k) || !fits(shown.scales, k / group)) {
    return Error{
        fmt::format("{}: activation codes must be [{}, {}] and their scales [{}, {}], one "
                    "for each {} elements",
                    node.tap, rows, k, rows, k / group, group)};
  }
  Expand(*shown.codes, *shown.scales, &x->value);
  x->has_error = false;
  return Ok();
}

// The oracle's own codes. What is uncertain about them is an error of the input: a step of the
// scale where the rounding may go either way; where the input had an error, that, what it makes of
// the scale, and a step.
Status MakeCodes(const Node& node, const ActQuantiser& quantiser, bool bounds, Operand* x) {
  auto made = Quantise(x->value, quantiser);
  if (!made) return Error{fmt::format("{}: {}", node.tap, made.error().message)};
  const auto group = static_cast<size_t>(made->codes.columns() / made->scales.columns());
  Expand(made->codes, made->scales, &x->value);
  if (!bounds) return Ok();
  Tensor error = ops::Zeros(x->value.shape);
  bool any = false;
  for (size_t begin = 0; begin < error.data.size(); begin += group) {
    const double scale = made->scales.data[begin / group];
    double largest = 0;
    for (size_t i = begin; x->has_error && i < begin + group; ++i) {
      largest = std::max(largest, x->error.data[i]);
    }
    for (size_t i = begin; i < begin + group; ++i) {
      const double own = x->has_error ? x->error.data[i] : 0;
      double sum = own + largest / 127 * std::fabs(made->codes.data[i]);
      if (own > 0 || made->tie_ulps.data[i] <= kAmbiguousUlps) sum += scale;
      error.data[i] = sum;
      any = any || sum > 0;
    }
  }
  x->has_error = any;
  x->error = std::move(error);
  return Ok();
}

// A group's scale if its largest size were this.
double ScaleAt(double amax, const ActVariant& variant) {
  Tensor x = ops::Zeros({1, variant.group});
  x.data[0] = RoundTo(amax, DType::kF32);
  const auto made = QuantiseAs(x, DType::kF32, variant);
  return made ? made->scales.data[0] : std::numeric_limits<double>::infinity();
}

// How far a value of this size can be from what its code stands for, whatever power of two between
// `low` and `high` its group has: half a step of normal codes (at most size/4 of E2M1, size/16 of
// E4M3) or of subnormal ones, what lies beyond the largest code, and all of it under the least
// scale, where libraries differ.
double CodeError(double size, double low, double high, ActElement element) {
  const bool e2m1 = element == ActElement::kE2M1;
  const double step = std::max(size / (e2m1 ? 4 : 16), high * (e2m1 ? 0x1p-2 : 0x1p-10));
  const double beyond = size - low * (e2m1 ? 6 : 448);
  constexpr double kLeastScale = 0x1p-127;
  return std::max({step, beyond, low <= kLeastScale ? size + step : 0.0});
}

// As MakeCodes, by a library's variant. It leaves nothing open: without an error of the input there
// is none here. With one, it moves the scale's exponent, and the code as far as both sides' own
// errors reach. A group with a value that is not finite is NaN, whatever libraries make of it.
Status MakeVariant(const Node& node, const ActVariant& variant, bool bounds, Operand* x) {
  Tensor given = x->value;
  const auto group = static_cast<size_t>(variant.group);
  std::vector<size_t> lost;
  for (double& value : given.data) value = RoundTo(value, DType::kF32);
  for (size_t i = 0; i < given.data.size(); ++i) {
    if (std::isfinite(given.data[i])) continue;
    if (lost.empty() || lost.back() != i / group) lost.push_back(i / group);
    given.data[i] = 0;
  }
  auto made = QuantiseAs(given, DType::kF32, variant);
  if (!made) return Error{fmt::format("{}: {}", node.tap, made.error().message)};
  if (bounds && x->has_error) {
    for (size_t begin = 0; begin < given.data.size(); begin += group) {
      double amax = 0, largest = 0;
      for (size_t i = begin; i < begin + group; ++i) {
        amax = std::max(amax, std::fabs(given.data[i]));
        largest = std::max(largest, x->error.data[i]);
      }
      if (largest == 0) continue;
      const double low = ScaleAt(std::max(amax - largest, 0.0), variant);
      const double high = ScaleAt(amax + largest, variant);
      for (size_t i = begin; i < begin + group; ++i) {
        double& error = x->error.data[i];
        if (error == 0 && low == high) continue;
        const double size = std::fabs(given.data[i]) + error;
        error += std::fabs(made->values.data[i] - given.data[i]) +
                 CodeError(size, low, high, variant.element);
      }
    }
  }
  x->value = std::move(made->values);
  for (const size_t at : lost) {
    const auto begin = x->value.data.begin() + static_cast<int64_t>(at * group);
    std::fill(begin, begin + variant.group, std::numeric_limits<double>::quiet_NaN());
  }
  return Ok();
}

}  // namespace

Result<Evaluation> Evaluator::Linear(const Node& node, std::span<const Input> inputs) const {
  const Parameter& parameter = ParameterOf(node);
  auto weight = model_.weights->Rows(parameter, where_, contract_, shard_);
  if (!weight) return weight.error();
  std::vector<double> bias;
  // A row-parallel bias counts once, on rank 0.
  const bool biased = parameter.has_bias && (!node.cuts_contraction || where_.rank <= 0);
  if (biased) {
    auto values = model_.weights->Vector(parameter, "bias", where_, shard_);
    if (!values) return values.error();
    bias = std::move(*values);
  }
  const Input& given = inputs[0];
  const auto quantiser =
      weight->quantised() ? contract_.QuantiserOf(contract_.act) : std::optional<ActQuantiser>();
  const auto named =
      weight->quantised() ? contract_.VariantOf(contract_.act) : std::optional<std::string>();
  const ActVariant* variant = named ? FindActVariant(*named) : nullptr;
  if (named && variant == nullptr) {
    return Error{
        fmt::format("{}: the contract's quantiser {} is not known to the oracle", node.tap, *named),
        ErrorKind::kUnsupported};
  }
  const bool shown = weight->quantised() && given.codes != nullptr;
  const bool routed = inputs.size() > 1;  // an expert's gate or up: its tokens only
  if (!shown && !quantiser && variant == nullptr && !routed && !contract_.daz) {
    return ops::Linear(given, *weight, biased ? &bias : nullptr, bounds_);
  }
  Operand x = {*given.value, {}, given.error != nullptr};
  if (x.has_error) x.error = *given.error;
  if (routed) {
    const std::vector<int64_t> rows = ops::RoutedRows(*inputs[1].value, node.expert);
    x.value = Gather(x.value, rows);
    if (x.has_error) x.error = Gather(x.error, rows);
  }
  if (contract_.daz) {
    for (double& value : x.value.data) {
      if (std::fabs(value) < double{std::numeric_limits<float>::min()}) value = 0;
    }
  }
  if (shown) {
    if (const Status status = TakeCodes(node, *given.codes, &x); !status) return status.error();
  } else if (quantiser) {
    if (const Status status = MakeCodes(node, *quantiser, bounds_, &x); !status) {
      return status.error();
    }
  } else if (variant != nullptr) {
    if (const Status status = MakeVariant(node, *variant, bounds_, &x); !status) {
      return status.error();
    }
  }
  return ops::Linear(x.Get(), *weight, biased ? &bias : nullptr, bounds_);
}

}  // namespace assay::reference
