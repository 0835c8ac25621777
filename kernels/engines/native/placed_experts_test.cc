// Experts over ranks, and in two places: whose part counts in the sum, to the bit. The experts'
// scope is given the same input at every degree; experts whose weight is 0 add nothing, so a rank's
// partial sum can be compared with that of a session which divides them otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernels/engines/native/native.h"
#include "kernels/engines/native/test_driver.h"
#include "kernels/registry.h"

namespace assay::kernels::native {
namespace {

constexpr const char* kDense = "goldens/checkpoints/k2-mini";
constexpr int64_t kTokens = 5, kHidden = 96, kExperts = 6, kTopK = 2;

struct Setup {
  const char* path = kDense;
  int tp = 1;
  std::string options = "";
  std::string tier = "scalar";
};

// Values of an index alone, in bf16 exactly.
float InputAt(int64_t i) { return static_cast<float>((i * 37 + 11) % 61 - 30) / 32; }
// Token t goes to experts t and t + 1.
int32_t ExpertAt(int64_t token, int64_t slot) {
  const int64_t a = token % kExperts, b = (token + 1) % kExperts;
  return static_cast<int32_t>(slot == 0 ? std::min(a, b) : std::max(a, b));
}

struct Outcome {
  int status = 0;
  std::string message;
  std::map<std::pair<std::string, int>, Tap> taps;
  std::map<std::pair<std::string, int>, Ran> kernels;
  std::vector<float> out;
};

// Of what is loaded. `counts`: the experts whose weight is not 0.
Outcome RunExperts(Driver* driver, const std::set<int32_t>& counts) {
  std::vector<In> inputs(3);
  inputs[0] = {"L1.post_norm", {kTokens, kHidden}, {}, {}, -1};
  for (int64_t i = 0; i < kTokens * kHidden; ++i) inputs[0].values.push_back(InputAt(i));
  inputs[1] = {"L1.router.ids", {kTokens, kTopK}, {}, {}, -1};
  inputs[2] = {"L1.router.weights", {kTokens, kTopK}, {}, {}, -1};
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t slot = 0; slot < kTopK; ++slot) {
      const int32_t expert = ExpertAt(t, slot);
      inputs[1].ids.push_back(expert);
      const bool used = counts.count(expert) > 0;
      inputs[2].values.push_back(used ? 0.25F + static_cast<float>(t) / 8 : 0.0F);
    }
  }
  Outcome ran;
  ran.status = driver->Run("experts", 1, {}, 0, inputs, &ran.out, {kTokens, kHidden});
  ran.message = driver->error().message;
  ran.taps = driver->taps;
  ran.kernels = driver->ran;
  return ran;
}

Outcome RunExperts(const Setup& setup, const std::set<int32_t>& counts) {
  const auto checkpoint = OpenCheckpoint(setup.path);
  Driver driver(NativeEngine());
  Wishes wishes;
  wishes.tp = setup.tp;
  wishes.tier = setup.tier;
  wishes.options = setup.options;
  EXPECT_EQ(driver.Open(checkpoint->config_json(), wishes), ASSAY_OK) << driver.error().message;
  const auto names = NamesWith(*checkpoint, "layers.1.mlp.experts.");
  for (int rank = 0; rank < setup.tp; ++rank) {
    EXPECT_EQ(driver.Load(rank, *checkpoint, names, 1), ASSAY_OK) << driver.error().message;
  }
  return RunExperts(&driver, counts);
}

const std::set<int32_t> kAll = {0, 1, 2, 3, 4, 5};

std::vector<double> PartialOf(const Outcome& ran, int rank) {
  const auto found = ran.taps.find({"L1.moe.partial", rank});
  if (found == ran.taps.end()) {
    ADD_FAILURE() << "no partial of rank " << rank << ": " << ran.message;
    return {};
  }
  return found->second.Values();
}

bool Zero(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return v == 0; });
}

// What each rank adds is what the whole experts of `of` add.
void ExpectWholeExperts(const Setup& setup, const std::vector<std::set<int32_t>>& of) {
  SCOPED_TRACE(setup.options);
  const Outcome ran = RunExperts(setup, kAll);
  ASSERT_EQ(ran.status, ASSAY_OK) << ran.message;
  for (int rank = 0; rank < setup.tp; ++rank) {
    const Outcome alone = RunExperts({setup.path, 1}, of[static_cast<size_t>(rank)]);
    EXPECT_EQ(PartialOf(ran, rank), PartialOf(alone, 0)) << "rank " << rank;
  }
  EXPECT_FALSE(Zero(PartialOf(RunExperts({setup.path, 1}, kAll), 0)));
}

TEST(PlacedExperts, WholeOnesAddWhatTheyAdd) {
  ExpectWholeExperts({kDense, 2, "ep=2"}, {{0, 1, 2}, {3, 4, 5}});
}

