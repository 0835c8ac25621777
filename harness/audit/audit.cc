#include "harness/audit/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "harness/audit/facts.h"
#include "harness/audit/legality.h"
#include "harness/audit/listing.h"
#include "harness/audit/module.h"
#include "harness/audit/verdicts.h"

namespace assay::audit {
namespace {

// Of two cores from the page cache; said before a long audit, measured by it.
constexpr double kBytesPerSecond = 12e9;
// Names, shapes, tallies and the report's row of a tensor.
constexpr int64_t kBytesPerTensor = 1200;
constexpr int64_t kFixedBytes = 24 << 20;
constexpr uint64_t kScalarBytes = 64;

// The module that tensors sorted by name share is read once.
class Modules {
 public:
  explicit Modules(const Listing& listing) : listing_(listing) {}
  const Module* Of(const TensorView& tensor, const Role& role) {
    const std::string_view name = ModuleOf(tensor.name, role);
    if (!read_ || name != name_) {
      name_ = name;
      module_ = ReadModule(name, listing_, listing_.config ? &*listing_.config : nullptr);
      read_ = true;
    }
    return module_ ? &*module_ : nullptr;
  }

 private:
  const Listing& listing_;
  std::string name_;
  bool read_ = false;
  std::optional<Module> module_;
};

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

bool IsMain(const Module& module, const TensorView& tensor) {
  return module.codes != nullptr && module.codes->name == tensor.name;
}

// Parts that belong to quantised codes and to nothing else.
bool BelongsToCodes(Part part) {
  return part == Part::kScale || part == Part::kZero || part == Part::kOffset ||
         part == Part::kGIdx || part == Part::kShape || part == Part::kGlobalScale;
}

class Auditor {
 public:
  Auditor(Listing listing, const AuditOptions& options)
      : listing_(std::move(listing)), options_(options) {}

  Report Run(const std::string& path) {
    report_.path = path;
    report_.degrees = options_.degrees;
    report_.model = listing_.config && !listing_.config->architecture.empty()
                        ? listing_.config->architecture
                        : "unknown";
    report_.files = listing_.file_count;
    report_.findings = listing_.findings;
    for (const Listing::Entry& entry : listing_.entries()) {
      report_.bytes += static_cast<int64_t>(entry.bytes);
    }
    ReadHeaders();
    JudgePeers(listing_, &report_);
    ReadValues();
    JudgeValues(listing_, facts_, &report_);
    for (auto& [index, g_idx] : facts_.g_idx) {
      if (g_idx.finding) Tell(*g_idx.finding);
    }
    JudgeDegrees(listing_, facts_, &report_);
    Conclude();
    return std::move(report_);
  }

 private:
  // Roles, methods, and what does not fit between names, types and shapes.
  void ReadHeaders() {
    const size_t count = listing_.entries().size();
    facts_.lenses.reserve(count);
    report_.tensors.reserve(count);
    std::map<std::string, uint32_t> methods;
    Modules modules(listing_);
    for (const Listing::Entry& entry : listing_.entries()) {
      const TensorView& view = entry.view;
      const Role role = RoleOf(view, listing_);
      const Module* module = modules.Of(view, role);
      CheckHeader(entry, role, module);
      facts_.lenses.push_back(
          LensOf(view, role, listing_, module == nullptr ? Coding() : module->coding));
      const std::string id = MethodOf(view, role, module);
      const auto [at, added] = methods.emplace(id, static_cast<uint32_t>(report_.methods.size()));
      if (added) report_.methods.push_back({id, 0, 0});
      MethodRow& method = report_.methods[at->second];
      ++method.tensors;
      method.bytes += static_cast<int64_t>(entry.bytes);
      report_.tensors.push_back(
          {view.name, view.dtype, view.shape, static_cast<int64_t>(entry.bytes), at->second, 0});
    }
  }

