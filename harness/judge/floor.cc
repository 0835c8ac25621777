#include "harness/judge/floor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "harness/judge/internal.h"

namespace assay::judge {
namespace {

using reference::Evaluation;
using reference::Node;
using reference::Op;
using reference::Parallel;
using reference::RunRequest;
using reference::Spread;
using reference::Tensor;
using reference::Trace;

// SplitMix64 over everything that a random number depends on.
uint64_t Mix(uint64_t h) {
  h ^= h >> 30;
  h *= 0xbf58476d1ce4e5b9u;
  h ^= h >> 27;
  h *= 0x94d049bb133111ebu;
  return h ^ h >> 31;
}

uint64_t HashOf(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return Mix(h);
}

// One op in one step of one run; `call` counts the ranks that are evaluated one by one.
class Random {
 public:
  Random(uint64_t seed, const std::string& tap, int step, int call, int run)
      : key_(Mix(seed * 0x9e3779b97f4a7c15u + HashOf(tap) + static_cast<uint64_t>(step))) {
    key_ = Mix(key_ + static_cast<uint64_t>(call) * 0x9e3779b97f4a7c15u);
    key_ = Mix(key_ + static_cast<uint64_t>(run) * 0xd1b54a32d192ed03u);
  }
  // Uniform in [0, 1); two streams an element.
  double Uniform(size_t index, int stream) const {
    const uint64_t h =
        Mix(key_ + (2 * index + static_cast<uint64_t>(stream)) * 0x9e3779b97f4a7c15u);
    return static_cast<double>(h >> 11) * std::ldexp(1.0, -53);
  }

 private:
  uint64_t key_;
};

// Rounded up or down, with the probabilities that make the mean right.
double RoundAtRandom(double value, DType type, double uniform) {
  if (type == DType::kF64 || !std::isfinite(value)) return value;
  const double nearest = RoundTo(value, type);
  if (nearest == value || !std::isfinite(nearest)) return nearest;
  // The neighbour on the other side: the result of rounding from beyond the middle.
  const double beyond = value + (value - nearest);
  double other = RoundTo(beyond, type);
  if (other == nearest) {
    const double step = std::max(std::abs(value - nearest) * 2, 2 * HalfSmallestSubnormal(type));
    const double half = UnitRoundoff(type) * std::abs(nearest);
    other = RoundTo(nearest + std::copysign(std::max(step, 1.5 * half), value - nearest), type);
  }
  if (other == nearest || !std::isfinite(other)) return nearest;
  const double share = (value - nearest) / (other - nearest);
  return uniform < share ? other : nearest;
}

int RanksOf(const Node& node, const reference::Oracle& oracle, const RunRequest& base) {
  if (!base.parallel || node.op != Op::kReduce || node.inputs.empty()) return 1;
  const Node* from = oracle.FindNode(node.inputs[0]);
  if (from == nullptr || from->spread != Spread::kPartial) return 1;
  return from->domain == reference::Domain::kAttention ? base.parallel->attn_tp : base.parallel->tp;
}

// How far an honest evaluation of this op may be off, each element: what a random walk of its
// roundings gives, and the errors that the contract states of functions.
std::vector<double> Amplitude(const Node& node, const Evaluation& e, const Contract& contract,
                              int ranks) {
  const double u = UnitRoundoff(contract.accumulator);
  const auto n = static_cast<double>(std::max<int64_t>(e.terms, 1));
  const double depth =
      std::max(DepthOf(std::max<int64_t>(e.terms, 1), contract.lanes, contract.extra), 1.0);
  const std::vector<double>& function = e.function.data;
  double of_function = 0;  // times what functions' errors scale with, or |y|
  if (node.op == Op::kRmsNorm || node.op == Op::kHeadNorm) {
    of_function = (std::sqrt(depth) / 2 + 2 * contract.rsqrt_ulp + 2) * u;
  } else if (node.op == Op::kRope) {
    of_function = (contract.sin_ulp + 2) * u + UnitRoundoff(contract.rope_table);
  } else if (node.op == Op::kContext) {
    of_function = (2 * contract.exp_ulp + 2 * contract.div_ulp) * u + UnitRoundoff(contract.probs);
  } else if (node.op == Op::kActivation) {
    const double tanhs = node.tanhs * (2 * contract.tanh_ulp + 2 * contract.div_ulp + 2);
    of_function = (2 * contract.exp_ulp + 2 * contract.div_ulp + 2 + tanhs) * u;
  } else if (node.op == Op::kRouterScores) {
    of_function = 2 * contract.sigmoid_ulp * u;
  } else if (node.op == Op::kRouterWeights) {
    of_function = (2 * contract.div_ulp + 3) * u;
  }
  // An int8 wire has no roundoff of its own: codes have scales. Half a step of 127 is 2^-8 of a
  // group's largest value, which is bf16's roundoff; of smaller values the wire is coarser, and the
  // floor is then the lower for it.
  const DType sent = contract.reduce_wire == DType::kI8 ? DType::kBF16 : contract.reduce_wire;
  double wire = 0;
  if (ranks > 1 && UnitRoundoff(sent) > u) {
    wire = UnitRoundoff(sent) * std::sqrt(2.0 * ranks - 1);
  }
  // The absorbed form of latent attention has no magnitudes.
  const bool sums = node.op == Op::kLinear || node.op == Op::kScores || node.op == Op::kContext ||
                    node.op == Op::kCombine || node.op == Op::kReduce;
  const bool known = e.magnitude.data.size() == e.value.data.size();
  std::vector<double> amplitude(e.value.data.size(), 0.0);
  for (size_t i = 0; i < amplitude.size(); ++i) {
    const double y = std::abs(e.value.data[i]);
    if (!std::isfinite(y)) continue;
    const double walk = known ? std::max(y, e.magnitude.data[i] / std::sqrt(n)) : y;
    const double scale = function.empty() ? y : std::abs(function[i]);
    if (sums) amplitude[i] += (u * std::sqrt(depth) + wire) * walk;
    amplitude[i] += of_function * scale;
    if (node.op == Op::kAdd) amplitude[i] += u * y;
  }
  return amplitude;
}

using Key = std::tuple<std::string, int, int>;  // tap, step, call

class Chains {
 public:
  explicit Chains(const FloorRequest& request) : request_(request) {}

