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
  auto e = request.oracle->Evaluate(node, inputs, {request.degrees, rank}, step, request.contract,
                                    weights);
  if (!e.ok() || e->value.rows() != longest + 1) return std::nullopt;
  return std::move(e->value);
}

// Wrong by the last place of the output's type at most: a rounding, not a value.
std::optional<Signature> LastPlace(const Field& field, DType out) {
  const double ulp = 2 * UnitRoundoff(out);  // of a value's magnitude, at most
  int64_t towards_zero = 0;
  for (int64_t i = 0; i < field.rows() * field.columns(); ++i) {
    if (!field.wrong(i)) continue;
    const double y = field.oracle(i), k = field.kernel(i);
    if (!std::isfinite(y) || !std::isfinite(k) || std::abs(k - y) > ulp * std::abs(y))
      return std::nullopt;
    towards_zero += std::abs(k) < std::abs(y);
  }
  if (field.wrong_count() == 0) return std::nullopt;
  const bool truncated = towards_zero == field.wrong_count() && field.wrong_count() > 1;
  return Signature{
      "rounding",
      truncated ? "cut off instead of rounded to nearest"
                : "wrong in the last place: another rounding point or mode",
      fmt::format("{} of {} wrong elements are nearer to zero", towards_zero, field.wrong_count())};
}

}  // namespace

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

Partials ShownPartials(const judge::JudgeRequest& request, const judge::OpJudgement& judgement) {
  Partials partials;
  if (judgement.node->inputs.empty()) return partials;
  const Node* from = request.oracle->FindNode(judgement.node->inputs[0]);
  if (from == nullptr || from->spread != reference::Spread::kPartial) return partials;
  const int degree =
      from->domain == reference::Domain::kAttention ? request.degrees.attn_tp : request.degrees.tp;
  const int base = judgement.rank < 0 ? 0 : judgement.rank / degree * degree;
  for (int r = base; r < base + degree; ++r) {
    const TapValue* value = FindTap(request, from->tap, r, judgement.step);
    if (value == nullptr || value->shape != judgement.oracle.shape) return {};
    partials.ranks.push_back(r);
    partials.values.push_back(judge::ToTensor(*value));
  }
  return partials;
}

std::optional<Signature> TailSignature(const OpCase& wrong, const Field& field) {
  const judge::OpJudgement& j = *wrong.judgement;
  if (j.node->op != Op::kLinear || j.first < 0 || field.wrong_count() == 0) return std::nullopt;
  const std::vector<Tensor> inputs = ShownInputs(*wrong.request, j);
  if (inputs.empty()) return std::nullopt;
  const Tensor* ids = inputs.size() > 1 ? &inputs[1] : nullptr;
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

void Blame(const OpCase& wrong, int rank) {
  if (wrong.culprit != nullptr) *wrong.culprit = rank;
}

std::optional<Signature> ReduceSignature(const OpCase& wrong, const Field& field) {
  const judge::OpJudgement& j = *wrong.judgement;
  if (j.node->op != Op::kReduce) return std::nullopt;
  const Partials p = ShownPartials(*wrong.request, j);
  if (p.ranks.size() < 2) return std::nullopt;
  const std::string all =
      fmt::format("{} of {} elements", field.wrong_count(), field.rows() * field.columns());
  for (size_t r = 0; r < p.ranks.size(); ++r) {
    const std::vector<double>& part = p.values[r].data;
    if (field.ExplainsAll([&](int64_t i) { return field.oracle(i) - part[i]; })) {
      Blame(wrong, p.ranks[r]);
      return Signature{"missing-rank", fmt::format("sum lacks rank {}'s partial", p.ranks[r]), all};
    }
    if (field.ExplainsAll([&](int64_t i) { return field.oracle(i) + part[i]; })) {
      Blame(wrong, p.ranks[r]);
      return Signature{"doubled-rank", fmt::format("sum has rank {}'s partial twice", p.ranks[r]),
                       all};
    }
  }
  for (size_t r = 0; r < p.ranks.size(); ++r) {
    if (field.ExplainsAll([&](int64_t i) { return p.values[r].data[i]; })) {
      return Signature{"not-reduced", fmt::format("rank {}'s partial alone", p.ranks[r]), all};
    }
    // One partial in another's place.
    for (size_t s = 0; s < p.ranks.size(); ++s) {
      if (r == s || !field.ExplainsAll([&](int64_t i) {
            return field.oracle(i) - p.values[r].data[i] + p.values[s].data[i];
          })) {
        continue;
      }
      Blame(wrong, p.ranks[r]);
      return Signature{"doubled-rank",
                       fmt::format("sum has rank {}'s partial twice and lacks rank {}'s",
                                   p.ranks[s], p.ranks[r]),
                       all};
    }
  }
  const double parts = static_cast<double>(p.ranks.size());
  if (field.ExplainsAll([&](int64_t i) { return field.oracle(i) / parts; })) {
    return Signature{"averaged", fmt::format("divided by the number of ranks, {}", parts), all};
  }
  return std::nullopt;
}

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
  if (j.oracle.shape != j.kernel.shape || j.oracle.data.size() != j.kernel.data.size()) {
    return {"wrong-shape", "the tap has another shape than the graph says", j.reason};
  }
  if (j.node->op == Op::kRouterIds) return ChoiceSignature(*wrong.request->oracle, j);
  const DType out = wrong.request->contract.RoundingOf(j.node->path, j.node->op_class);
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
