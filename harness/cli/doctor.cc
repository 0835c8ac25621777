// doctor: what this machine can execute, natively or how.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "harness/cli/machine.h"
#include "harness/cli/options.h"
#include "harness/cli/verbs.h"
#include "harness/run/engines.h"
#include "harness/run/model.h"

namespace assay::cli {
namespace {

// The tiers of the matrix, and what each needs of the processor.
struct TierRow {
  const char* name;
  std::vector<std::string> flags;
};

const std::vector<TierRow>& TierRows() {
  static const std::vector<TierRow> rows = {
      {"scalar", {}},
      {"avx2", {"avx2", "fma"}},
      {"avxvnni", {"avx_vnni"}},
      {"avx512", {"avx512f", "avx512bw", "avx512dq", "avx512vl"}},
      {"avx512_vnni", {"avx512_vnni"}},
      {"avx512_vbmi", {"avx512vbmi"}},
      {"avx512_bf16", {"avx512_bf16"}},
      {"amx_int8", {"amx_tile", "amx_int8"}},
      {"amx_bf16", {"amx_tile", "amx_bf16"}},
  };
  return rows;
}

}  // namespace

int Doctor(int argc, char** argv) {
  bool json = false;
  Options options("doctor", "What this machine can execute, natively or how, and with what.",
                  "./assay doctor --json");
  options.Flag("--json", &json, "print JSON");
  if (auto code = options.Parse(argc, argv)) return *code;
  const Machine machine = ReadMachine();
  const std::vector<std::string> native = run::NativeTiers();
  nlohmann::ordered_json out;
  out["cpu"] = machine.cpu;
  out["cores"] = machine.cores;
  out["memory_bytes"] = machine.memory_bytes;
  for (const TierRow& row : TierRows()) {
    const bool has = machine.HasAll(row.flags);
    const bool built = std::find(native.begin(), native.end(), row.name) != native.end();
    out["tiers"].push_back(
        {{"tier", row.name}, {"hardware", has}, {"native_engine", built}, {"emulator", nullptr}});
  }
  out["models"] = run::ShippedModels();
  if (json) {
    std::puts(out.dump(2).c_str());
    return 0;
  }
  std::puts(fmt::format("{}, {} cores, {:.1f} GiB", machine.cpu, machine.cores,
                        static_cast<double>(machine.memory_bytes) / double(1 << 30))
                .c_str());
  std::puts("\ntier          this machine   native engine here");
  for (const auto& tier : out["tiers"]) {
    std::puts(fmt::format("{:<13} {:<14} {}", tier["tier"].get<std::string>(),
                          tier["hardware"].get<bool>() ? "has it" : "has it not",
                          tier["native_engine"].get<bool>() ? "runs it" : "NOT_EXECUTED")
                  .c_str());
  }
  std::puts(fmt::format("\nmodels: {}", fmt::join(run::ShippedModels(), ", ")).c_str());
  std::puts(
      "No emulator is built yet: a cell that demands a tier without hardware or without a\n"
      "kernel is NOT_EXECUTED.");
  return 0;
}

}  // namespace assay::cli
