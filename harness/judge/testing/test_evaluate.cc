// The test model's ops in double.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/judge/testing/test_model.h"

namespace assay::testing {
namespace {

using reference::Evaluation;
using reference::Input;
using reference::Node;
using reference::Op;
using reference::Tensor;

// Largest power of two that divides all values.
double UnitOf(const double* values, int64_t n) {
  double unit = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (values[i] == 0) continue;
    if (!std::isfinite(values[i])) return 0;
    double u = std::ldexp(1.0, std::ilogb(values[i]));
    while (std::fmod(values[i], u) != 0) u /= 2;
    unit = unit == 0 ? u : std::min(unit, u);
  }
  return unit;
}

bool Routed(const Tensor& ids, int64_t row, int64_t expert) {
  const double* at = &ids.data[row * ids.columns()];
  return std::find(at, at + ids.columns(), static_cast<double>(expert)) != at + ids.columns();
}

double Silu(double g) { return g / (1 + std::exp(-g)); }

double SiluSlope(double g) {
  const double s = 1 / (1 + std::exp(-g));
  return s * (1 + g * (1 - s));
}

Evaluation Linear(const Node& node, std::span<const Input> in, const TensorSource& source) {
  int64_t n = 0, k = 0;
  const std::vector<double> w = DecodeWeight(source, node.weight, &n, &k);
  const Tensor& x = *in[0].value;
  Evaluation e;
  e.terms = k;
  int64_t rows = 0;
  for (int64_t row = 0; row < x.rows(); ++row) {
    if (in.size() > 1 && !Routed(*in[1].value, row, node.expert)) continue;
    ++rows;
    const double ux = UnitOf(&x.data[row * k], k);
    for (int64_t c = 0; c < n; ++c) {
      double sum = 0, magnitude = 0, error = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double p = x.data[row * k + i] * w[c * k + i];
        sum += p;
        magnitude += std::abs(p);
        if (in[0].error != nullptr) {
          error += in[0].error->data[row * k + i] * std::abs(w[c * k + i]);
        }
      }
      e.value.data.push_back(sum);
      e.magnitude.data.push_back(magnitude);
      if (in[0].error != nullptr) e.propagated.data.push_back(error);
      const double unit = ux * UnitOf(&w[c * k], k);
      e.exact.push_back(in[0].error == nullptr && magnitude <= std::ldexp(unit, 24));
    }
  }
  e.value.shape = e.magnitude.shape = {rows, n};
  if (in[0].error != nullptr) e.propagated.shape = e.value.shape;
  return e;
}

Evaluation Norm(const Node& node, std::span<const Input> in, const TensorSource& source) {
  int64_t n = 0, one = 0;
  const std::vector<double> w = DecodeWeight(source, node.weight, &n, &one);
  const Tensor& x = *in[0].value;
  Evaluation e;
  e.terms = n;
  e.value.shape = x.shape;
  for (int64_t row = 0; row < x.rows(); ++row) {
    double squares = 0;
    for (int64_t i = 0; i < n; ++i) squares += x.data[row * n + i] * x.data[row * n + i];
    const double r = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
    for (int64_t i = 0; i < n; ++i) e.value.data.push_back(x.data[row * n + i] * r * w[i]);
  }
  e.function = e.value;
  return e;
}

Evaluation Activation(std::span<const Input> in, double limit) {
  Tensor g = *in[0].value, u = *in[1].value;
  for (double& v : g.data) v = v > limit ? limit : v;
  for (double& v : u.data) v = v > limit ? limit : v < -limit ? -limit : v;
  Evaluation e;
  e.value.shape = g.shape;
  for (size_t i = 0; i < g.data.size(); ++i) {
    e.value.data.push_back(Silu(g.data[i]) * u.data[i]);
    if (in[0].error != nullptr || in[1].error != nullptr) {
      const double dg = in[0].error != nullptr ? in[0].error->data[i] : 0;
      const double du = in[1].error != nullptr ? in[1].error->data[i] : 0;
      e.propagated.data.push_back(std::abs(SiluSlope(g.data[i]) * u.data[i]) * dg +
                                  std::abs(Silu(g.data[i])) * du);
    }
  }
  e.function = e.value;
  return e;
}

Evaluation RouterIds(std::span<const Input> in, int64_t top_k) {
  const Tensor& s = *in[0].value;
  const int64_t experts = s.columns();
  Evaluation e;
  e.value.shape = {s.rows(), top_k};
  e.margin.shape = {s.rows(), 1};
  for (int64_t row = 0; row < s.rows(); ++row) {
    std::vector<int64_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    const double* at = &s.data[row * experts];
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return at[a] > at[b]; });
    e.margin.data.push_back(at[order[top_k - 1]] - at[order[top_k]]);
    std::sort(order.begin(), order.begin() + top_k);
    for (int64_t j = 0; j < top_k; ++j) e.value.data.push_back(static_cast<double>(order[j]));
  }
  return e;
}

