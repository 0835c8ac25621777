#include "kernels/engines/native/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "kernels/loaders/engine_error.h"

namespace assay::kernels::native {
namespace {

constexpr std::array kTiers = {Tier::kScalar, Tier::kAvx2, Tier::kAvx512};
constexpr int kMostThreads = 1024;
constexpr std::string_view kUnquantised = "bf16";

std::string NamesOf(const std::vector<Tier>& tiers) {
  std::string names;
  for (Tier tier : tiers) names += fmt::format("{}{}", names.empty() ? "" : ", ", NameOf(tier));
  return names;
}

bool Contains(const std::vector<Tier>& tiers, Tier tier) {
  return std::find(tiers.begin(), tiers.end(), tier) != tiers.end();
}

[[noreturn]] void Unsupported(std::string message) {
  throw EngineError(ASSAY_UNSUPPORTED, std::move(message));
}

struct Way {
  Tier tier;
  How how;
};

// Emulation is for what was demanded by name; left to itself the engine takes the host's best.
Way ChooseTier(const std::string& wish, const std::string& emulate) {
  if (!emulate.empty() && emulate != "auto" && emulate != "never" && emulate != "always") {
    Unsupported(fmt::format("emulate={}; known are never, auto, always", emulate));
  }
  const bool must = emulate == "always", may = emulate != "never";
  const std::vector<Tier> built = BuiltTiers(), portable = BuiltTiers(How::kPortable);
  if (wish.empty()) {
    const std::vector<Tier>& from = must ? portable : built;
    for (auto tier = from.rbegin(); tier != from.rend(); ++tier) {
      if (must) return {*tier, How::kPortable};
      if (HostHas(*tier)) return {*tier, How::kHardware};
    }
    Unsupported("no tier can be emulated");
  }
  for (Tier tier : kTiers) {
    if (NameOf(tier) != wish) continue;
    if (!must && Contains(built, tier) && HostHas(tier)) return {tier, How::kHardware};
    const bool can = Contains(portable, tier);
    if (may && can) return {tier, How::kPortable};
    if (must) Unsupported(fmt::format("tier {} cannot be emulated", wish));
    if (can || Contains(built, tier)) {
      Unsupported(fmt::format("this host does not have tier {}, and it {} be emulated", wish,
                              can ? "may not" : "cannot"));
    }
  }
  Unsupported(fmt::format("tier '{}' is not built; built are {}", wish, NamesOf(built)));
}

int CheckedThreads(int threads) {
  if (threads >= 1 && threads <= kMostThreads) return threads;
  throw EngineError(ASSAY_REFUSED,
                    fmt::format("threads is {}; allowed is 1 to {}", threads, kMostThreads));
}

}  // namespace

std::vector<Tier> BuiltTiers(How how) {
  std::vector<Tier> built;
  for (Tier tier : kTiers) {
    if (Elementwise(tier, how) != nullptr) built.push_back(tier);
  }
  return built;
}

std::string ElementwiseName(std::string_view op, Tier tier) {
  return fmt::format("{}_{}", op, NameOf(tier));
}

std::span<const std::string_view> ElementwiseOps() {
  static constexpr std::array<std::string_view, 9> kOps = {
      "rms_norm", "swiglu", "situ", "rope", "scores", "context", "sigmoid", "add", "axpy"};
  return kOps;
}

Dispatcher::Dispatcher(const KernelWishes& wishes, Memory* memory, const Interceptor* hooks)
    : memory_(memory), hooks_(hooks), pool_(CheckedThreads(wishes.threads)) {
  const Way way = ChooseTier(wishes.tier, wishes.emulate);
  mode_ = {way.tier, way.how, wishes.method, wishes.layout, wishes.act, wishes.kernel};
  elementwise_ = Elementwise(mode_.tier, mode_.how);
  if (mode_.method.empty()) mode_.method = kUnquantised;
  if (!mode_.kernel.empty()) {
    // The name speaks for its own method's weights, or for the stated one's where it takes them.
    const LinearKernel* named = FindKernel(LinearKernels(), mode_.kernel, mode_);
    if (named != nullptr && !Takes(*named, mode_.method)) {
      mode_.method = std::string(named->method);
    }
  }
  const Status possible = CheckMode(mode_, LinearKernels());
  if (!possible) throw EngineError(possible.error());
}

void Dispatcher::RunLinear(int rank, std::span<const std::string> taps, const Parameter& parameter,
                           const Activations& x, int64_t m, int64_t row_begin, int64_t row_end,
                           float* y) {
  LinearCall call{rank, taps, parameter.kernel, parameter.View(), x, m, {}, {}, {}, {}};
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
      kernel.run(call.weight, call.x, m, first + begin, first + end, y, call.weight.n);
    });
  }
  for (const std::string& tap : taps) {
    Record(tap, rank, std::string(kernel.name), std::string(NameOf(kernel.tier)), kernel.how,
           std::string(kernel.layout), std::string(kernel.act), threads);
  }
}

void Dispatcher::RecordElementwise(const std::string& tap, int rank, std::string_view op) const {
  Record(tap, rank, ElementwiseName(op, elementwise_->tier),
         std::string(NameOf(elementwise_->tier)), elementwise_->how, "", "", 1);
}

void Dispatcher::RecordUntiered(const std::string& tap, int rank, std::string_view what) const {
  Record(tap, rank, std::string(what), std::string(NameOf(tier())), how(), "", "", 1);
}

void Dispatcher::Record(const std::string& tap, int rank, const std::string& kernel,
                        const std::string& tier, How how, const std::string& layout,
                        const std::string& act, int threads) const {
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
  const std::string said(NameOf(how));
  record.how = said.c_str();
  host.executed(host.context, &record);
}

}  // namespace assay::kernels::native
