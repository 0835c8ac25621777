// What enters a product: an expert's rows, flushed subnormals, 8-bit activations.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "reference/model.h"

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
  const bool shown = weight->quantised() && given.codes != nullptr;
  const bool routed = inputs.size() > 1;  // an expert's gate or up: its tokens only
  if (!shown && !quantiser && !routed && !contract_.daz) {
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
  }
  return ops::Linear(x.Get(), *weight, biased ? &bias : nullptr, bounds_);
}

}  // namespace assay::reference
