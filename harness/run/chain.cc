#include "harness/run/chain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <list>
#include <set>

namespace assay::run {
namespace {

using reference::Node;
using reference::Tensor;

// Doubles of chains that a process keeps: a quarter of a gigabyte.
constexpr size_t kKept = size_t{32} << 20;

void AddRows(const Tensor& part, Tensor* whole) {
  if (whole->shape.empty()) {
    *whole = part;
    return;
  }
  whole->shape[0] += part.shape[0];
  whole->data.insert(whole->data.end(), part.data.begin(), part.data.end());
}

bool IsLayer(const CellSpec& spec) { return spec.scope == "layer"; }

// Routers whose choice the chain takes from the engine: where an adopted choice was too close to
// tell, and, if every op is right on its own inputs, all of them. What accumulated before a router
// may turn a choice that was clear on the engine's inputs; other experts are no drift.
std::set<std::string> RoutersToFollow(const std::vector<judge::OpJudgement>& judgements) {
  const bool right = std::all_of(judgements.begin(), judgements.end(),
                                 [](const judge::OpJudgement& judged) { return judged.pass; });
  std::set<std::string> taps;
  for (const judge::OpJudgement& judged : judgements) {
    const bool ids = judged.node->op == reference::Op::kRouterIds;
    if (ids && judged.judged && (right || judged.ambiguous > 0)) taps.insert(judged.node->tap);
  }
  return taps;
}

// Inputs of the scope and forced routing, all steps' rows one after the other. A layer's residual
// goes into `input`.
void TakeGiven(const CellSpec& spec, reference::RunRequest* request, Tensor* input) {
  std::map<std::string, Tensor> given;
  for (const auto& [key, value] : spec.given) AddRows(judge::ToTensor(value), &given[key.tap]);
  for (auto& [tap, value] : given) {
    const bool routing = tap.ends_with("router.ids") || tap.ends_with("router.weights");
    if (IsLayer(spec) && !routing) {
      *input = std::move(value);
      request->input = input;
      request->first_layer = spec.layer;
    } else {
      request->given[tap] = std::move(value);
    }
  }
}

void TakeChoices(const CellSpec& spec, const abi::Outcome& outcome,
                 const std::set<std::string>& routers, reference::RunRequest* request) {
  for (const std::string& tap : routers) {
    const Node* node = spec.oracle->FindNode(tap);
    Tensor ids;
    bool whole = true;
    for (int step = 0; step < static_cast<int>(spec.steps.size()); ++step) {
      auto chosen = judge::JoinRanks(*spec.oracle, *node, outcome.trace, spec.parallel(), step);
      whole &= chosen.ok();
      if (chosen) AddRows(*chosen, &ids);
    }
    if (whole) request->given.insert_or_assign(tap, std::move(ids));
  }
}

void AddText(const std::string& text, std::string* key) { *key += fmt::format("{}\n", text); }

void AddNumbers(const Tensor& tensor, std::string* key) {
  const XXH128_hash_t hash = XXH3_128bits(tensor.data.data(), tensor.data.size() * sizeof(double));
  AddText(fmt::format("{} {:016x}{:016x}", fmt::join(tensor.shape, "x"), hash.high64, hash.low64),
          key);
}

size_t SizeOf(const Chain& chain) {
  size_t doubles = 0;
  for (const auto& step : chain.trace) {
    for (const auto& [tap, value] : step) doubles += value.data.size();
  }
  return doubles;
}

// The chains asked for last, as many as there is room for.
class Memory {
 public:
  std::shared_ptr<const Chain> Find(const std::string& key) {
    for (auto at = kept_.begin(); at != kept_.end(); ++at) {
      if (at->first != key) continue;
      kept_.splice(kept_.begin(), kept_, at);
      return kept_.front().second;
    }
    return nullptr;
  }
  void Keep(const std::string& key, std::shared_ptr<const Chain> chain) {
    doubles_ += SizeOf(*chain);
    kept_.emplace_front(key, std::move(chain));
    while (kept_.size() > 1 && doubles_ > kKept) {
      doubles_ -= SizeOf(*kept_.back().second);
      kept_.pop_back();
    }
  }

