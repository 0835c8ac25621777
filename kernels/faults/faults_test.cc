// Each fault changes what it says, where it says, and nothing else.
#include "kernels/faults/faults.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "kernels/engines/native/native.h"
#include "kernels/engines/native/test_driver.h"
#include "kernels/registry.h"

namespace assay::kernels {
namespace {

using native::Driver;
using native::Wishes;

constexpr const char* kInt4 = "goldens/quantised/k2-mini-int4-g32";
constexpr const char* kBf16 = "goldens/checkpoints/k2-mini";
const char* Best() { return HostHas(Tier::kAvx2) ? "avx2" : "scalar"; }

const std::vector<int32_t> kTokens = {256, 102, 111, 114, 32};  // "for "

// A whole run of the model, of the engine with a fault and of the one without.
struct Pair {
  Pair(const char* path, std::string_view fault, int tp, const char* tier)
      : checkpoint(native::OpenCheckpoint(path)), clean(NativeEngine()), faulty(Engine(fault)) {
    Wishes wishes;
    wishes.tp = tp;
    wishes.tier = tier;
    for (Driver* driver : {&clean, &faulty}) {
      EXPECT_EQ(driver->Open(checkpoint->config_json(), wishes), ASSAY_OK);
      EXPECT_EQ(driver->LoadAll(*checkpoint), ASSAY_OK) << driver->error().message;
      driver->Logits(kTokens, 0, 261);
    }
  }
  static const assay_engine* Engine(std::string_view fault) {
    const assay_engine* engine = FaultyEngine(fault);
    EXPECT_NE(engine, nullptr) << fault;
    return engine;
  }

  // Ranks on which the component differs.
  std::set<int> DifferingShards(const std::string& component) {
    std::set<int> ranks;
    for (int rank = 0; rank < clean.tp(); ++rank) {
      assay_shard a, b;
      EXPECT_EQ(clean.Export(rank, component, &a), ASSAY_OK);
      EXPECT_EQ(faulty.Export(rank, component, &b), ASSAY_OK);
      EXPECT_EQ(a.bytes, b.bytes);
      // The rows of a merged matrix: layouts here keep rows apart.
      const size_t row = a.bytes / static_cast<size_t>(a.total_rows);
      const size_t begin = row * static_cast<size_t>(a.first_row);
      const size_t bytes = row * static_cast<size_t>(a.rows);
      if (std::memcmp(static_cast<const char*>(a.data) + begin,
                      static_cast<const char*>(b.data) + begin, bytes) != 0) {
        ranks.insert(rank);
      }
    }
    return ranks;
  }

  // Of layer 1, where the inputs of its MLP are still the same in both.
  std::set<std::string> DifferingTaps() {
    std::set<std::string> differing;
    EXPECT_EQ(clean.taps.size(), faulty.taps.size());
    for (const auto& [key, tap] : clean.taps) {
      if (key.first.starts_with("L2") || key.first.starts_with("final") || key.first == "logits") {
        continue;
      }
      const auto other = faulty.taps.find(key);
      EXPECT_NE(other, faulty.taps.end()) << key.first;
      if (other != faulty.taps.end() && !(other->second == tap)) {
        differing.insert(key.first + "@" + std::to_string(key.second));
      }
    }
    return differing;
  }
  bool LogitsDiffer() { return !(clean.taps[{"logits", -1}] == faulty.taps[{"logits", -1}]); }

  std::unique_ptr<Checkpoint> checkpoint;
  Driver clean, faulty;
};

std::set<std::string> ExpertTaps(const std::set<std::string>& taps, std::string_view op) {
  std::set<std::string> found;
  for (const std::string& tap : taps) {
    if (tap.find(".moe.e") != std::string::npos && tap.find(op) != std::string::npos) {
      found.insert(tap);
    }
  }
  return found;
}

bool Any(const std::set<std::string>& taps, std::string_view end) {
  for (const std::string& tap : taps) {
    if (tap.ends_with(end)) return true;
  }
  return false;
}

TEST(Faults, TheTableIsWhole) {
  std::set<std::string_view> names;
  for (const Fault& fault : Faults()) {
    EXPECT_TRUE(names.insert(fault.name).second) << fault.name;
    EXPECT_TRUE(fault.name.starts_with(std::string(fault.kind) + "/"));
    EXPECT_FALSE(fault.description.empty());
    EXPECT_NE(fault.problem.find("fault=" + std::string(fault.name)), std::string_view::npos);
    EXPECT_NE(fault.blind.find("fault=" + std::string(fault.name)), std::string_view::npos);
    EXPECT_NE(fault.problem, fault.blind);
    bool states_class = false;
    for (const FirstField& field : fault.first) {
      if (field.name != "class") continue;
      states_class = field.json == "\"" + std::string(fault.cls) + "\"";
    }
    EXPECT_TRUE(states_class) << fault.name;
    const assay_engine* engine = FaultyEngine(fault.name);
    ASSERT_NE(engine, nullptr);
    EXPECT_STREQ(engine->name, NativeEngine()->name);
    EXPECT_NE(std::string_view(engine->revision).find(fault.name), std::string_view::npos);
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"K02/bytes", "K02/representation", "K03/rank0",
                                               "K08/rank1", "K21/tail8", "K41/missing"}));
  EXPECT_EQ(FaultyEngine("K99/none"), nullptr);
  EXPECT_EQ(FindFault(""), nullptr);
}

