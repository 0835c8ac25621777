// What kind of mistake a sum over ranks shows, told from the ranks' partials.
#include <fmt/format.h>

#include <algorithm>

#include "harness/locate/internal.h"

namespace assay::locate {

using reference::Node;
using reference::Op;
using reference::Tensor;

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
    if (value == nullptr) return {};
    Tensor whole = judge::ToTensor(*value), part = whole;
    if (whole.shape != judgement.oracle.shape) {  // a reduce-scatter's chunk of the flat sum
      const auto n = static_cast<int64_t>(judgement.oracle.data.size());
      const bool inside = judgement.oracle.shape.size() == 1 &&
                          judgement.offset + n <= static_cast<int64_t>(whole.data.size());
      if (!inside) return {};
      part = {{n},
              {whole.data.begin() + judgement.offset, whole.data.begin() + judgement.offset + n}};
    }
    partials.ranks.push_back(r);
    partials.whole.push_back(std::move(whole));
    partials.values.push_back(std::move(part));
  }
  return partials;
}

namespace {

void Blame(const OpCase& wrong, int rank) {
  if (wrong.culprit != nullptr) *wrong.culprit = rank;
}

// What an order and a wire give, rounded as the op's output; nullopt: not modelled.
std::optional<std::vector<double>> Modelled(const std::vector<Tensor>& values,
                                            std::string_view order, DType wire, DType out,
                                            const judge::OpJudgement& j) {
  std::vector<const Tensor*> parts;
  for (const Tensor& value : values) parts.push_back(&value);
  const bool chunk = j.oracle.data.size() != values[0].data.size();
  auto made = reference::ModelReduce(parts, chunk ? "reduce_scatter" : "all_reduce", order, wire);
  const size_t at = chunk ? static_cast<size_t>(std::max(j.rank, 0)) : 0;
  if (!made.ok() || at >= made->size()) return std::nullopt;
  std::vector<double> sum = std::move((*made)[at].data);
  for (double& v : sum) v = RoundTo(v, out);
  if (sum.size() != j.kernel.data.size()) return std::nullopt;
  return sum;
}

// Bit for bit what another wire, partials that were rounded first, or another order would give.
std::optional<Signature> OrderOrWire(const OpCase& wrong, const Partials& p) {
  const judge::OpJudgement& j = *wrong.judgement;
  const Contract& contract = wrong.request->contract;
  const DType out = OutputType(*wrong.request, *j.node);
  const std::string all = fmt::format("{} elements, bit for bit", j.kernel.data.size());
  const auto is = [&](const std::vector<Tensor>& values, std::string_view order, DType wire) {
    const auto sum = Modelled(values, order, wire, out, j);
    return sum && *sum == j.kernel.data;
  };
  // Where the declared one gives the same bits, nothing can be told from them.
  if (is(p.whole, contract.reduce_order, contract.reduce_wire)) return std::nullopt;
  std::vector<std::string> orders{contract.reduce_order};
  for (const char* other : {"sequential", "ring", "tree"}) {
    if (other != contract.reduce_order) orders.push_back(other);
  }
  for (const std::string& order : orders) {
    for (const DType wire : {DType::kBF16, DType::kF16}) {
      if (UnitRoundoff(wire) <= UnitRoundoff(contract.reduce_wire)) continue;
      if (is(p.whole, order, wire)) {
        return Signature{"wire-rounded", fmt::format("sums travel as {} ({})", NameOf(wire), order),
                         all};
      }
      std::vector<Tensor> rounded = p.whole;
      for (Tensor& part : rounded) {
        for (double& v : part.data) v = RoundTo(v, wire);
      }
      if (is(rounded, order, contract.reduce_wire)) {
        return Signature{
            "wire-rounded",
            fmt::format("partials are rounded to {} before the sum ({})", NameOf(wire), order),
            all};
      }
    }
  }
  for (const std::string& order : orders) {
    if (order == contract.reduce_order || !is(p.whole, order, contract.reduce_wire)) continue;
    return Signature{
        "reduce-order",
        fmt::format("added in the order {}, {} was declared", order, contract.reduce_order), all};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Signature> ReduceSignature(const OpCase& wrong, const Field& field) {
  const judge::OpJudgement& j = *wrong.judgement;
  if (j.node->op != Op::kReduce) return std::nullopt;
  const Partials p = ShownPartials(*wrong.request, j);
  if (p.ranks.size() < 2) return std::nullopt;
  if (auto s = OrderOrWire(wrong, p)) return s;
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

}  // namespace assay::locate