  Result<Floor> Run(int runs) {
    Floor floor;
    auto reference = Reference();
    if (!reference.ok()) return reference.error();
    for (int run = 0; run < runs; ++run) {
      auto perturbed = Perturbed(run);
      if (!perturbed.ok()) return perturbed.error();
      Compare(*reference, *perturbed, &floor);
    }
    floor.runs = runs;
    return floor;
  }

 private:
  // The unperturbed chain, its routers' choices, and how far each op may be off.
  Result<Trace> Reference() {
    RunRequest request = request_.base;
    if (!request.wanted.empty()) {
      for (const Node& node : request_.oracle->graph()) {
        if (node.op == Op::kRouterIds && InRange(node)) request.wanted.push_back(node.tap);
      }
    }
    std::map<std::pair<std::string, int>, int> calls;
    request.observe = [&](const Node& node, int step, Evaluation* e) {
      const int call = calls[{node.tap, step}]++;
      if (node.op == Op::kRouterIds || node.op == Op::kEmbed) return;
      amplitude_[{node.tap, step, call}] =
          Amplitude(node, *e, request_.contract, RanksOf(node, *request_.oracle, request_.base));
    };
    request.observe_bounds = true;
    auto trace = request_.oracle->Run(request, request_.contract);
    if (!trace.ok()) return trace;
    for (const auto& step : *trace) {
      for (const auto& [tap, value] : step) {
        const Node* node = request_.oracle->FindNode(tap);
        if (node == nullptr || node->op != Op::kRouterIds) continue;
        if (request_.base.given.count(tap) > 0) continue;
        Tensor& all = ids_[tap];
        if (all.shape.empty()) all.shape = {0, value.columns()};
        all.shape[0] += value.rows();
        all.data.insert(all.data.end(), value.data.begin(), value.data.end());
      }
    }
    return trace;
  }

  bool InRange(const Node& node) const {
    const int64_t last = request_.base.last_layer;
    return node.layer >= request_.base.first_layer && (last < 0 || node.layer <= last) &&
           Needed().count(node.tap) > 0;
  }

  // Taps that the wanted ones depend on, as far as nothing given stands in between.
  const std::set<std::string>& Needed() const {
    if (!needed_.empty()) return needed_;
    needed_.insert(request_.base.wanted.begin(), request_.base.wanted.end());
    const auto& graph = request_.oracle->graph();
    for (auto node = graph.rbegin(); node != graph.rend(); ++node) {
      if (needed_.count(node->tap) == 0 || request_.base.given.count(node->tap) > 0) continue;
      needed_.insert(node->inputs.begin(), node->inputs.end());
    }
    return needed_;
  }