TEST(Faults, K02BytesLoadsTheWrongWordsOnEveryRankButTheFirst) {
  Pair pair(kInt4, "K02/bytes", 4, Best());
  EXPECT_EQ(pair.DifferingShards("L1.moe.e0.down.weight"), (std::set<int>{1, 2, 3}));
  EXPECT_TRUE(pair.DifferingShards("L1.moe.e0.down.scale").empty());
  EXPECT_TRUE(pair.DifferingShards("L1.moe.e0.gate.weight").empty());
  EXPECT_TRUE(pair.DifferingShards("L1.shared.down.weight").empty());
  const auto taps = pair.DifferingTaps();
  EXPECT_TRUE(Any(taps, ".down@1"));
  EXPECT_FALSE(Any(taps, ".down@0"));
  EXPECT_TRUE(pair.LogitsDiffer());
}

// The bytes that rank 1 has are those from byte 8 of each row on, not from word 8.
TEST(Faults, K02BytesStartsAtByteEight) {
  Pair pair(kInt4, "K02/bytes", 4, "scalar");
  assay_shard shard;
  ASSERT_EQ(pair.faulty.Export(1, "L1.moe.e0.down.weight", &shard), ASSAY_OK);
  const TensorView& whole =
      *pair.checkpoint->Find("model.layers.1.mlp.experts.0.down_proj.weight_packed");
  ASSERT_STREQ(shard.layout, "row");
  for (int64_t row = 0; row < shard.rows; ++row) {
    const auto* got = static_cast<const std::byte*>(shard.data) + row * 32;
    EXPECT_EQ(std::memcmp(got, whole.bytes.data() + row * 128 + 8, 32), 0) << row;
  }
}

// The places that `first` names hold other values than they should: else the fault would not
// determine them.
TEST(Faults, TheFirstWrongWordsDiffer) {
  const auto checkpoint = native::OpenCheckpoint(kInt4);
  const std::string expert = "model.layers.1.mlp.experts.0.";
  const auto* down = checkpoint->Find(expert + "down_proj.weight_packed")->bytes.data();
  EXPECT_NE(std::memcmp(down + 4 * 8, down + 8, 4), 0);  // word 8, and byte 8
  const size_t row64 = 64 * 12 * 4;
  EXPECT_NE(
      std::memcmp(checkpoint->Find(expert + "gate_proj.weight_packed")->bytes.data() + row64,
                  checkpoint->Find(expert + "up_proj.weight_packed")->bytes.data() + row64, 4),
      0);
}

TEST(Faults, K02RepresentationIsRefusedAtAnyDegree) {
  const auto checkpoint = native::OpenCheckpoint(kInt4);
  for (int tp : {1, 2, 4}) {
    Driver driver(FaultyEngine("K02/representation"));
    Wishes wishes;
    wishes.tp = tp;
    ASSERT_EQ(driver.Open(checkpoint->config_json(), wishes), ASSAY_OK);
    EXPECT_EQ(driver.LoadAll(*checkpoint), ASSAY_REFUSED);
    EXPECT_STREQ(driver.error().tensor, "model.layers.1.mlp.experts.0.gate_proj.weight_packed");
    EXPECT_STREQ(driver.error().axis, "k");
    EXPECT_EQ(driver.error().got, 48);
    EXPECT_STREQ(driver.error().got_unit, "byte");
    EXPECT_EQ(driver.error().expected, 96);
    EXPECT_STREQ(driver.error().expected_unit, "element");
    const std::string_view message = driver.error().message;
    EXPECT_NE(message.find("axis k has 48 packed bytes (u4x2), the parameter takes 96 unpacked "
                           "elements"),
              std::string_view::npos)
        << message;
  }
  Pair unpacked(kBf16, "K02/representation", 4, Best());
  EXPECT_TRUE(unpacked.DifferingTaps().empty());
  EXPECT_FALSE(unpacked.LogitsDiffer());
}

TEST(Faults, K03GivesEveryRankTheFirstOnesScales) {
  Pair pair(kInt4, "K03/rank0", 4, Best());
  EXPECT_EQ(pair.DifferingShards("L1.moe.e0.down.scale"), (std::set<int>{1, 2, 3}));
  EXPECT_TRUE(pair.DifferingShards("L1.moe.e0.down.weight").empty());
  EXPECT_TRUE(pair.DifferingShards("L1.moe.e0.up.scale").empty());
  assay_shard first, last;
  ASSERT_EQ(pair.faulty.Export(0, "L1.moe.e3.down.scale", &first), ASSAY_OK);
  ASSERT_EQ(pair.faulty.Export(3, "L1.moe.e3.down.scale", &last), ASSAY_OK);
  ASSERT_EQ(first.bytes, last.bytes);
  EXPECT_EQ(std::memcmp(first.data, last.data, first.bytes), 0);
  // Its `first`: row 0's group 2, which is rank 1's first, is another than group 0.
  const TensorView& scales =
      *pair.checkpoint->Find("model.layers.1.mlp.experts.0.down_proj.weight_scale");
  EXPECT_NE(std::memcmp(scales.bytes.data(), scales.bytes.data() + 4, 2), 0);
  EXPECT_TRUE(Any(pair.DifferingTaps(), ".down@1"));
  EXPECT_FALSE(Any(pair.DifferingTaps(), ".down@0"));
}