 private:
  std::list<std::pair<std::string, std::shared_ptr<const Chain>>> kept_;
  size_t doubles_ = 0;
};

std::shared_ptr<const Chain> Compute(const CellSpec& spec, reference::RunRequest request) {
  auto chain = std::make_shared<Chain>();
  auto traced = spec.oracle->Run(request, *spec.facts.contract);
  if (!traced) {
    chain->why_not = fmt::format("no chain of the oracle: {}", traced.error().message);
    return chain;
  }
  chain->trace = std::move(*traced);
  if (spec.scope == "layer" || spec.scope == "model") {
    judge::FloorRequest floor;
    floor.oracle = spec.oracle;
    floor.base = std::move(request);
    floor.contract = *spec.facts.contract;
    floor.seed = static_cast<uint64_t>(spec.seed);
    floor.budget_macs = kFloorBudget;
    auto found = judge::NoiseFloor(floor);
    if (found) {
      chain->floor = std::move(*found);
    } else {
      chain->floor.derivation = found.error().message;
      chain->why_not = fmt::format("no noise floor: {}", found.error().message);
    }
  }
  return chain;
}

}  // namespace

// Everything that the chain and its floor depend on.
std::string KeyOfChain(const CellSpec& spec, const reference::RunRequest& request) {
  std::string key;
  for (const char* name : {"model", "layer", "fill", "seed", "limit", "method", "op", "expert"}) {
    AddText(spec.problem.Get(name), &key);
  }
  AddText(spec.model->checkpoint->path() + spec.model->checkpoint->structure_hash(), &key);
  AddText(spec.scope, &key);
  AddText(PrintContract(*spec.facts.contract), &key);
  for (const reference::Step& step : request.steps) {
    AddText(fmt::format("{}: {}", step.first_position, fmt::join(step.tokens, ",")), &key);
  }
  AddText(fmt::format("{} to {}", request.first_layer, request.last_layer), &key);
  AddText(fmt::format("wanted {}", fmt::join(request.wanted, ",")), &key);
  AddText(request.input != nullptr ? "with input" : "from the embedding", &key);
  if (request.input != nullptr) AddNumbers(*request.input, &key);
  for (const auto& [tap, value] : request.given) {
    AddText(tap, &key);
    AddNumbers(value, &key);
  }
  if (request.parallel) {
    AddText(fmt::format("{}/{}", request.parallel->tp, request.parallel->attn_tp), &key);
  }
  return key;
}

bool NeedsRanks(const CellSpec& spec) {
  if (spec.degrees.tp == 1) return false;
  const Contract& contract = *spec.facts.contract;
  const double single = UnitRoundoff(DType::kF32);
  const auto coarse = [&](DType type) { return type == DType::kI8 || UnitRoundoff(type) > single; };
  if (coarse(contract.reduce_wire)) return true;
  const auto quantiser = contract.QuantiserOf(contract.act);
  const bool rows = quantiser && quantiser->group == 0;
  return std::any_of(spec.nodes.begin(), spec.nodes.end(), [&](const Node* node) {
    if (node->spread != reference::Spread::kPartial) return false;
    return (rows && node->op == reference::Op::kLinear) ||
           coarse(contract.RoundingOf(node->path, node->op_class));
  });
}

std::shared_ptr<const Chain> ChainOf(const CellSpec& spec, const abi::Outcome& outcome,
                                     const std::vector<judge::OpJudgement>& judgements) {
  const bool whole = IsLayer(spec) || spec.scope == "model";
  if (spec.mode != Mode::kScope || (!whole && spec.steps.size() > 1)) return nullptr;
  reference::RunRequest request;
  request.steps = spec.steps;
  request.mla_absorbed = spec.facts.contract->mla_absorbed;
  if (NeedsRanks(spec)) request.parallel = spec.parallel();
  Tensor input;
  TakeGiven(spec, &request, &input);
  TakeChoices(spec, outcome, RoutersToFollow(judgements), &request);
  if (spec.layer >= 0) request.last_layer = spec.layer;
  for (const Node* node : spec.nodes) {
    // Experts' own taps have no fixed rows: routing may differ.
    if (node->expert < 0) request.wanted.push_back(node->tap);
  }
  static Memory memory;
  const std::string key = KeyOfChain(spec, request);
  if (auto known = memory.Find(key)) return known;
  auto chain = Compute(spec, std::move(request));
  memory.Keep(key, chain);
  return chain;
}

}  // namespace assay::run