Evaluation RouterWeights(std::span<const Input> in) {
  const Tensor &s = *in[0].value, &ids = *in[1].value;
  Evaluation e;
  e.terms = ids.columns();
  e.value.shape = ids.shape;
  for (int64_t row = 0; row < ids.rows(); ++row) {
    double sum = 0;
    for (int64_t j = 0; j < ids.columns(); ++j) {
      sum += s.data[row * s.columns() + static_cast<int64_t>(ids.data[row * ids.columns() + j])];
    }
    for (int64_t j = 0; j < ids.columns(); ++j) {
      const auto id = static_cast<int64_t>(ids.data[row * ids.columns() + j]);
      e.value.data.push_back(s.data[row * s.columns() + id] / sum * 2.5);
      if (in[0].error != nullptr) {
        const double worst = *std::max_element(in[0].error->data.begin(), in[0].error->data.end());
        e.propagated.data.push_back(2.5 * 2 * worst / sum);
      }
    }
  }
  e.function = e.value;
  return e;
}

Evaluation Combine(std::span<const Input> in, int64_t hidden) {
  const Tensor &ids = *in[0].value, &weights = *in[1].value;
  const int64_t rows = ids.rows(), k = ids.columns();
  Evaluation e;
  e.terms = k;
  e.value.shape = e.magnitude.shape = e.propagated.shape = {rows, hidden};
  e.value.data.assign(static_cast<size_t>(rows * hidden), 0);
  e.magnitude.data = e.propagated.data = e.value.data;
  bool errors = in[1].error != nullptr;
  for (size_t expert = 0; expert + 2 < in.size(); ++expert) {
    int64_t local = 0;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t j = 0; j < k; ++j) {
        if (ids.data[row * k + j] != static_cast<double>(expert)) continue;
        const Input& down = in[expert + 2];
        errors = errors || down.error != nullptr;
        for (int64_t c = 0; c < hidden; ++c) {
          const double y = down.value->data[local * hidden + c], w = weights.data[row * k + j];
          e.value.data[row * hidden + c] += w * y;
          e.magnitude.data[row * hidden + c] += std::abs(w * y);
          if (down.error != nullptr) {
            e.propagated.data[row * hidden + c] +=
                std::abs(w) * down.error->data[local * hidden + c];
          }
          if (in[1].error != nullptr) {
            e.propagated.data[row * hidden + c] += std::abs(y) * in[1].error->data[row * k + j];
          }
        }
        ++local;
      }
    }
  }
  if (!errors) e.propagated = {};
  return e;
}

Evaluation Sum(std::span<const Input> in) {
  Evaluation e;
  e.terms = static_cast<int64_t>(in.size());
  e.value = *in[0].value;
  for (double v : e.value.data) e.magnitude.data.push_back(std::abs(v));
  e.magnitude.shape = e.value.shape;
  for (const Input& one : in) {
    if (one.error != nullptr && e.propagated.data.empty()) {
      e.propagated = e.value;
      std::fill(e.propagated.data.begin(), e.propagated.data.end(), 0.0);
    }
  }
  for (size_t r = 0; r < in.size(); ++r) {
    for (size_t i = 0; i < e.value.data.size(); ++i) {
      if (r > 0) {
        e.value.data[i] += in[r].value->data[i];
        e.magnitude.data[i] += std::abs(in[r].value->data[i]);
      }
      if (in[r].error != nullptr) e.propagated.data[i] += in[r].error->data[i];
    }
  }
  return e;
}

Evaluation Scores(std::span<const Input> in, int64_t first) {
  const Tensor &q = *in[0].value, &k = *in[1].value;
  const int64_t d = q.columns();
  Evaluation e;
  e.terms = d;
  e.value.shape = e.magnitude.shape = {q.rows(), 1, k.rows()};
  for (int64_t t = 0; t < q.rows(); ++t) {
    for (int64_t j = 0; j < k.rows(); ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t i = 0; i < d; ++i) {
        sum += q.data[t * d + i] * k.data[j * d + i];
        magnitude += std::abs(q.data[t * d + i] * k.data[j * d + i]);
      }
      const double scale = 1 / std::sqrt(static_cast<double>(d));
      e.value.data.push_back(j > first + t ? -INFINITY : sum * scale);
      e.magnitude.data.push_back(magnitude * scale);
    }
  }
  return e;
}

