// Exact models: ops whose every rounding is known, so that only one result is right; and the wire
// of a collective, where only a bound is known.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/judge/internal.h"

namespace assay::judge {
namespace {

using reference::Input;
using reference::Op;
using reference::Tensor;

// Σ over hops of Σ over the ranks in a hop of |p_r|, an upper bound where chunks start at
// different ranks.
std::vector<double> HopSums(const Contract& contract, std::span<const Input> inputs, int ranks,
                            const std::vector<double>& magnitude) {
  std::vector<double> sums(magnitude.size(), 0.0);
  const bool known = contract.reduce_order == "sequential" &&
                     inputs.size() == static_cast<size_t>(ranks) &&
                     std::all_of(inputs.begin(), inputs.end(),
                                 [](const Input& in) { return in.value != nullptr; });
  if (known) {
    std::vector<double> running(magnitude.size(), 0.0);
    for (size_t r = 0; r < inputs.size(); ++r) {
      for (size_t i = 0; i < sums.size(); ++i) {
        running[i] += std::abs(inputs[r].value->data[i]);
        if (r > 0) sums[i] += running[i];
      }
    }
    return sums;
  }
  const double hops = contract.reduce_order == "tree" ? std::ceil(std::log2(std::max(ranks, 1)))
                                                      : std::max(ranks - 1, 0);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = hops * magnitude[i];
  return sums;
}

bool AllFloat(const Tensor& tensor) {
  return std::all_of(tensor.data.begin(), tensor.data.end(), [](double v) {
    return std::isnan(v) || static_cast<double>(static_cast<float>(v)) == v;
  });
}

// One fp32 addition, then the rounding. Where rounding the exact sum at once gives something
// else, both are right: the bound decides there.
bool OneAddition(std::span<const Input> inputs, DType out, Demand* demand) {
  if (inputs.size() != 2 || inputs[0].value == nullptr || inputs[1].value == nullptr) return false;
  const Tensor &a = *inputs[0].value, &b = *inputs[1].value;
  if (a.data.size() != b.data.size() || !AllFloat(a) || !AllFloat(b)) return false;
  demand->want.resize(a.data.size());
  demand->strict.assign(a.data.size(), 1);
  for (size_t i = 0; i < a.data.size(); ++i) {
    const double exact = a.data[i] + b.data[i];
    demand->want[i] = RoundTo(RoundTo(exact, DType::kF32), out);
    const double at_once = RoundTo(exact, out);
    const bool same = demand->want[i] == at_once || std::isnan(exact);
    if (!same) demand->strict[i] = 0;
  }
  return true;
}

// Sums over ranks: what the declared order and wire give; one part, which is not added to anything;
// or two in fp32, whose order is no matter.
bool OneSum(std::span<const Input> inputs, const Contract& contract, Demand* demand) {
  demand->strict_mode = "bitwise";
  if (inputs.empty() || inputs[0].value == nullptr) return false;
  const Tensor& modelled = demand->evaluation->modelled;
  const bool declared = contract.reduce_exact && !modelled.data.empty();
  if (declared || (inputs.size() == 1 && AllFloat(*inputs[0].value))) {
    demand->want = declared ? modelled.data : inputs[0].value->data;
    for (double& v : demand->want) v = RoundTo(v, demand->out);
    demand->strict.assign(demand->want.size(), 1);
    return true;
  }
  const bool plain = contract.accumulator == DType::kF32 && !contract.ftz && !contract.daz &&
                     contract.reduce_wire == DType::kF32;
  return plain && OneAddition(inputs, demand->out, demand);
}

}  // namespace

void AddWire(const Contract& contract, int ranks, std::span<const Input> inputs,
             const reference::Evaluation& evaluation,
             const std::function<void(const std::vector<double>&, std::string)>& add) {
  if (ranks <= 1 || contract.reduce_wire == contract.accumulator) return;
  const std::vector<double>& magnitude = evaluation.magnitude.data;
  if (magnitude.empty()) return;
  std::vector<double> amount = HopSums(contract, inputs, ranks, magnitude);
  if (contract.reduce_wire == DType::kI8) {
    // Half a step of a block whose scale is at most that of the whole row.
    const double codes = 127;
    const int64_t columns = std::max<int64_t>(evaluation.value.columns(), 1);
    for (size_t row = 0; row + columns <= amount.size(); row += columns) {
      const double top =
          *std::max_element(amount.begin() + row, amount.begin() + row + columns) +
          *std::max_element(magnitude.begin() + row, magnitude.begin() + row + columns);
      std::fill_n(amount.begin() + row, columns, top / (2 * codes));
    }
    add(amount, "half a step of int8 blocks, amax of the row's Σ_hops Σ|p| + Σ|p| over 127");
    return;
  }
  const double u = UnitRoundoff(contract.reduce_wire);
  if (u <= UnitRoundoff(contract.accumulator)) return;
  // Each partial and each hop's sum is rounded once, below the least normal number by h at most.
  const double least = (2 * ranks - 1) * HalfSmallestSubnormal(contract.reduce_wire);
  for (size_t i = 0; i < amount.size(); ++i) amount[i] = u * (amount[i] + magnitude[i]) + least;
  add(amount, fmt::format("u_wire·(Σ|p_r| + Σ_hops Σ_r|p_r|) + (2·ranks − 1)·h, {} over {} ranks, "
                          "u_wire = {}, h = {}",
                          contract.reduce_order, ranks, PowerText(u),
                          PowerText(HalfSmallestSubnormal(contract.reduce_wire))));
}

bool DemandStrict(const reference::Node& node, std::span<const Input> inputs,
                  const Contract& contract, bool inputs_shown, Demand* demand) {
  if (!inputs_shown) return false;
  const Tensor& value = demand->evaluation->value;
  if (node.op == Op::kEmbed) {
    demand->want.resize(value.data.size());
    for (size_t i = 0; i < value.data.size(); ++i) {
      demand->want[i] = RoundTo(value.data[i], demand->out);
    }
    demand->strict.assign(value.data.size(), 1);
    demand->strict_mode = "bitwise";
    return true;
  }
  if (node.op == Op::kReduce) return OneSum(inputs, contract, demand);
  if (contract.accumulator != DType::kF32 || contract.ftz || contract.daz) return false;
  if (node.op == Op::kAdd) {
    demand->strict_mode = "bitwise";
    return OneAddition(inputs, demand->out, demand);
  }
  const std::vector<uint8_t>& exact = demand->evaluation->exact;
  if (std::find(exact.begin(), exact.end(), uint8_t{1}) == exact.end()) return false;
  demand->strict = exact;
  demand->want.resize(value.data.size());
  for (size_t i = 0; i < value.data.size(); ++i) {
    if (exact[i] != 0) demand->want[i] = RoundTo(value.data[i], demand->out);
  }
  demand->strict_mode = "exact";
  return true;
}

}  // namespace assay::judge
