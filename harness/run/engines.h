// Engines by name: the native one, the native one with a fault, or somebody's library.
#pragma once

#include <string>
#include <vector>

#include "harness/abi/assay_engine.h"
#include "harness/abi/describe.h"
#include "harness/units/status.h"

namespace assay::run {

struct EngineRef {
  const assay_engine* table = nullptr;  // linked in
  std::string library;                  // or a path; opened in the child only
  std::string name;                     // as asked for
};

// `engine`: "native", or a path to a shared library. A fault wraps the native engine only.
Result<EngineRef> FindEngine(const std::string& engine, const std::string& fault);

// What an engine says of itself. A library is asked in a child process, once a path.
Result<abi::EngineFacts> Describe(const EngineRef& engine);

// Tiers that the linked engines have and this host can run as hardware, best first.
std::vector<std::string> NativeTiers();

}  // namespace assay::run