Evaluation Context(std::span<const Input> in) {
  const Tensor &s = *in[0].value, &v = *in[1].value;
  const int64_t keys = v.rows(), d = v.columns();
  Evaluation e;
  e.terms = keys;
  e.value.shape = e.function.shape = {s.rows(), d};
  for (int64_t t = 0; t < s.rows(); ++t) {
    const double* row = &s.data[t * keys];
    const double top = *std::max_element(row, row + keys);
    double total = 0;
    for (int64_t j = 0; j < keys; ++j) total += std::exp(row[j] - top);
    for (int64_t i = 0; i < d; ++i) {
      double sum = 0, magnitude = 0;
      for (int64_t j = 0; j < keys; ++j) {
        const double p = std::exp(row[j] - top) / total * v.data[j * d + i];
        sum += p;
        magnitude += std::abs(p);
      }
      e.value.data.push_back(sum);
      e.function.data.push_back(magnitude);
    }
  }
  return e;
}

}  // namespace

Result<Evaluation> TestModel::Evaluate(const Node& node, std::span<const Input> inputs,
                                       const reference::Where& where, const reference::Step& step,
                                       const Contract& contract,
                                       const TensorSource* weights) const {
  MemorySource own;
  if (weights == nullptr && !node.weight.empty()) {
    for (const char* suffix : {".weight", ".scale"}) {
      auto slice = ExpectedSlice(node.weight + suffix, where);
      if (!slice.ok()) continue;
      own.Put(
          node.weight + suffix, slice->dtype,
          {static_cast<int64_t>(slice->rows.size()), static_cast<int64_t>(slice->columns.size())},
          slice->bytes);
    }
    weights = &own;
  }
  switch (node.op) {
    case Op::kEmbed: {
      int64_t n = 0, k = 0;
      const std::vector<double> w = DecodeWeight(*weights, "embed", &n, &k);
      Evaluation e;
      e.value.shape = {static_cast<int64_t>(step.tokens.size()), k};
      for (const int32_t t : step.tokens) {
        e.value.data.insert(e.value.data.end(), w.begin() + t * k, w.begin() + (t + 1) * k);
      }
      return e;
    }
    case Op::kRmsNorm:
      return Norm(node, inputs, *weights);
    case Op::kLinear: {
      // 8-bit activations before the 4-bit weight: those shown, else the oracle's own.
      const auto quantiser = contract.QuantiserOf(contract.act);
      if (node.path != "moe.down" || (inputs[0].codes == nullptr && !quantiser)) {
        return Linear(node, inputs, *weights);
      }
      Tensor x, error;
      if (inputs[0].codes != nullptr) {
        x = judge::ActivationValues(*inputs[0].codes);
      } else {
        auto made = reference::Quantise(*inputs[0].value, *quantiser);
        if (!made.ok()) return made.error();
        x = judge::ActivationValues({&made->codes, &made->scales, made->group});
        error = x;
        for (size_t i = 0; i < error.data.size(); ++i) {
          const size_t group = error.data.size() / made->scales.data.size();
          error.data[i] = made->tie_ulps.data[i] <= 2 ? made->scales.data[i / group] : 0;
        }
      }
      const Input quantised[] = {{&x, error.data.empty() ? nullptr : &error, nullptr}};
      return Linear(node, quantised, *weights);
    }
    case Op::kActivation:
      return Activation(inputs, sizes_.limit);
    case Op::kRouterScores: {
      Evaluation e;
      e.value = *inputs[0].value;
      if (inputs[0].error != nullptr) {
        e.propagated = *inputs[0].error;
        for (double& v : e.propagated.data) v /= 4;
      }
      for (double& v : e.value.data) v = 1 / (1 + std::exp(-v));
      return e;
    }
    case Op::kRouterIds:
      return RouterIds(inputs, sizes_.top_k);
    case Op::kRouterWeights:
      return RouterWeights(inputs);
    case Op::kCombine:
      return Combine(inputs, sizes_.hidden);
    case Op::kReduce: {
      Evaluation e = Sum(inputs);
      if (!contract.reduce_exact) return e;
      std::vector<const Tensor*> parts;
      for (const Input& in : inputs) parts.push_back(in.value);
      auto modelled =
          reference::ModelReduce(parts, "all_reduce", contract.reduce_order, contract.reduce_wire);
      if (!modelled.ok()) return modelled.error();
      e.modelled = std::move(modelled->front());
      return e;
    }
    case Op::kAdd:
      return Sum(inputs);
    case Op::kScores:
      return Scores(inputs, step.first_position);
    case Op::kContext:
      return Context(inputs);
    default:
      return Error{fmt::format("the test model has no {}", node.tap), ErrorKind::kUnsupported};
  }
}

}  // namespace assay::testing
