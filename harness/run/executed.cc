// What really ran, by the engine's own record, against what was asked for and what it says of
// itself.
#include "harness/run/executed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "kernels/registry.h"

namespace assay::run {
namespace {

using reference::Node;

// Columns of the executed record that several ops can differ in.
std::string Distinct(const std::set<std::string>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

constexpr const char* kHardware = "hardware";

// How it ran, by the records: hardware only where each says so. Of a load nothing is recorded; its
// tier is emulated where the host lacks it.
std::string HowOf(const CellSpec& spec, const abi::Outcome& outcome, const std::string& emulate) {
  std::set<std::string> emulated;
  for (const ExecutedRecord& record : outcome.trace.executed) {
    if (!record.how.empty() && record.how != kHardware) emulated.insert(record.how);
  }
  const std::vector<std::string> tiers = NativeTiers();
  const bool has = std::find(tiers.begin(), tiers.end(), spec.problem.Get("tier")) != tiers.end();
  if (spec.mode == Mode::kLoad && Emulates(spec) && (!has || emulate == "always")) {
    emulated.insert(std::string(kernels::NameOf(kernels::How::kPortable)));
  }
  return emulated.empty() ? kHardware : Distinct(emulated);
}

// Whether the record is of the weights that the cell's kernel, layout and act are about: those of
// its method. Others of the cell (bf16 beside int4 experts, another type of a mixed file) take
// their own.
bool IsOfMethod(const CellSpec& spec, const ExecutedRecord& record) {
  if (record.layout.empty()) return false;
  const abi::DescribedKernel* kernel = spec.facts.FindKernel(record.kernel);
  return kernel == nullptr || kernel->method == spec.problem.Get("method");
}

// The first record that differs from what a key asks of the method's weights; nullptr: none does.
const ExecutedRecord* Other(const CellSpec& spec, const abi::Outcome& outcome, const char* key,
                            std::string ExecutedRecord::*member) {
  const std::string wanted = spec.problem.Get(key);
  if (wanted.empty()) return nullptr;
  for (const ExecutedRecord& record : outcome.trace.executed) {
    if (IsOfMethod(spec, record) && record.*member != wanted) return &record;
  }
  return nullptr;
}

// Every op with weights must have a record, and that of the method's weights the asked kernel,
// layout and activations.
std::string OtherKernel(const CellSpec& spec, const abi::Outcome& outcome) {
  if (spec.mode == Mode::kLoad || spec.mode == Mode::kCollective) return "";
  std::set<std::pair<std::string, int>> recorded;
  for (const ExecutedRecord& record : outcome.trace.executed) {
    recorded.insert({record.tap, record.rank});
  }
  for (const auto& [key, member] : {std::pair{"kernel", &ExecutedRecord::kernel},
                                    {"layout", &ExecutedRecord::layout},
                                    {"act", &ExecutedRecord::act}}) {
    const ExecutedRecord* other = Other(spec, outcome, key, member);
    if (other == nullptr) continue;
    const std::string& ran = other->*member;
    return fmt::format("asked for {} {}, {} ran for {}", key, spec.problem.Get(key),
                       ran.empty() ? "none that was recorded" : ran, other->tap);
  }
  for (const auto& [key, value] : outcome.trace.taps) {
    const Node* node = spec.oracle->FindNode(key.tap);
    if (node == nullptr || node->op != reference::Op::kLinear || key.rank < 0) continue;
    if (recorded.count({key.tap, key.rank}) == 0 && recorded.count({key.tap, -1}) == 0) {
      return fmt::format("no record of what ran for {} on rank {}", key.tap, key.rank);
    }
  }
  return "";
}

// A tier that must not, or must, be emulated.
std::string OtherWay(const Executed& executed, const std::string& emulate) {
  if (emulate == "never" && executed.how != kHardware) {
    return fmt::format("nothing was to be emulated, and it ran as {}", executed.how);
  }
  if (emulate == "always" && executed.how == kHardware) {
    return "emulation was demanded, and it ran as hardware";
  }
  return "";
}

}  // namespace

Executed ReadExecuted(const CellSpec& spec, const abi::Outcome& outcome,
                      const std::string& emulate) {
  Executed executed;
  std::set<std::string> kernels, tiers, layouts, acts;
  std::map<int, std::set<std::string>> by_rank;
  for (const ExecutedRecord& record : outcome.trace.executed) {
    if (!record.layout.empty()) {
      kernels.insert(record.kernel);
      layouts.insert(record.layout);
      acts.insert(record.act);
    }
    tiers.insert(record.tier);
    executed.threads = std::max<int64_t>(executed.threads, record.threads);
    by_rank[record.rank].insert(record.tap + " " + record.kernel + " " + record.tier);
  }
  if (kernels.empty()) {
    for (const ExecutedRecord& record : outcome.trace.executed) kernels.insert(record.kernel);
  }
  if (spec.mode == Mode::kLoad) {
    kernels.insert("loader");
    tiers.insert(spec.problem.Get("tier"));
    for (const auto& [key, shard] : outcome.trace.shards) layouts.insert(shard.layout);
  }
  executed.kernel = Distinct(kernels);
  executed.tier = Distinct(tiers);
  executed.layout = Distinct(layouts);
  executed.act = Distinct(acts);
  executed.how = HowOf(spec, outcome, emulate);
  executed.engine = outcome.engine_name + "@" + outcome.engine_revision;
  executed.tp = spec.degrees.tp;
  const auto first = by_rank.find(0);
  for (const auto& [rank, ran] : by_rank) {
    if (rank > 0 && first != by_rank.end() && ran != first->second) {
      executed.ranks_differ.push_back(rank);
    }
  }
  return executed;
}

std::string Fallback(const CellSpec& spec, const abi::Outcome& outcome, const Executed& executed,
                     const std::string& emulate) {
  const std::string tier = spec.problem.Get("tier");
  if (!tier.empty() && executed.tier != tier) {
    return fmt::format("asked for tier {}, {} ran", tier,
                       executed.tier.empty() ? "nothing that was recorded" : executed.tier);
  }
  if (const std::string other = OtherWay(executed, emulate); !other.empty()) return other;
  if (const std::string other = OtherKernel(spec, outcome); !other.empty()) return other;
  const std::string threads = spec.problem.Get("threads");
  if (!threads.empty() && spec.mode != Mode::kLoad && executed.threads != std::stoll(threads)) {
    return fmt::format("asked for {} threads, {} ran", threads, executed.threads);
  }
  const std::string layout = spec.problem.Get("layout");
  if (!layout.empty() && executed.layout.empty()) {
    return fmt::format("asked for layout {}, none that was recorded ran", layout);
  }
  return "";
}

std::string Unlisted(const CellSpec& spec, const abi::Outcome& outcome) {
  if (spec.facts.kernels.empty()) return "";
  for (const ExecutedRecord& record : outcome.trace.executed) {
    if (record.layout.empty()) continue;  // ops without a weight need not be listed
    const abi::DescribedKernel* kernel = spec.facts.FindKernel(record.kernel);
    if (kernel == nullptr) {
      return fmt::format("{} on rank {}: kernel {} ran, which describe() does not list", record.tap,
                         record.rank, record.kernel);
    }
    if (!kernel->layout.empty() && kernel->layout != record.layout) {
      return fmt::format("{} on rank {}: kernel {} ran on layout {}, describe() says {}",
                         record.tap, record.rank, record.kernel, record.layout, kernel->layout);
    }
    if (!kernel->act.empty() && !record.act.empty() && kernel->act != record.act) {
      return fmt::format("{} on rank {}: kernel {} ran on act {}, describe() says {}", record.tap,
                         record.rank, record.kernel, record.act, kernel->act);
    }
    if (!kernel->tier.empty() && kernel->tier != record.tier) {
      return fmt::format("{} on rank {}: kernel {} ran as tier {}, describe() says {}", record.tap,
                         record.rank, record.kernel, record.tier, kernel->tier);
    }
  }
  return "";
}

}  // namespace assay::run