  Result<Trace> Perturbed(int run) {
    RunRequest request = request_.base;
    for (const auto& [tap, ids] : ids_) request.given[tap] = ids;
    std::map<std::pair<std::string, int>, int> calls;
    request.observe = [&](const Node& node, int step, Evaluation* e) {
      const int call = calls[{node.tap, step}]++;
      const auto amplitude = amplitude_.find({node.tap, step, call});
      if (amplitude == amplitude_.end()) return;
      if (amplitude->second.size() != e->value.data.size()) return;
      const DType type = request_.contract.RoundingOf(node.path, node.op_class);
      const Random random(request_.seed, node.tap, step, call, run);
      for (size_t i = 0; i < e->value.data.size(); ++i) {
        double& v = e->value.data[i];
        if (!std::isfinite(v)) continue;
        v += (2 * random.Uniform(i, 0) - 1) * amplitude->second[i];
        v = RoundAtRandom(v, type, random.Uniform(i, 1));
      }
      // What is declared exact is noise all the same here: another engine's order may be another.
      if (!e->modelled.data.empty()) e->modelled.data = e->value.data;
    };
    request.observe_bounds = false;
    return request_.oracle->Run(request, request_.contract);
  }

  static void Compare(const Trace& reference, const Trace& perturbed, Floor* floor) {
    for (size_t step = 0; step < reference.size() && step < perturbed.size(); ++step) {
      for (const auto& [tap, value] : reference[step]) {
        const auto other = perturbed[step].find(tap);
        if (other == perturbed[step].end()) continue;
        const Metrics metrics = CompareWhole(value, other->second);
        double& most = floor->rel_l2[{tap, static_cast<int>(step)}];
        most = std::max(most, metrics.rel_l2.value_or(0));
      }
    }
  }

  const FloorRequest& request_;
  std::map<Key, std::vector<double>> amplitude_;
  std::map<std::string, Tensor> ids_;
  mutable std::set<std::string> needed_;
};

}  // namespace

int RunsWithin(uint64_t chain_macs, uint64_t budget_macs) {
  for (const int runs : {kDecidingRuns, kReportedRuns}) {
    if (chain_macs <= budget_macs / static_cast<uint64_t>(runs + 2)) return runs;
  }
  return 0;
}

Result<Floor> NoiseFloor(const FloorRequest& request) {
  if (request.oracle == nullptr) return Error{"a noise floor needs the oracle"};
  auto macs = ChainMacs(*request.oracle, request.base);
  if (!macs.ok()) return macs.error();
  const int runs = RunsWithin(*macs, request.budget_macs);
  Floor floor;
  if (runs > 0) {
    auto made = Chains(request).Run(runs);
    if (!made.ok()) return made.error();
    floor = std::move(*made);
  }
  floor.decides = runs == kDecidingRuns;
  const std::string budget =
      fmt::format("{} multiply-adds a chain, {} allowed for {} + 2 chains", *macs,
                  request.budget_macs, runs == 0 ? kReportedRuns : runs);
  if (runs == 0) {
    floor.derivation = fmt::format("R = 0: {}", budget);
    return floor;
  }
  floor.derivation = fmt::format(
      "largest rel-L2 of R = {} oracle chains ({}); each op ± u·√d·max(|y|, G/√n), u = {}, and the "
      "contract's functions and wire, then rounded at random; routing forced; {}",
      runs, budget, PowerText(UnitRoundoff(request.contract.accumulator)),
      floor.decides ? fmt::format("beyond {} times it a chain is wrong (95 % of honest chains lie "
                                  "below, with 95 % confidence)",
                                  kFloorFactor)
                    : "too few to decide: reported only");
  return floor;
}

std::vector<BeyondFloor> JudgeAccumulated(const Floor& floor,
                                          const std::vector<Accumulated>& accumulated) {
  std::vector<BeyondFloor> beyond;
  if (!floor.decides) return beyond;
  for (const Accumulated& one : accumulated) {
    const auto found = floor.rel_l2.find({one.tap, one.step});
    if (found == floor.rel_l2.end()) continue;
    const bool within = one.rel_l2 <= kFloorFactor * found->second;  // false for NaN
    if (!within) beyond.push_back({one.tap, one.step, one.rel_l2, found->second});
  }
  return beyond;
}

}  // namespace assay::judge
