#include "kernels/engines/native/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/loaders/engine_error.h"

namespace assay::kernels::native {
namespace {

constexpr std::array kTiers = {Tier::kScalar, Tier::kAvx2};
constexpr int kMostThreads = 1024;

std::string NamesOf(const std::vector<Tier>& tiers) {
  std::string names;
  for (Tier tier : tiers) names += fmt::format("{}{}", names.empty() ? "" : ", ", NameOf(tier));
  return names;
}

Tier ChooseTier(const std::string& wish) {
  const std::vector<Tier> built = BuiltTiers();
  if (wish.empty()) {
    for (auto tier = built.rbegin(); tier != built.rend(); ++tier) {
      if (HostHas(*tier)) return *tier;
    }
  }
  for (Tier tier : built) {
    if (NameOf(tier) != wish) continue;
    if (HostHas(tier)) return tier;
    throw EngineError(ASSAY_UNSUPPORTED, fmt::format("this host does not have tier {}", wish));
  }
  throw EngineError(ASSAY_UNSUPPORTED,
                    fmt::format("tier '{}' is not built; built are {}", wish, NamesOf(built)));
}

int CheckedThreads(int threads) {
  if (threads >= 1 && threads <= kMostThreads) return threads;
  throw EngineError(ASSAY_REFUSED,
                    fmt::format("threads is {}; allowed is 1 to {}", threads, kMostThreads));
}

}  // namespace

std::vector<Tier> BuiltTiers() {
  std::vector<Tier> built;
  for (Tier tier : kTiers) {
    if (Elementwise(tier) != nullptr) built.push_back(tier);
  }
  return built;
}

std::string ElementwiseName(std::string_view op, Tier tier) {
  return fmt::format("{}_{}", op, NameOf(tier));
}

std::span<const std::string_view> ElementwiseOps() {
  static constexpr std::array<std::string_view, 8> kOps = {"rms_norm", "swiglu",  "rope", "scores",
                                                           "context",  "sigmoid", "add",  "axpy"};
  return kOps;
}

Dispatcher::Dispatcher(const KernelWishes& wishes, Memory* memory, const Interceptor* hooks)
    : tier_(ChooseTier(wishes.tier)),
      wishes_(wishes),
      memory_(memory),
      hooks_(hooks),
      elementwise_(Elementwise(tier_)),
      pool_(CheckedThreads(wishes.threads)) {
  if (wishes_.method.empty()) wishes_.method = "bf16";
  if (!wishes_.kernel.empty()) {
    const auto rows = LinearKernels();
    const auto named = std::find_if(rows.begin(), rows.end(), [&](const LinearKernel& row) {
      return row.name == wishes_.kernel && row.tier == tier_;
    });
    if (named == rows.end()) {
      throw EngineError(ASSAY_UNSUPPORTED,
                        fmt::format("no kernel '{}' of tier {}", wishes_.kernel, NameOf(tier_)));
    }
    // The name speaks for its own method's weights.
    wishes_.method = std::string(named->method);
  }
  Choose(wishes_.method);
}

// Wishes speak of the quantised weights; what a model keeps in bf16 beside them runs as it does.
const LinearKernel* Dispatcher::Choose(std::string_view method) const {
  const bool wished = method == wishes_.method;
  for (const LinearKernel& row : LinearKernels()) {
    if (row.tier != tier_ || row.method != method) continue;
    if (wished && !wishes_.kernel.empty() && row.name != wishes_.kernel) continue;
    if (wished && !wishes_.layout.empty() && row.layout != wishes_.layout) continue;
    if (wished && !wishes_.act.empty() && row.act != wishes_.act) continue;
    return &row;
  }
  const auto said = [](std::string_view key, const std::string& value) {
    return value.empty() ? std::string() : fmt::format(" {} {}", key, value);
  };
  throw EngineError(
      ASSAY_UNSUPPORTED,
      fmt::format("no kernel for method {} of tier {}{}", method, NameOf(tier_),
                  wished ? said("named", wishes_.kernel) + said("with layout", wishes_.layout) +
                               said("with act", wishes_.act)
                         : ""));
}

void Dispatcher::RunLinear(int rank, std::span<const std::string> taps, const Parameter& parameter,
                           const uint16_t* x, int64_t m, int64_t row_begin, int64_t row_end,
                           float* y) {
  LinearCall call{rank, taps, parameter.kernel, parameter.View(), x, m, {}};
  if (hooks_ != nullptr) hooks_->BeforeLinear(call);
  const LinearKernel& kernel = *call.kernel;
  if (call.weight.layout != kernel.layout) {
    throw EngineError(ASSAY_REFUSED,
                      fmt::format("{}: {} takes layout {}, the weight lies in {}", taps.front(),
                                  kernel.name, kernel.layout, call.weight.layout));
  }
  // A kernel takes rows from a multiple of its tile; a segment may begin between two.
  const int64_t tile = std::max<int64_t>(kernel.row_tile, 1);
  const int64_t first = row_begin / tile * tile;
  const int64_t last = std::min(call.weight.n, (row_end + tile - 1) / tile * tile);
  int threads = 0;
  if (m > 0) {
    threads = pool_.Split(last - first, tile, [&](int64_t begin, int64_t end) {
      kernel.run(call.weight, Activations{.bf16 = call.x}, m, first + begin, first + end, y, call.weight.n);
    });
  }
  for (const std::string& tap : taps) {
    Record(tap, rank, std::string(kernel.name), std::string(NameOf(kernel.tier)),
           std::string(kernel.layout), std::string(kernel.act), threads);
  }
}

void Dispatcher::RecordElementwise(const std::string& tap, int rank, std::string_view op) const {
  Record(tap, rank, ElementwiseName(op, elementwise_->tier),
         std::string(NameOf(elementwise_->tier)), "", "", 1);
}

void Dispatcher::RecordUntiered(const std::string& tap, int rank, std::string_view what) const {
  Record(tap, rank, std::string(what), std::string(NameOf(tier_)), "", "", 1);
}

void Dispatcher::Record(const std::string& tap, int rank, const std::string& kernel,
                        const std::string& tier, const std::string& layout, const std::string& act,
                        int threads) const {
  const assay_host& host = memory_->host();
  if (host.executed == nullptr) return;
  assay_executed record{};
  record.size = sizeof record;
  record.tap = tap.c_str();
  record.rank = rank;
  record.kernel = kernel.c_str();
  record.tier = tier.c_str();
  record.layout = layout.c_str();
  record.act = act.c_str();
  record.threads = threads;
  host.executed(host.context, &record);
}

}  // namespace assay::kernels::native
