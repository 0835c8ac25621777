// doctor: what this machine can execute, natively or how.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "harness/cli/fetch.h"
#include "harness/cli/machine.h"
#include "harness/cli/options.h"
#include "harness/cli/verbs.h"
#include "harness/run/engines.h"
#include "harness/run/model.h"
#include "kernels/registry.h"

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

// How the native engine's kernels of a tier can run here.
struct TierFacts {
  std::string name;
  bool built = false;     // kernels of the tier are in this program
  bool has = false;       // the processor has the tier
  bool hardware = false;  // so its kernels run as they are
  bool portable = false;  // they are here as portable intrinsics too
  // What a cell of the tier does under --emulate=`way`: "hardware", "emulated (…)", or "" where it
  // is NOT_EXECUTED.
  std::string Does(std::string_view way) const {
    if (hardware && way != "always") return std::string(kernels::NameOf(kernels::How::kHardware));
    if (portable && way != "never") return std::string(kernels::NameOf(kernels::How::kPortable));
    return "";
  }
};

TierFacts FactsOf(const TierRow& row, const Machine& machine,
                  const std::vector<std::string>& native) {
  TierFacts facts;
  facts.name = row.name;
  facts.has = machine.HasAll(row.flags);
  for (const kernels::LinearKernel& kernel : kernels::LinearKernels()) {
    if (kernels::NameOf(kernel.tier) != facts.name) continue;
    facts.built = true;
    facts.portable |= kernel.how == kernels::How::kPortable;
  }
  facts.hardware = std::find(native.begin(), native.end(), facts.name) != native.end();
  return facts;
}

nlohmann::ordered_json OrNull(const std::string& text) {
  if (text.empty()) return nullptr;
  return text;
}

struct Fetched {
  std::string name;
  bool here = false;
};

// Models that `golden fetch` gets, and whether they are there; their hashes are not looked at.
std::vector<Fetched> FetchedHere() {
  std::vector<Fetched> models;
  auto files = ListFetched(run::GoldensFolder());
  if (!files) return models;  // golden verify says what is wrong
  for (const FetchedFile& file : *files) {
    std::error_code ignored;
    models.push_back({ShortName(file),
                      std::filesystem::exists(run::FetchedFolder() + "/" + file.file, ignored)});
  }
  return models;
}

constexpr const char* kWays[] = {"never", "auto", "always"};

void PrintTiers(const std::vector<TierFacts>& tiers) {
  std::puts("\ntier          kernels  processor   a cell of it runs");
  for (const TierFacts& tier : tiers) {
    const std::string runs = tier.Does("auto");
    std::puts(fmt::format("{:<13} {:<8} {:<11} {}", tier.name, tier.built ? "built" : "none",
                          tier.has ? "has it" : "has it not", runs.empty() ? "NOT_EXECUTED" : runs)
                  .c_str());
  }
  for (const TierFacts& tier : tiers) {
    if (!tier.portable) continue;
    std::puts(fmt::format("\n{} under --emulate:", tier.name).c_str());
    for (const char* way : kWays) {
      const std::string runs = tier.Does(way);
      std::puts(fmt::format("  {:<7} {}", way, runs.empty() ? "NOT_EXECUTED" : runs).c_str());
    }
  }
}

nlohmann::ordered_json TierJson(const TierFacts& tier) {
  nlohmann::ordered_json under = nlohmann::ordered_json::object();
  for (const char* way : kWays) under[way] = OrNull(tier.Does(way));
  return {{"tier", tier.name},
          {"hardware", tier.has},
          {"built", tier.built},
          {"native_engine", !tier.Does("auto").empty()},
          {"how", OrNull(tier.Does("auto"))},
          {"emulator", tier.portable ? nlohmann::ordered_json("portable intrinsics") : nullptr},
          {"emulate", under}};
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
  std::vector<TierFacts> tiers;
  for (const TierRow& row : TierRows()) tiers.push_back(FactsOf(row, machine, native));
  const std::vector<std::string> models = run::ShippedModels();
  if (json) {
    nlohmann::ordered_json out;
    out["cpu"] = machine.cpu;
    out["cores"] = machine.cores;
    out["memory_bytes"] = machine.memory_bytes;
    for (const TierFacts& tier : tiers) out["tiers"].push_back(TierJson(tier));
    out["models"] = models;
    for (const Fetched& model : FetchedHere()) out["fetched"][model.name] = model.here;
    std::puts(out.dump(2).c_str());
    return 0;
  }
  std::puts(fmt::format("{}, {} cores, {:.1f} GiB", machine.cpu, machine.cores,
                        static_cast<double>(machine.memory_bytes) / double(1 << 30))
                .c_str());
  PrintTiers(tiers);
  std::puts("\nmodels:");
  std::string line = " ";
  for (const std::string& model : models) {
    if (line.size() + model.size() > 76) {
      std::puts(line.c_str());
      line = " ";
    }
    line += " " + model;
  }
  std::puts(line.c_str());
  for (const Fetched& model : FetchedHere()) {
    std::puts(fmt::format("  {}: {}", model.name,
                          model.here ? "fetched"
                                     : "not here; ./assay golden fetch " + model.name + " gets it")
                  .c_str());
  }
  return 0;
}

}  // namespace assay::cli