TEST(PlacedExperts, AReplicaCountsOnce) {
  // Expert 0 is on both, and counts on the first; slot 3 is empty.
  ExpectWholeExperts({kDense, 2, "ep=2 experts=0,2,4,-1,0,1,3,5"}, {{0, 2, 4}, {1, 3, 5}});
  const Outcome ran = RunExperts({kDense, 2, "ep=2 experts=0,2,4,-1,0,1,3,5"}, kAll);
  EXPECT_EQ(ran.taps.count({"L1.moe.e0.down", 0}), 1u);
  EXPECT_EQ(ran.taps.count({"L1.moe.e0.down", 1}), 0u);
}

// Ranks that share an expert have the parts of it that they would have without other experts'
// ranks.
TEST(PlacedExperts, RanksThatShareThemHaveParts) {
  const Outcome both = RunExperts({kDense, 4, "ep=2"}, kAll);
  for (int rank = 0; rank < 4; ++rank) {
    const std::set<int32_t> own =
        rank < 2 ? std::set<int32_t>{0, 1, 2} : std::set<int32_t>{3, 4, 5};
    EXPECT_EQ(PartialOf(both, rank), PartialOf(RunExperts({kDense, 2}, own), rank % 2)) << rank;
  }
}

void ExpectHybrid(const char* path, const Setup& cut) {
  SCOPED_TRACE(path);
  const Setup hybrid{path, 2, "placement=hybrid:2"};
  const std::set<int32_t> gpu = {0, 1}, cpu = {2, 3, 4, 5};
  // Those on the accelerator are cut as everywhere, in the sum of both ranks.
  const Outcome divided = RunExperts(hybrid, gpu);
  ASSERT_EQ(divided.status, ASSAY_OK) << divided.message;
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(PartialOf(divided, rank), PartialOf(RunExperts(cut, gpu), rank)) << rank;
    EXPECT_FALSE(Zero(PartialOf(divided, rank)));
  }
  // The others are whole on rank 0, and add nothing on rank 1.
  const Outcome whole = RunExperts(hybrid, cpu);
  EXPECT_EQ(PartialOf(whole, 0), PartialOf(RunExperts({path, 1}, cpu), 0));
  EXPECT_TRUE(Zero(PartialOf(whole, 1)));
  EXPECT_EQ(whole.taps.count({"L1.moe.e3.down", 1}), 0u);
}

TEST(PlacedExperts, InTwoPlacesTheSumIsRight) { ExpectHybrid(kDense, {kDense, 2}); }

// In int4 the accelerator's experts lie in Marlin's tiles, and what runs there says so.
TEST(PlacedExperts, MarlinsTilesRunAsTheyLie) {
  constexpr const char* kInt4 = "goldens/quantised/k2-mini-int4-g32";
  ExpectHybrid(kInt4, {kInt4, 2});
  const Outcome ran = RunExperts({kInt4, 2, "placement=hybrid:2"}, kAll);
  for (int rank = 0; rank < 2; ++rank) {
    const Ran& gpu = ran.kernels.at({"L1.moe.e1.gate", rank});
    EXPECT_EQ(gpu.kernel, "linear_ct_int4_g32_marlin_scalar");
    EXPECT_EQ(gpu.layout, "marlin");
  }
  EXPECT_EQ(ran.kernels.at({"L1.moe.e3.gate", 0}).kernel, "linear_ct_int4_g32_row_scalar");
  EXPECT_EQ(ran.kernels.count({"L1.moe.e3.gate", 1}), 0u);
  // A tier without a kernel over them holds them, and does not pretend.
  if (!HostHas(Tier::kAvx2)) return;
  const Outcome wide = RunExperts({kInt4, 2, "placement=hybrid:2", "avx2"}, kAll);
  EXPECT_EQ(wide.status, ASSAY_UNSUPPORTED);
  EXPECT_NE(wide.message.find("layout marlin, no kernel (placed on gpu)"), std::string::npos)
      << wide.message;
}

// Nothing is loaded at degrees that do not divide, and nothing runs.
TEST(PlacedExperts, DegreesThatDoNotDivideAreRefused) {
  const auto checkpoint = OpenCheckpoint(kDense);
  const auto names = NamesWith(*checkpoint, "layers.1.mlp.experts.");
  for (const char* options : {"ep=4", "ep=3", "ep=2 experts=0,1,2,3,4,5,0", "ep=2 experts=0,1,2,3",
                              "placement=hybrid:2 ep=2", "split=list:1,1,1"}) {
    SCOPED_TRACE(options);
    Driver driver(NativeEngine());
    Wishes wishes;
    wishes.tp = 2;
    wishes.options = options;
    ASSERT_EQ(driver.Open(checkpoint->config_json(), wishes), ASSAY_OK);
    EXPECT_EQ(driver.Load(0, *checkpoint, names, 1), ASSAY_REFUSED) << driver.error().message;
    EXPECT_NE(RunExperts(&driver, kAll).status, ASSAY_OK);
  }
}

// A sum with an expert left out is another one.
TEST(PlacedExperts, AnExpertLessIsSeen) {
  EXPECT_NE(PartialOf(RunExperts({kDense, 1}, kAll), 0),
            PartialOf(RunExperts({kDense, 1}, {0, 1, 2, 3, 4}), 0));
}

}  // namespace
}  // namespace assay::kernels::native
