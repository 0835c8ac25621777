// A model run by the engine with a fault and by the one without, for comparing.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/engines/native/test_driver.h"

namespace assay::kernels {

inline constexpr const char* kInt4 = "goldens/quantised/k2-mini-int4-g32";
inline constexpr const char* kBf16 = "goldens/checkpoints/k2-mini";
inline const std::vector<int32_t> kForTokens = {256, 102, 111, 114, 32};  // "for "
const char* BestTier();                                                   // of this host

// How the two are run.
struct Setup {
  const char* path = kInt4;
  int tp = 4;
  const char* tier = BestTier();
  const char* options = "";
  const char* reduce = "";
  // Loads the same tensors with their rows rotated first.
  bool reload = false;
  std::vector<int32_t> tokens = kForTokens;
};

// An exported component in the checkpoint's row-major order.
std::vector<std::byte> RowMajor(const assay_shard& shard, const std::string& component);

struct Pair {
  Pair(std::string_view fault, const Setup& setup);

  // Ranks on which the component differs.
  std::set<int> DifferingShards(const std::string& component);
  // Of layer 1, where the inputs of its MLP are still the same in both: "L1.moe.out@3".
  std::set<std::string> DifferingTaps();
  // Rows in which a tap differs.
  std::set<int64_t> DifferingRows(const std::string& tap, int rank);
  bool LogitsDiffer() { return !(clean.taps[{"logits", -1}] == faulty.taps[{"logits", -1}]); }

  std::unique_ptr<Checkpoint> checkpoint;
  native::Driver clean, faulty;
};

// Those that name a routed expert and contain `op`.
std::set<std::string> ExpertTaps(const std::set<std::string>& taps, std::string_view op);
bool Any(const std::set<std::string>& taps, std::string_view end);
// All routed experts' taps that end so, of every rank.
std::set<std::string> AllExpertTaps(const native::Driver& driver, std::string_view end);

}  // namespace assay::kernels
