// The plain evaluation: fp32, in order, one rounding an operation. What the oracle knows of the
// weights is asked through unit vectors, so that no format is decoded here.
#include <cmath>

#include "harness/judge/internal.h"

namespace assay::judge {
namespace {

using reference::Input;
using reference::Node;
using reference::Op;
using reference::Tensor;

// Multiplications that a number which decides nothing may cost.
constexpr int64_t kMostProducts = int64_t{1} << 24;

double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isfinite(a[i]) && std::isfinite(b[i])) sum += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return std::sqrt(sum);
}

// Columns of W, and the bias, as responses to unit vectors: [K + 1, N], the last row for x = 0.
std::optional<Tensor> Responses(const reference::Oracle& oracle, const Node& node, int64_t k,
                                const Tensor* ids, const reference::Where& where,
                                const Contract& contract, const TensorSource* weights) {
  Tensor unit, routed;
  unit.shape = {k + 1, k};
  unit.data.assign(static_cast<size_t>((k + 1) * k), 0.0);
  for (int64_t i = 0; i < k; ++i) unit.data[i * k + i] = 1;
  std::vector<Input> inputs{{&unit, nullptr}};
  if (ids != nullptr) {  // every row to this expert
    const int64_t top_k = ids->columns();
    const double* with = nullptr;
    for (int64_t r = 0; r < ids->rows() && with == nullptr; ++r) {
      for (int64_t j = 0; j < top_k; ++j) {
        if (ids->data[r * top_k + j] == static_cast<double>(node.expert)) {
          with = &ids->data[r * top_k];
        }
      }
    }
    if (with == nullptr) return std::nullopt;
    routed.shape = {k + 1, top_k};
    for (int64_t i = 0; i <= k; ++i) routed.data.insert(routed.data.end(), with, with + top_k);
    inputs.push_back({&routed, nullptr});
  }
  const reference::Step step{std::vector<int32_t>(static_cast<size_t>(k + 1), 0), 0};
  auto evaluation = oracle.Evaluate(node, inputs, where, step, contract, weights);
  if (!evaluation.ok() || evaluation->value.rows() != k + 1) return std::nullopt;
  return std::move(evaluation->value);
}

std::optional<std::vector<double>> PlainLinear(const reference::Oracle& oracle, const Node& node,
                                               std::span<const Input> inputs,
                                               const reference::Where& where,
                                               const Contract& contract,
                                               const TensorSource* weights, const Tensor& value) {
  const Tensor& x = *inputs[0].value;
  const int64_t k = x.columns(), n = value.columns();
  if (k * k > kMostProducts / std::max<int64_t>(n, 1)) return std::nullopt;
  const Tensor* ids = inputs.size() > 1 ? inputs[1].value : nullptr;
  const auto w = Responses(oracle, node, k, ids, where, contract, weights);
  if (!w || w->columns() != n) return std::nullopt;
  std::vector<int64_t> rows;
  for (int64_t r = 0; r < x.rows(); ++r) {
    bool mine = ids == nullptr;
    for (int64_t j = 0; !mine && j < ids->columns(); ++j) {
      mine = ids->data[r * ids->columns() + j] == static_cast<double>(node.expert);
    }
    if (mine) rows.push_back(r);
  }
  if (static_cast<int64_t>(rows.size()) != value.rows()) return std::nullopt;
  std::vector<double> plain;
  plain.reserve(value.data.size());
  for (const int64_t row : rows) {
    for (int64_t c = 0; c < n; ++c) {
      const double bias = w->data[k * n + c];
      float sum = 0;
      for (int64_t i = 0; i < k; ++i) {
        sum +=
            static_cast<float>(x.data[row * k + i]) * static_cast<float>(w->data[i * n + c] - bias);
      }
      plain.push_back(sum + static_cast<float>(bias));
    }
  }
  return plain;
}

std::optional<std::vector<double>> PlainElementwise(const Node& node,
                                                    std::span<const Input> inputs) {
  for (const Input& in : inputs) {
    if (in.value == nullptr || in.value->data.size() != inputs[0].value->data.size()) {
      return std::nullopt;
    }
  }
  std::vector<double> plain(inputs[0].value->data.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    const float a = static_cast<float>(inputs[0].value->data[i]);
    if (node.op == Op::kActivation && inputs.size() == 2 && node.tanhs == 0) {
      plain[i] = a / (1.0f + std::exp(-a)) * static_cast<float>(inputs[1].value->data[i]);
    } else if (node.op == Op::kAdd || node.op == Op::kReduce) {
      float sum = a;
      for (size_t r = 1; r < inputs.size(); ++r) {
        sum += static_cast<float>(inputs[r].value->data[i]);
      }
      plain[i] = sum;
    } else {
      return std::nullopt;
    }
  }
  return plain;
}

}  // namespace

bool IsPlain(Op op) {
  return op == Op::kLinear || op == Op::kActivation || op == Op::kAdd || op == Op::kReduce;
}

std::optional<double> ThreeWay(const reference::Oracle& oracle, const Node& node,
                               std::span<const Input> inputs, const reference::Where& where,
                               const Contract& contract, const TensorSource* weights,
                               const Tensor& value, const Tensor& kernel) {
  if (inputs.empty() || inputs[0].value == nullptr) return std::nullopt;
  const bool quantised = node.op == Op::kLinear && contract.QuantiserOf(contract.act).has_value();
  if (quantised && inputs[0].codes == nullptr) return std::nullopt;
  if (node.op == Op::kLinear && contract.VariantOf(contract.act).has_value()) return std::nullopt;
  if (quantised) {  // as if its activations had been what their codes stand for
    const Tensor x = ActivationValues(*inputs[0].codes);
    std::vector<Input> values(inputs.begin(), inputs.end());
    values[0] = {&x, nullptr, nullptr};
    if (values.size() > 1) return std::nullopt;  // rows of an expert: codes are its own already
    Contract plain = contract;
    plain.act = "a16";
    return ThreeWay(oracle, node, values, where, plain, weights, value, kernel);
  }
  auto plain = node.op == Op::kLinear
                   ? PlainLinear(oracle, node, inputs, where, contract, weights, value)
                   : PlainElementwise(node, inputs);
  if (!plain || plain->size() != value.data.size()) return std::nullopt;
  const DType out = contract.RoundingOf(node.path, node.op_class);
  for (double& v : *plain) v = RoundTo(v, out);
  const double theirs = Distance(value.data, *plain);
  if (theirs == 0) return std::nullopt;
  return Distance(value.data, kernel.data) / theirs;
}

}  // namespace assay::judge