  std::string MethodOf(const TensorView& view, const Role& role, const Module* module) const {
    if (IsBlock(view.dtype)) return "gguf-" + Lower(NameOf(view.dtype));
    if (module != nullptr && role.part != Part::kBias && !module->method.empty()) {
      return module->method;
    }
    return Lower(NameOf(view.dtype));
  }

  void CheckHeader(const Listing::Entry& entry, const Role& role, const Module* module) {
    const TensorView& view = entry.view;
    const std::string& file = listing_.files[entry.file];
    if (!role.type_fits) {
      Tell("dtype", view, file,
           fmt::format("is {}; a tensor named {} is {}", NameOf(view.dtype), role.suffix.substr(1),
                       role.allowed));
    }
    if (module != nullptr && IsMain(*module, view)) {
      for (Finding& finding : CheckModule(*module)) Tell(std::move(finding));
    }
    if (module == nullptr && BelongsToCodes(role.part) && role.suffix != ".scale" &&
        !HasWeight(view, role)) {
      Tell("missing", view, file,
           "nothing in the checkpoint is the quantised weight that it belongs to");
    }
  }

  // Activations' scales may stand beside a dense weight.
  bool HasWeight(const TensorView& view, const Role& role) const {
    const std::string_view module = ModuleOf(view.name, role);
    const bool activation = role.suffix.starts_with(".input_");
    for (const char* suffix : {".weight", "_weight", ".weight_packed", ".qweight", "_blocks"}) {
      if (const TensorView* weight = listing_.Find(Sibling(module, suffix))) {
        return activation || RoleOf(*weight, listing_).part == Part::kCodes;
      }
    }
    return false;
  }

  void Tell(std::string kind, const TensorView& view, const std::string& file, std::string detail) {
    report_.findings.push_back({std::move(kind), view.name, file, std::move(detail)});
  }

  // Of a tensor that is in the listing, whose file only the listing knows.
  void Tell(Finding finding) {
    if (const auto index = listing_.IndexOf(finding.tensor)) {
      finding.file = listing_.files[listing_.entries()[*index].file];
    }
    report_.findings.push_back(std::move(finding));
  }

  void ReadValues() {
    const auto& entries = listing_.entries();
    facts_.read_as.resize(entries.size());
    std::vector<size_t> order(entries.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::pair(entries[a].file, entries[a].offset) <
             std::pair(entries[b].file, entries[b].offset);
    });
    std::vector<StreamItem> items;
    items.reserve(order.size());
    uint64_t largest_whole = 0;
    for (const size_t i : order) {
      const Part part = RoleOf(entries[i].view, listing_).part;
      facts_.read_as[i] = static_cast<uint32_t>(items.size());
      const bool whole = part == Part::kShape || part == Part::kGIdx ||
                         (entries[i].bytes <= kScalarBytes && BelongsToCodes(part));
      if (whole) largest_whole = std::max(largest_whole, entries[i].bytes);
      items.push_back(
          {entries[i].file, entries[i].offset, entries[i].bytes, facts_.lenses[i], whole});
    }
    if (options_.on_estimate) {
      Estimate estimate;
      estimate.bytes = report_.bytes;
      estimate.memory = kFixedBytes + static_cast<int64_t>(entries.size()) * kBytesPerTensor +
                        static_cast<int64_t>(std::min(largest_whole, kMaxWhole));
      estimate.seconds = static_cast<double>(report_.bytes) / kBytesPerSecond;
      options_.on_estimate(estimate);
    }
    StreamOptions stream;
    stream.threads = options_.threads;
    stream.on_progress = options_.on_progress;
    stream.on_whole = [&](size_t item, std::span<const std::byte> bytes) {
      LookWhole(order[item], bytes);
    };
    StreamResult result = Stream(listing_.files, items, stream);
    facts_.tallies = std::move(result.tallies);
    report_.speed = {static_cast<int64_t>(result.bytes), result.seconds, options_.threads};
    for (const StreamError& error : result.errors) AddUnreadable(error, order);
  }

