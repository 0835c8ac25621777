// What kind of mistake an op's error shows, told from its inputs where they are shown.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/locate/internal.h"

namespace assay::locate {
namespace {

using reference::Input;
using reference::Node;
using reference::Op;
using reference::Tensor;

// As many values of K as a vector register or a tile may lose at its end.
constexpr int64_t kLongestTail = 64;

// The input row that a row of an expert's gate or up stands for.
std::optional<int64_t> InputRow(const Tensor* ids, int64_t expert, int64_t local) {
  if (ids == nullptr) return local;
  for (int64_t i = 0; i < static_cast<int64_t>(ids->data.size()); ++i) {
    if (ids->data[i] == static_cast<double>(expert) && local-- == 0) return i / ids->columns();
  }
  return std::nullopt;
}

// y for the last t of x alone, t = 0 … longest: one row each.
std::optional<Tensor> TailResponses(const judge::JudgeRequest& request, const Node& node, int rank,
                                    const Tensor& x, int64_t row, const Tensor* ids,
                                    int64_t longest) {
  const int64_t k = x.columns();
  Tensor tails{{longest + 1, k}, std::vector<double>(static_cast<size_t>((longest + 1) * k), 0)};
  for (int64_t t = 1; t <= longest; ++t) {
    for (int64_t i = k - t; i < k; ++i) tails.data[t * k + i] = x.data[row * k + i];
  }
  std::vector<Input> inputs{{&tails, nullptr}};
  Tensor routed;
  if (ids != nullptr) {
    routed.shape = {longest + 1, ids->columns()};
    const auto from = ids->data.begin() + row * ids->columns();
    for (int64_t t = 0; t <= longest; ++t) {
      routed.data.insert(routed.data.end(), from, from + ids->columns());
    }
    inputs.push_back({&routed, nullptr});
  }
  const reference::Step step{std::vector<int32_t>(static_cast<size_t>(longest + 1), 0), 0};
  const TensorSource* weights = request.weights ? request.weights(rank) : nullptr;
  Contract plain = request.contract;  // x is what the codes stand for, where there are any
  plain.act = "a16";
  auto e = request.oracle->Evaluate(node, inputs, {request.degrees, rank}, step, plain, weights);
  if (!e.ok() || e->value.rows() != longest + 1) return std::nullopt;
  return std::move(e->value);
}

// What the product was of: the codes that the engine shows, times their scales.
void TakeCodes(const judge::JudgeRequest& request, const judge::OpJudgement& j, Tensor* x) {
  const TapValue* codes = FindTap(request, j.node->tap + ".x_q", j.rank, j.step);
  const TapValue* scales = FindTap(request, j.node->tap + ".x_scale", j.rank, j.step);
  if (codes == nullptr || scales == nullptr) return;
  const Tensor q = judge::ToTensor(*codes), s = judge::ToTensor(*scales);
  if (q.shape != x->shape || s.columns() == 0 || q.columns() % s.columns() != 0) return;
  *x = judge::ActivationValues({&q, &s, q.columns() / s.columns()});
}

}  // namespace

const TapValue* FindTap(const judge::JudgeRequest& request, const std::string& tap, int rank,
                        int step) {
  for (const int r : {rank, -1}) {
    const auto shown = request.trace->taps.find({step, tap, r});
    if (shown != request.trace->taps.end()) return &shown->second;
  }
  for (const int r : {rank, -1}) {
    const auto given = request.given.find({step, tap, r});
    if (given != request.given.end()) return &given->second;
  }
  return nullptr;
}

DType OutputType(const judge::JudgeRequest& request, const Node& node) {
  if (!judge::LinearOf(node.tap).empty()) return DType::kF32;
  return request.contract.RoundingOf(node.path, node.op_class);
}

std::vector<Tensor> ShownInputs(const judge::JudgeRequest& request,
                                const judge::OpJudgement& judgement) {
  std::vector<Tensor> inputs;
  for (const std::string& tap : judgement.node->inputs) {
    const TapValue* value = FindTap(request, tap, judgement.rank, judgement.step);
    if (value == nullptr) return {};
    inputs.push_back(judge::ToTensor(*value));
  }
  return inputs;
}

std::optional<Signature> TailSignature(const OpCase& wrong, const Field& field) {
  const judge::OpJudgement& j = *wrong.judgement;
  if (j.node->op != Op::kLinear || j.first < 0 || field.wrong_count() == 0) return std::nullopt;
  std::vector<Tensor> inputs = ShownInputs(*wrong.request, j);
  if (inputs.empty()) return std::nullopt;
  const Tensor* ids = inputs.size() > 1 ? &inputs[1] : nullptr;
  if (ids == nullptr) TakeCodes(*wrong.request, j, &inputs[0]);
  const int64_t n = field.columns(), local = j.first / n, k = inputs[0].columns();
  const auto row = InputRow(ids, j.node->expert, local);
  const int64_t longest = std::min(kLongestTail, k - 1);
  if (!row || longest < 1 || *row >= inputs[0].rows()) return std::nullopt;
  const auto tails = TailResponses(*wrong.request, *j.node, j.rank, inputs[0], *row, ids, longest);
  if (!tails || tails->columns() != n) return std::nullopt;
  int64_t best = 0;
  double least = INFINITY;
  for (int64_t t = 1; t <= longest; ++t) {
    double rest = 0;
    bool holds = true;
    for (int64_t c = 0; c < n && holds; ++c) {
      const int64_t i = local * n + c;
      const double other = field.oracle(i) - (tails->data[t * n + c] - tails->data[c]);
      holds = field.Explains(i, other);
      rest += (field.kernel(i) - other) * (field.kernel(i) - other);
    }
    if (holds && rest < least) {
      least = rest;
      best = t;
    }
  }
  if (best == 0) return std::nullopt;
  return Signature{"tail-dropped", fmt::format("the last {} of K = {} are missing", best, k),
                   fmt::format("the error is minus their sum in {} of {} columns", n, n)};
}

namespace {

// The same function of inputs that were not clamped first, everywhere: beyond the limit it is
// another value, below it the right one.
std::optional<Signature> ClampMissing(const Tensor& gate, const Tensor& up, const Field& field) {
  double nearest = INFINITY;  // the least input that must have been clamped
  for (int64_t i = 0; i < field.rows() * field.columns(); ++i) {
    const double g = gate.data[i], u = up.data[i];
    const double plain = g / (1 + std::exp(-g)) * u, due = field.oracle(i);
    const double larger = due == 0 ? 1 : std::max(1.0, std::abs(plain / due));
    if (!field.Explains(i, plain, larger)) return std::nullopt;
    if (field.wrong(i)) nearest = std::min(nearest, std::max(g, std::abs(u)));
  }
  if (field.wrong_count() == 0) return std::nullopt;
  return Signature{"clamp-missing", "silu(gate)·up of inputs that were not clamped",
                   fmt::format("{} of {} elements are beyond the limit, from {:.4g} on",
                               field.wrong_count(), field.rows() * field.columns(), nearest)};
}

}  // namespace

std::optional<Signature> ActivationSignature(const OpCase& wrong, const Field& field) {
  if (wrong.judgement->node->op != Op::kActivation) return std::nullopt;
  const std::vector<Tensor> in = ShownInputs(*wrong.request, *wrong.judgement);
  if (in.size() != 2 || in[0].data.size() != in[1].data.size() ||
      in[0].data.size() != static_cast<size_t>(field.rows() * field.columns())) {
    return std::nullopt;
  }
  auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  struct Other {
    const char *id, *text;
    std::function<double(double, double)> f;
  };
  const Other others[] = {
      {"gate-up-swapped", "silu(up)·gate", [&](double g, double u) { return u * sigmoid(u) * g; }},
      {"other-activation", "gate·up without an activation",
       [](double g, double u) { return g * u; }},
      {"other-activation", "silu(gate) without up",
       [&](double g, double) { return g * sigmoid(g); }},
      {"other-activation", "sigmoid(gate)·up", [&](double g, double u) { return sigmoid(g) * u; }},
      {"other-activation", "relu(gate)·up",
       [](double g, double u) { return std::max(g, 0.0) * u; }},
      {"other-activation", "gelu(gate)·up",
       [](double g, double u) { return g * 0.5 * (1 + std::erf(g / std::sqrt(2.0))) * u; }},
      {"other-activation", "gelu(gate)·up, tanh form",
       [](double g, double u) {
         const double inner = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
         return g * 0.5 * (1 + std::tanh(inner)) * u;
       }},
      {"other-activation", "gate·sigmoid(1.702·gate)·up",
       [&](double g, double u) { return g * sigmoid(1.702 * g) * u; }},
  };
  if (auto s = ClampMissing(in[0], in[1], field)) return s;
  for (const Other& other : others) {
    if (!field.ExplainsAll([&](int64_t i) { return other.f(in[0].data[i], in[1].data[i]); })) {
      continue;
    }
    return Signature{
        other.id, fmt::format("the values are {}", other.text),
        fmt::format("{} of {} elements", field.wrong_count(), field.rows() * field.columns())};
  }
  return std::nullopt;
}

namespace {

constexpr const char *kOutOfRange = "ids-out-of-range", *kTwice = "ids-twice",
                     *kNotAscending = "ids-not-ascending";

Signature ChoiceSignature(const reference::Oracle& oracle, const judge::OpJudgement& j) {
  int64_t experts = 0;
  for (const Node& node : oracle.graph()) {
    if (node.layer == j.node->layer) experts = std::max(experts, node.expert + 1);
  }
  const int64_t k = j.kernel.columns();
  bool same_sets = true, ascending = true;
  for (int64_t row = 0; row < j.kernel.rows(); ++row) {
    const auto at = row * k;
    std::vector<double> got(j.kernel.data.begin() + at, j.kernel.data.begin() + at + k);
    std::vector<double> want(j.oracle.data.begin() + at, j.oracle.data.begin() + at + k);
    for (const double id : got) {
      if (id >= 0 && id < static_cast<double>(experts)) continue;
      return {kOutOfRange, fmt::format("id {}, but experts are 0 to {}", id, experts - 1),
              j.reason};
    }
    ascending = ascending && std::is_sorted(got.begin(), got.end());
    std::sort(got.begin(), got.end());
    if (std::adjacent_find(got.begin(), got.end()) != got.end()) {
      return {kTwice, "an expert was chosen twice for one token", j.reason};
    }
    std::sort(want.begin(), want.end());
    same_sets = same_sets && got == want;
  }
  if (same_sets && !ascending) {
    return {kNotAscending, "the right experts, but not ascending", j.reason};
  }
  return {"other-choice", "other experts were chosen", j.reason};
}

// The causal mask left out: finite scores, and nothing else is wrong.
std::optional<Signature> MaskSignature(const OpCase& wrong, const Field& field) {
  if (wrong.judgement->node->op != Op::kScores) return std::nullopt;
  int64_t masked = 0;
  for (int64_t i = 0; i < field.rows() * field.columns(); ++i) {
    if (!field.wrong(i)) continue;
    if (!std::isinf(field.oracle(i)) || !std::isfinite(field.kernel(i))) return std::nullopt;
    ++masked;
  }
  if (masked == 0) return std::nullopt;
  return Signature{"mask-missing", "finite where the causal mask demands -inf",
                   fmt::format("{} wrong elements, all of them masked ones", masked)};
}

}  // namespace

bool IsIllegalChoice(const Signature& signature) {
  return signature.id == kOutOfRange || signature.id == kTwice || signature.id == kNotAscending;
}

Signature OpSignature(const OpCase& wrong) {
  const judge::OpJudgement& j = *wrong.judgement;
  if (j.made) return CodesSignature(wrong);
  if (j.oracle.shape != j.kernel.shape || j.oracle.data.size() != j.kernel.data.size()) {
    return {"wrong-shape", "the tap has another shape than the graph says", j.reason};
  }
  if (j.node->op == Op::kRouterIds) return ChoiceSignature(*wrong.request->oracle, j);
  const DType out = OutputType(*wrong.request, *j.node);
  const Field field(j, out);
  if (auto s = MaskSignature(wrong, field)) return *s;
  if (auto s = ReduceSignature(wrong, field)) return *s;
  if (auto s = ActivationSignature(wrong, field)) return *s;
  if (auto s = TailSignature(wrong, field)) return *s;
  if (auto s = LastPlace(field, out)) return *s;
  if (auto s = FieldSignature(field, wrong.request->degrees.tp)) return *s;
  return {"unknown", "no known pattern", j.reason};
}

}  // namespace assay::locate
