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

Result<abi::EngineFacts> Describe(const EngineRef& engine) {
  if (engine.table != nullptr) {
    if (engine.table->describe == nullptr) return abi::EngineFacts{};
    return abi::ParseDescription(engine.table->describe());
  }
  static std::map<std::string, Result<abi::EngineFacts>> known;
  if (const auto found = known.find(engine.library); found != known.end()) return found->second;
  abi::Script script;
  script.library = engine.library;
  const abi::Outcome outcome = abi::RunInChild(script);
  // open() alone may be refused for want of a model; what counts is that it described itself.
  Result<abi::EngineFacts> facts =
      outcome.describe_json.empty()
          ? (outcome.engine_name.empty() ? Result<abi::EngineFacts>(Error{fmt::format(
                                               "engine={}: {}", engine.name, outcome.message)})
                                         : Result<abi::EngineFacts>(abi::EngineFacts{}))
          : abi::ParseDescription(outcome.describe_json);
  known.emplace(engine.library, facts);
  return facts;
}

std::vector<std::string> NativeTiers() {
  std::vector<std::string> tiers;
  for (const kernels::Tier tier : {kernels::Tier::kAvx2, kernels::Tier::kScalar}) {
    if (kernels::HostHas(tier)) tiers.emplace_back(kernels::NameOf(tier));
  }
  return tiers;
}

}  // namespace assay::run