TEST(Faults, K08SwapsGateAndUpOnRankOne) {
  for (const char* path : {kInt4, kBf16}) {
    Pair pair(path, "K08/rank1", 4, Best());
    EXPECT_EQ(pair.DifferingShards("L1.moe.e0.gate.weight"), (std::set<int>{1}));
    EXPECT_EQ(pair.DifferingShards("L1.moe.e0.up.weight"), (std::set<int>{1}));
    EXPECT_TRUE(pair.DifferingShards("L1.moe.e0.down.weight").empty());
    EXPECT_TRUE(pair.DifferingShards("L1.shared.gate.weight").empty());
    // Swapped, and nothing worse: what gate gives is what up would have given.
    int compared = 0;
    for (const auto& [key, tap] : pair.faulty.taps) {
      const size_t at = key.first.find(".gate");
      if (!key.first.starts_with("L1.moe.e") || at == std::string::npos || key.second != 1)
        continue;
      std::string up = key.first;
      up.replace(at, 5, ".up");
      EXPECT_EQ(tap, (pair.clean.taps[{up, 1}]));
      ++compared;
    }
    EXPECT_GT(compared, 0);
    EXPECT_FALSE(Any(pair.DifferingTaps(), ".gate@0"));
    EXPECT_TRUE(pair.LogitsDiffer());
  }
}

TEST(Faults, K21DropsTheTailOfTheExpertsDownInOneTier) {
  if (!HostHas(Tier::kAvx2)) {
    Driver driver(FaultyEngine("K21/tail8"));
    Wishes wishes;
    wishes.tier = "avx2";
    EXPECT_EQ(driver.Open(native::OpenCheckpoint(kInt4)->config_json(), wishes), ASSAY_UNSUPPORTED);
    return;
  }
  Pair pair(kInt4, "K21/tail8", 4, "avx2");
  const auto taps = pair.DifferingTaps();
  EXPECT_EQ(ExpertTaps(taps, ".gate").size() + ExpertTaps(taps, ".up@").size() +
                ExpertTaps(taps, ".act").size(),
            0u);
  // Every rank of every routed expert.
  std::set<std::string> all;
  for (const auto& [key, tap] : pair.clean.taps) {
    if (key.first.starts_with("L1.moe.e") && key.first.ends_with(".down")) {
      all.insert(key.first + "@" + std::to_string(key.second));
    }
  }
  EXPECT_EQ(ExpertTaps(taps, ".down"), all);
  EXPECT_FALSE(Any(taps, "shared.down@0"));
  EXPECT_TRUE(pair.DifferingShards("L1.moe.e0.down.weight").empty());

  Pair scalar(kInt4, "K21/tail8", 4, "scalar");
  EXPECT_TRUE(scalar.DifferingTaps().empty());
  EXPECT_FALSE(scalar.LogitsDiffer());
}

TEST(Faults, K41LeavesOnePartialOut) {
  Pair pair(kInt4, "K41/missing", 4, Best());
  const auto taps = pair.DifferingTaps();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(Any(taps, "L1.moe.out@" + std::to_string(rank)));
    EXPECT_FALSE(Any(taps, "L1.moe.partial@" + std::to_string(rank)));
    EXPECT_FALSE(Any(taps, "L1.shared.out@" + std::to_string(rank)));
  }
  // The collective alone, through the ABI's own call.
  std::vector<native::In> parts;
  for (int rank = 0; rank < 4; ++rank) {
    parts.push_back({"L1.moe.partial", {1, 2}, {1.0f * (1 << rank), 16}, {}, rank});
  }
  std::vector<float> sum;
  ASSERT_EQ(pair.clean.Reduce("L1.moe.out", parts, &sum), ASSAY_OK);
  EXPECT_EQ(sum, (std::vector<float>{15, 64}));
  ASSERT_EQ(pair.faulty.Reduce("L1.moe.out", parts, &sum), ASSAY_OK);
  EXPECT_EQ(sum, (std::vector<float>{13, 48}));
  ASSERT_EQ(pair.faulty.Reduce("L1.shared.out", parts, &sum), ASSAY_OK);
  EXPECT_EQ(sum, (std::vector<float>{15, 64}));
}

TEST(Faults, OneRankCannotShowThem) {
  for (const char* fault : {"K02/bytes", "K03/rank0", "K08/rank1", "K41/missing"}) {
    Pair pair(kInt4, fault, 1, Best());
    EXPECT_TRUE(pair.DifferingTaps().empty()) << fault;
    EXPECT_FALSE(pair.LogitsDiffer()) << fault;
  }
}

}  // namespace
}  // namespace assay::kernels