  void AddUnreadable(const StreamError& error, const std::vector<size_t>& order) {
    const std::string tensor = order.empty() ? "" : listing_.entries()[order[error.item]].view.name;
    const std::string more =
        error.more == 0 ? "" : fmt::format("; so are {} more tensors of the file", error.more);
    report_.findings.push_back(
        {"unreadable", tensor, listing_.files[error.file], "the file " + error.reason + more});
  }

  // Small tensors whose values are compared with others' shapes. In a worker's thread.
  void LookWhole(size_t index, std::span<const std::byte> bytes) {
    const TensorView& view = listing_.entries()[index].view;
    const Role role = RoleOf(view, listing_);
    const auto module = ReadModule(ModuleOf(view.name, role), listing_,
                                   listing_.config ? &*listing_.config : nullptr);
    if (role.part == Part::kGIdx) {
      GIdx g_idx = CheckGIdx(module ? &*module : nullptr, view, bytes);
      const std::lock_guard lock(mutex_);
      facts_.g_idx.emplace(index, std::move(g_idx));
    } else if (role.part == Part::kShape) {
      if (!module || !module->role.type_fits) return;
      if (auto finding = CheckStatedShape(*module, view, bytes)) {
        const std::lock_guard lock(mutex_);
        stated_.emplace(index, std::move(*finding));
      }
    } else if (bytes.size() == static_cast<size_t>(SizeOf(view.dtype).count())) {
      const std::lock_guard lock(mutex_);
      facts_.scalars.emplace(index, std::vector<std::byte>(bytes.begin(), bytes.end()));
    }
  }

  void Conclude() {
    for (auto& [index, finding] : stated_) Tell(std::move(finding));
    DropEchoes();
    ExplainMissing();
    Cap(&report_.findings);
    Cap(&report_.notes);
    // Names and shapes are kept once: the listing had them so far.
    std::vector<Listing::Entry> entries = listing_.Take();
    for (size_t i = 0; i < entries.size(); ++i) {
      report_.tensors[i].name = std::move(entries[i].view.name);
      report_.tensors[i].shape = std::move(entries[i].view.shape);
    }
  }

  // The planner's complaint about a tensor, or about one that a broken file would have had, repeats
  // what was found at its root.
  void DropEchoes() {
    std::set<std::string, std::less<>> told;
    for (const Finding& finding : report_.findings) {
      if (finding.kind != "config") told.insert(finding.tensor);
    }
    std::erase_if(report_.findings, [&](const Finding& finding) {
      return finding.kind == "config" && !finding.tensor.empty() && told.count(finding.tensor) > 0;
    });
  }

  // What is not there is no finding of its own where a file that should have it is not there.
  void ExplainMissing() {
    static const std::set<std::string, std::less<>> kLost = {"missing-shard", "unreadable",
                                                             "header", "truncated"};
    const auto lost =
        std::find_if(listing_.findings.begin(), listing_.findings.end(),
                     [](const Finding& finding) { return kLost.contains(finding.kind); });
    if (lost == listing_.findings.end()) return;
    const auto missing =
        std::stable_partition(report_.findings.begin(), report_.findings.end(),
                              [](const Finding& finding) { return finding.kind != "missing"; });
    for (auto at = missing; at != report_.findings.end(); ++at) {
      report_.notes.push_back(std::move(*at));
      report_.notes.back().detail += "; " + lost->file + " may have it";
    }
    report_.findings.erase(missing, report_.findings.end());
  }

  Listing listing_;
  const AuditOptions& options_;
  Facts facts_;
  Report report_;
  std::mutex mutex_;
  std::map<size_t, Finding> stated_;
};

}  // namespace

Result<Report> Audit(const std::string& path, const AuditOptions& options) {
  auto listing = Listing::Read(path);
  if (!listing) return listing.error();
  return Auditor(std::move(*listing), options).Run(path);
}

}  // namespace assay::audit
