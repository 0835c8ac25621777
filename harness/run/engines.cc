#include "harness/run/engines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <map>

#include "harness/abi/child.h"
#include "kernels/engines/native/native.h"
#include "kernels/faults/faults.h"
#include "kernels/registry.h"

namespace assay::run {

Result<EngineRef> FindEngine(const std::string& engine, const std::string& fault) {
  EngineRef found;
  found.name = engine;
  const bool faulty = !fault.empty() && fault != "none";
  if (engine == "native") {
    found.table = faulty ? kernels::FaultyEngine(fault) : kernels::NativeEngine();
    if (found.table == nullptr) {
      std::vector<std::string> names;
      for (const auto& known : kernels::Faults()) names.emplace_back(known.name);
      return Error{fmt::format("fault={}: allowed are none, {}", fault, fmt::join(names, ", "))};
    }
    return found;
  }
  if (faulty) return Error{fmt::format("fault={}: faults wrap the native engine only", fault)};
  std::error_code ignored;
  if (engine.find('/') == std::string::npos && !std::filesystem::exists(engine, ignored)) {
    return Error{fmt::format("engine={}: allowed are native and the path of a library", engine)};
  }
  if (!std::filesystem::exists(engine, ignored)) {
    return Error{fmt::format("engine={}: no such file", engine), ErrorKind::kEnvironment};
  }
  found.library = std::filesystem::absolute(engine).string();
  return found;
}

namespace {

// What an engine that says nothing is taken to do: fp32 results, nothing known of its sums.
Contract SilentContract() {
  Contract contract;
  contract.name = "not stated";
  contract.rounding["default"] = DType::kF32;
  return contract;
}

Result<abi::EngineFacts> AskLibrary(const EngineRef& engine) {
  abi::Script script;
  script.library = engine.library;
  const abi::Outcome outcome = abi::RunInChild(script);
  // open() may be refused for want of a model; what counts is that it described itself.
  if (outcome.engine_name.empty()) {
    return Error{fmt::format("engine={}: {}", engine.name, outcome.message)};
  }
  return abi::ParseDescribe(outcome.describe_json);
}

Result<abi::EngineFacts> Ask(const EngineRef& engine) {
  auto facts = engine.table == nullptr             ? AskLibrary(engine)
               : engine.table->describe == nullptr ? abi::ParseDescribe("")
                                                   : abi::ParseDescribe(engine.table->describe());
  if (facts && !facts->contract) facts->contract = SilentContract();
  return facts;
}

}  // namespace

Result<abi::EngineFacts> Describe(const EngineRef& engine) {
  static std::map<std::pair<const void*, std::string>, Result<abi::EngineFacts>> known;
  const auto key = std::make_pair(static_cast<const void*>(engine.table), engine.library);
  auto found = known.find(key);
  if (found == known.end()) found = known.emplace(key, Ask(engine)).first;
  return found->second;
}

std::vector<std::string> NativeTiers() {
  std::vector<std::string> tiers;
  for (const kernels::Tier tier :
       {kernels::Tier::kAvx512, kernels::Tier::kAvx2, kernels::Tier::kScalar}) {
    const bool built = kernels::Elementwise(tier) != nullptr;
    if (built && kernels::HostHas(tier)) tiers.emplace_back(kernels::NameOf(tier));
  }
  return tiers;
}

}  // namespace assay::run
