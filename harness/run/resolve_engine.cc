// Who runs a cell, and how its weights, activations and sums are: engine, tier, method, kernel.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "harness/run/resolve_steps.h"

namespace assay::run {
namespace {

using reference::Node;
using reference::Op;

bool IsPlain(const std::string& method) {
  return method == "bf16" || method == "f16" || method == "f32";
}

bool HasLinear(const CellSpec& spec) {
  return std::any_of(spec.nodes.begin(), spec.nodes.end(),
                     [](const Node* node) { return node->op == Op::kLinear; });
}

// The method of most bytes of the weights that the cell's linear ops take; one that is quantised
// where any is.
std::string OwnMethod(const CellSpec& spec) {
  if (spec.mode == Mode::kLoad) return spec.model->method;
  std::set<std::string> parameters;
  for (const Node* node : spec.nodes) {
    if (node->op == Op::kLinear) parameters.insert(node->weight);
  }
  return MainMethod(*spec.model,
                    [&](const std::string& parameter) { return parameters.count(parameter) > 0; });
}

// Parameters that engines join with this one into one matrix, itself included: they are stored the
// same way.
std::vector<std::string> JoinedWith(const std::string& parameter) {
  static const std::vector<std::vector<std::string>> kJoined = {
      {"gate", "up"}, {"q", "k", "v"}, {"q_a", "kv_a"}};
  const size_t dot = parameter.rfind('.') + 1;
  const std::string word = parameter.substr(dot);
  for (const auto& words : kJoined) {
    if (std::find(words.begin(), words.end(), word) == words.end()) continue;
    std::vector<std::string> joined;
    for (const std::string& other : words) joined.push_back(parameter.substr(0, dot) + other);
    return joined;
  }
  return {parameter};
}

// The same as a config.json's first member.
constexpr const char* kInt4Json =
    R"("quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized",)"
    R"( "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4,)"
    R"( "type": "int", "symmetric": true, "strategy": "group", "group_size": 32}}}},)";

QuantConfig Int4Config() {
  QuantConfig quant;
  quant.method = "compressed-tensors";
  quant.format = "pack-quantized";
  quant.weight_type = "int";
  quant.bits = 4;
  quant.group_size = 32;
  quant.strategy = "group";
  return quant;
}

// Weights of the asked method in place of the checkpoint's, for the picked ops.
Status MakeMethod(CellSpec* spec, const std::string& method) {
  std::set<std::string> parameters;
  for (const Node* node : spec->nodes) {
    for (std::string& joined : JoinedWith(node->weight)) parameters.insert(std::move(joined));
  }
  std::vector<MadeParameter> made;
  for (const shard::Component& component : spec->model->components) {
    const std::string parameter = ParameterOf(component.name);
    if (!component.name.ends_with(".weight") || parameters.count(parameter) == 0) continue;
    made.push_back({component.source.substr(0, component.source.rfind('.')), component.rows,
                    component.row_elements.count()});
    spec->made_method_of[parameter] = method;
  }
  auto source = MakeSource(*spec->model->checkpoint, method, made);
  if (!source) return source.error();
  spec->made = std::move(*source);
  // Where the config knows nothing of compressed-tensors it is told, as a file's would be.
  if (method == "ct-int4-g32" && spec->config.quant.method.empty()) {
    spec->config.quant = Int4Config();
    const size_t open = spec->config_json.find('{');
    if (open != std::string::npos) spec->config_json.insert(open + 1, kInt4Json);
  }
  spec->weights = spec->made.get();
  return Ok();
}

// group= states the weights' own, as method= does; it does not choose.
Status CheckGroup(const CellSpec& spec, const std::string& method) {
  const std::string group = spec.problem.Get("group");
  if (group.empty()) return Ok();
  const size_t at = method.rfind("-g");
  const std::string own = at == std::string::npos ? "" : method.substr(at + 2);
  if (group == own) return Ok();
  return Error{fmt::format("group={}: the weights of this cell are stored as {}{}", group, method,
                           own.empty() ? ", without groups" : "")};
}

// The one kernel that the engine lists for this cell's method, tier and activations; empty where
// the cell has no linear op, or the engine lists none or several: then it is the engine's choice.
std::string OwnKernel(const CellSpec& spec, const std::string& act) {
  std::string name;
  if (!HasLinear(spec)) return name;
  for (const abi::DescribedKernel& kernel : spec.facts.kernels) {
    if (kernel.op != "linear" || kernel.method != spec.problem.Get("method") ||
        kernel.tier != spec.problem.Get("tier") ||
        (!act.empty() && !kernel.act.empty() && kernel.act != act)) {
      continue;
    }
    if (!name.empty()) return "";
    name = kernel.name;
  }
  return name;
}

// Activations of quantised weights: as asked for, the asked kernel's, or the contract's.
Status ResolveAct(CellSpec* spec) {
  Problem& problem = spec->problem;
  std::string act = problem.Get("act");
  const bool quantised = HasLinear(*spec) && !IsPlain(problem.Get("method"));
  if (quantised) {
    const abi::DescribedKernel* kernel = spec->facts.FindKernel(problem.Get("kernel"));
    if (act.empty() && kernel != nullptr) act = kernel->act;
    if (act.empty()) act = spec->facts.contract->act;
    problem.keys["act"] = spec->facts.contract->act = act;
    if (!abi::MayHave(spec->facts.acts, act)) {
      return Error{fmt::format("the engine does not take act {}; it has {}", act,
                               fmt::join(*spec->facts.acts, ", ")),
                   ErrorKind::kUnsupported};
    }
  }
  const std::string kernel = OwnKernel(*spec, act);
  if (!problem.Has("kernel") && !kernel.empty()) problem.keys["kernel"] = kernel;
  return Ok();
}

}  // namespace

