// Degrees beyond tp and attn_tp, written out by hand: experts over ranks, data-parallel attention,
// uneven splits, experts on rank 0 alone, and units of stored values.
#include <gtest/gtest.h>

#include <numeric>

#include "reference/sharding.h"
#include "reference/test_support.h"

namespace assay::reference {
namespace {

using testing_support::Opened;
using testing_support::OpenModel;
using Indices = std::vector<int64_t>;

Indices Counted(int64_t first, int64_t count) {
  Indices all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}
Opened Int4() { return OpenModel("k2-mini-int4-g32", "quantised"); }

Slice SliceOf(const Opened& model, const std::string& component, const Where& where) {
  auto slice = model.oracle->ExpectedSlice(component, where);
  if (!slice) {
    ADD_FAILURE() << slice.error().message;
    return {};
  }
  return std::move(*slice);
}
std::string Refusal(const Opened& model, const std::string& component, const Where& where) {
  const auto slice = model.oracle->ExpectedSlice(component, where);
  if (slice.ok()) return "";
  EXPECT_EQ(slice.error().kind, ErrorKind::kRefused);
  return slice.error().message;
}

TEST(Degrees, WholeExpertsLieOnRanksAndAreCutByThoseThatShareThem) {
  const Opened model = Int4();  // six experts, 256 = 8 groups
  Parallel degrees{4, 4};
  degrees.ep = 2;
  for (int64_t e = 0; e < 6; ++e) {
    for (int rank = 0; rank < 4; ++rank) {
      const std::string expert = "L1.moe.e" + std::to_string(e);
      const Slice gate = SliceOf(model, expert + ".gate.weight", {degrees, rank});
      const Slice down = SliceOf(model, expert + ".down.scale", {degrees, rank});
      EXPECT_EQ(gate.absent, e / 3 != rank / 2);
      EXPECT_EQ(down.absent, gate.absent);
      if (gate.absent) {
        EXPECT_TRUE(gate.rows.empty() && gate.columns.empty() && gate.bytes.empty());
        continue;
      }
      EXPECT_EQ(gate.rows, Counted(rank % 2 * 128, 128));
      EXPECT_EQ(down.columns, Counted(rank % 2 * 4, 4));
    }
  }
  // Shared experts, router and attention do not know of it.
  EXPECT_EQ(SliceOf(model, "L1.shared.gate.weight", {degrees, 3}).rows, Counted(192, 64));
  EXPECT_EQ(SliceOf(model, "L1.router.logits.weight", {degrees, 3}).rows, Counted(0, 6));
  EXPECT_EQ(SliceOf(model, "L1.attn.out.weight", {degrees, 3}).columns, Counted(72, 24));
  degrees.ep = 4;
  EXPECT_NE(Refusal(model, "L1.moe.e0.up.weight", {degrees, 0}).find("6 slots"), std::string::npos);
  degrees.ep = 3;
  EXPECT_NE(Refusal(model, "L1.moe.e0.up.weight", {degrees, 0}).find("divide"), std::string::npos);
}

TEST(Degrees, AMapPlacesReplicasAndHoles) {
  Parallel degrees{2, 2};
  degrees.ep = 2;
  degrees.physical_to_logical = {0, 1, 2, 5, -1, 3, 4, 5};
  const auto held = [&](int64_t expert, int rank) {
    return *HeldOf(expert, 6, {degrees, rank}, "e");
  };
  for (const int64_t e : {0, 1, 2}) {
    EXPECT_EQ(held(e, 0), Held::kPart);
    EXPECT_EQ(held(e, 1), Held::kAbsent);
  }
  for (const int64_t e : {3, 4}) {
    EXPECT_EQ(held(e, 0), Held::kAbsent);
    EXPECT_EQ(held(e, 1), Held::kPart);
  }
  EXPECT_EQ(held(5, 0), Held::kPart);  // on both
  EXPECT_EQ(held(5, 1), Held::kPart);
  degrees.physical_to_logical = {0, 1, 2, 3, 4, 6};
  EXPECT_FALSE(HeldOf(0, 6, {degrees, 0}, "e").ok());
  degrees.physical_to_logical = {0, 1, 2, 3};
  EXPECT_TRUE(HeldOf(3, 6, {degrees, 0}, "e").ok());
  EXPECT_EQ(HeldOf(4, 6, {degrees, 0}, "e").error().kind, ErrorKind::kRefused);  // nowhere
  degrees.physical_to_logical = {0, 1, 2};
  EXPECT_EQ(HeldOf(0, 6, {degrees, 0}, "e").error().kind, ErrorKind::kRefused);
}

TEST(Degrees, ExpertsOfRankZeroAreWholeThere) {
  const Opened model = Int4();
  Parallel degrees{2, 2};
  degrees.hybrid = 4;
  for (int64_t e = 0; e < 6; ++e) {
    const std::string down = "L2.moe.e" + std::to_string(e) + ".down.weight";
    const Slice zero = SliceOf(model, down, {degrees, 0}), one = SliceOf(model, down, {degrees, 1});
    EXPECT_EQ(zero.columns, Counted(0, e < 4 ? 16 : 32));
    EXPECT_EQ(one.absent, e >= 4);
    EXPECT_EQ(one.columns, e < 4 ? Counted(16, 16) : Indices());
  }
}

TEST(Degrees, BesideDataParallelAttentionDenseMlpsAreCutByItsRanks) {
  const Opened model = Int4();
  Parallel degrees{4, 0};
  degrees.dp = 2;
  EXPECT_EQ(degrees.attention(), 2);
  for (int rank = 0; rank < 4; ++rank) {
    const Where where = {degrees, rank};
    EXPECT_EQ(SliceOf(model, "L0.mlp.gate.weight", where).rows, Counted(rank % 2 * 80, 80));
    EXPECT_EQ(SliceOf(model, "L1.shared.down.weight", where).columns, Counted(rank % 2 * 128, 128));
    EXPECT_EQ(SliceOf(model, "L0.attn.out.weight", where).columns, Counted(rank % 2 * 48, 48));
    EXPECT_EQ(SliceOf(model, "embed.weight", where).rows, Counted(0, 261));
    EXPECT_EQ(SliceOf(model, "L1.moe.e0.up.weight", where).rows, Counted(rank * 64, 64));
    EXPECT_EQ(SliceOf(model, "logits.weight", where).rows.size(), 80u);
    Parallel head = degrees;
    head.lm_head_dp = true;
    EXPECT_EQ(SliceOf(model, "logits.weight", {head, rank}).rows.size(), 160u);
    EXPECT_EQ(SliceOf(model, "logits.weight", {head, rank}).rows[0], rank % 2 * 160);
  }
  degrees.dp = 3;
  EXPECT_NE(Refusal(model, "L0.attn.out.weight", {degrees, 0}), "");
}

TEST(Degrees, CeilGivesEveryRankAsManyUnitsAndPadsWithZeros) {
  const Opened model = Int4();
  Parallel degrees{3, 1};
  EXPECT_NE(Refusal(model, "L1.moe.e0.down.weight", {degrees, 0}), "");
  degrees.split = Split::kCeil;  // eight groups over three ranks: 3, 3, 2 and one of zeros
  const Slice scale = SliceOf(model, "L1.moe.e0.down.scale", {degrees, 2});
  EXPECT_EQ(scale.columns, (Indices{6, 7, -1}));
  const Slice words = SliceOf(model, "L1.moe.e0.down.weight", {degrees, 2});
  EXPECT_EQ(words.columns, (Indices{24, 25, 26, 27, 28, 29, 30, 31, -1, -1, -1, -1}));
  for (size_t row = 0; row < words.rows.size(); ++row) {
    for (size_t byte = 8 * 4; byte < 12 * 4; ++byte) {
      EXPECT_EQ(words.bytes[row * 48 + byte], std::byte{0});
    }
  }
  // Rows of gate follow the groups of down, though they could be cut anywhere.
  Indices rows = Counted(192, 64);
  rows.resize(96, -1);
  EXPECT_EQ(SliceOf(model, "L1.moe.e0.gate.weight", {degrees, 2}).rows, rows);
  // The dense layer is not quantised: its unit is one element.
  rows = Counted(108, 52);
  rows.resize(54, -1);
  EXPECT_EQ(SliceOf(model, "L0.mlp.up.weight", {degrees, 2}).rows, rows);
  const auto tap = model.oracle->TapColumns(*model.oracle->FindNode("L1.moe.e0.act"), {degrees, 2});
  EXPECT_EQ(tap->size(), 96u);
}

TEST(Degrees, MoreRanksThanUnitsHoldPaddingAlone) {
  const Axis axis = {Cut::kExpert, 9 * 32, 1, 0, 5};  // gpt-oss-mini's nine blocks
  for (const auto& [tp, real] :
       {std::pair<int, Indices>{4, {3, 3, 3, 0}}, {8, {2, 2, 2, 2, 1, 0, 0, 0}}}) {
    Parallel degrees{tp, tp};
    degrees.split = Split::kCeil;
    for (int rank = 0; rank < tp; ++rank) {
      const auto mine = AxisIndices(axis, 32, {degrees, rank}, "k");
      ASSERT_TRUE(mine.ok());
      EXPECT_EQ(mine->size(), static_cast<size_t>(32 * real[0]));
      const auto stored = StoredIndices(*mine, 288, {32, 1, "group"}, 9, "k");
      ASSERT_TRUE(stored.ok());
      EXPECT_EQ(std::count_if(stored->begin(), stored->end(), [](int64_t g) { return g >= 0; }),
                real[static_cast<size_t>(rank)]);
      EXPECT_EQ(stored->size(), static_cast<size_t>(real[0]));
    }
  }
  // 2880 at tp 4, the released model's: 23, 23, 23, 21.
  Parallel degrees{4, 4};
  degrees.split = Split::kCeil;
  const auto last = AxisIndices({Cut::kExpert, 2880, 1, 0, 32}, 32, {degrees, 3}, "k");
  EXPECT_EQ(last->front(), 69 * 32);
  EXPECT_EQ(std::count(last->begin(), last->end(), -1), 2 * 32);
}

TEST(Degrees, AListGivesEachPartItsUnits) {
  const Opened model = Int4();
  Parallel degrees{2, 2};
  degrees.split = Split::kList;
  degrees.list = {5, 3};
  EXPECT_EQ(SliceOf(model, "L1.moe.e0.down.scale", {degrees, 0}).columns, Counted(0, 5));
  EXPECT_EQ(SliceOf(model, "L1.moe.e0.down.scale", {degrees, 1}).columns, Counted(5, 3));
  EXPECT_EQ(SliceOf(model, "L1.moe.e0.up.weight", {degrees, 1}).rows, Counted(160, 96));
  // It speaks of the experts' axis; the others are cut evenly.
  EXPECT_EQ(SliceOf(model, "L1.shared.up.weight", {degrees, 1}).rows, Counted(128, 128));
  EXPECT_EQ(SliceOf(model, "L0.mlp.up.weight", {degrees, 1}).rows, Counted(80, 80));
  for (const Indices& bad : {Indices{5, 4}, {8}, {5, 2, 1}, {9, -1}}) {
    degrees.list = bad;
    EXPECT_NE(Refusal(model, "L1.moe.e0.up.weight", {degrees, 0}).find("list:"), std::string::npos);
  }
}

TEST(StoredUnits, AreWholeOrRefused) {
  const Grain words{8, 1, "word"};
  EXPECT_EQ(*StoredIndices(Counted(8, 16), 32, words, 4, "x"), (Indices{1, 2}));
  EXPECT_EQ(StoredIndices(Counted(4, 16), 32, words, 4, "x").error().kind, ErrorKind::kRefused);
  // A partial last block is whole where the tensor ends, and nowhere else.
  const Grain blocks{32, 1, "block"};
  EXPECT_EQ(*StoredIndices(Counted(32, 16), 48, blocks, 2, "x"), (Indices{1}));
  EXPECT_FALSE(StoredIndices(Counted(0, 16), 48, blocks, 2, "x").ok());
  EXPECT_FALSE(StoredIndices(Counted(24, 24), 48, blocks, 2, "x").ok());
  // 32 codes of three bits are three words; the last unit may have fewer.
  const Grain straddling{32, 3, "word"};
  EXPECT_EQ(*StoredIndices(Counted(32, 32), 96, straddling, 9, "x"), (Indices{3, 4, 5}));
  EXPECT_EQ(*StoredIndices(Counted(32, 16), 48, straddling, 5, "x"), (Indices{3, 4}));
  EXPECT_FALSE(StoredIndices(Counted(0, 48), 96, straddling, 9, "x").ok());
  // Padding: what fills a partial unit is in it, the rest are units of padding.
  Indices padded = Counted(32, 16);
  padded.resize(96, -1);
  EXPECT_EQ(*StoredIndices(padded, 48, blocks, 2, "x"), (Indices{1, -1, -1}));
}

}  // namespace
}  // namespace assay::reference