std::string CellSpec::MethodOf(const std::string& parameter) const {
  for (const auto* methods : {&made_method_of, &model->method_of}) {
    if (const auto found = methods->find(parameter); found != methods->end()) return found->second;
  }
  return "bf16";
}

bool CellSpec::eight_bit() const {
  return facts.contract && facts.contract->QuantiserOf(facts.contract->act).has_value();
}

bool Emulates(const CellSpec& spec) {
  return spec.facts.emulates && abi::MayHave(spec.facts.emulates, spec.problem.Get("tier"));
}

Status ResolveEngine(CellSpec* spec) {
  Problem& problem = spec->problem;
  auto engine = FindEngine(problem.Get("engine"), problem.Get("fault"));
  if (!engine) return engine.error();
  spec->engine = std::move(*engine);
  auto facts = Describe(spec->engine);
  if (!facts) return facts.error();
  spec->facts = std::move(*facts);
  if (problem.Get("tier").empty()) {
    std::string best = "scalar";
    for (const std::string& tier : NativeTiers()) {
      if (!abi::MayHave(spec->facts.tiers, tier)) continue;
      best = tier;
      break;
    }
    problem.keys["tier"] = best;
  }
  if (problem.Get("reload") == "1" && !spec->facts.reloads) {
    return Error{"reload=1: the engine does not say that a second load replaces the first",
                 ErrorKind::kUnsupported};
  }
  return Ok();
}

Status ResolveMethod(CellSpec* spec) {
  Problem& problem = spec->problem;
  const std::string own = spec->converted != nullptr ? problem.Get("method") : OwnMethod(*spec);
  const std::string asked = problem.Has("method") ? problem.Get("method") : own;
  const auto& made = MadeMethods();
  if (asked != own) {
    const bool one_op = problem.kind == "linear" && problem.Get("op") != "all";
    if (!one_op || std::find(made.begin(), made.end(), asked) == made.end()) {
      return Error{
          fmt::format("method={}: the weights of this cell are stored as {}; a checkpoint of "
                      "another method is named by model=, and for linear cells of one op (op=) "
                      "weights can be made for {}",
                      asked, own, fmt::join(made, ", "))};
    }
  }
  // A fill that makes weights makes blocks as it makes another method's.
  const bool blocks = spec->mode == Mode::kOps && asked.starts_with("gguf-q") &&
                      std::find(made.begin(), made.end(), asked) != made.end();
  if (asked != own || (blocks && GeneratesWeights(spec->fill))) {
    if (auto status = MakeMethod(spec, asked); !status) return status;
  }
  problem.keys["method"] = asked;
  if (auto status = CheckGroup(*spec, asked); !status) return status;
  return ResolveAct(spec);
}

Status ResolveReduce(CellSpec* spec) {
  if (spec->mode == Mode::kLoad || spec->mode == Mode::kOps) return Ok();
  const std::string asked = spec->problem.Get("reduce");
  Contract& contract = *spec->facts.contract;
  const size_t colon = asked.find(':');
  const std::string order = asked.substr(0, colon), wire = asked.substr(colon + 1);
  const std::map<std::string, DType> wires = {{"fp32", DType::kF32}, {"bf16", DType::kBF16}};
  const auto type = wires.find(wire);
  if (!spec->facts.reduces) {
    // It promises nothing but what its contract says, which then enters the bound.
    const bool own = type != wires.end() && contract.reduce_order == order &&
                     contract.reduce_wire == type->second;
    if (own || !spec->problem.Has("reduce") || asked == "sequential:fp32") return Ok();
    return Error{fmt::format("reduce={}: the engine states no such sum over ranks", asked),
                 ErrorKind::kUnsupported};
  }
  if (!abi::MayHave(spec->facts.reduces, asked) || type == wires.end()) {
    return Error{fmt::format("reduce={}: the engine's sums over ranks are {}; modelled are those "
                             "with fp32 and bf16",
                             asked, fmt::join(*spec->facts.reduces, ", ")),
                 ErrorKind::kUnsupported};
  }
  contract.reduce_exact = true;
  contract.reduce_order = order;
  contract.reduce_wire = type->second;
  return Ok();
}

}  // namespace assay::run
