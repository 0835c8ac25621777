// Each signature of a wrong shard, planted; and that right shards give no finding.
#include <gtest/gtest.h>

#include <cstring>

#include "harness/judge/testing/test_model.h"
#include "harness/locate/internal.h"
#include "harness/locate/locate.h"

namespace assay::locate {
namespace {

using assay::testing::Encode;
using assay::testing::Engine;
using assay::testing::TestModel;

constexpr char kDown[] = "L1.moe.e2.down.weight";
constexpr char kScale[] = "L1.moe.e2.down.scale";
constexpr char kGate[] = "L1.moe.e1.gate.weight";

// "row" as it is; "mirror" has each byte xor 1.
Result<std::vector<std::byte>> Unpacked(const ShardKey&, const std::string& tag,
                                        const ExportedShard& shard) {
  std::vector<std::byte> bytes = shard.bytes;
  if (tag == "mirror") {
    for (std::byte& b : bytes) b ^= std::byte{1};
  } else if (tag != "row") {
    return Error{"unknown layout " + tag};
  }
  return bytes;
}
std::vector<std::string> Tags(const std::string&) { return {"row", "mirror"}; }

struct Rig {
  TestModel model{21};
  int tp;
  Engine engine;
  explicit Rig(int tp_ = 2) : tp(tp_), engine(model, tp_) {}

  ExportedShard& Shard(const std::string& component, int rank = 1) {
    return engine.shards.at({component, rank});
  }
  Result<ShardReport> Compare() {
    EngineTrace trace;
    trace.shards = engine.shards;
    std::vector<ShardKey> keys;
    for (const auto& [key, shard] : Engine(model, tp).shards) keys.push_back(key);
    return CompareShards(model, trace, keys, {tp, tp}, Unpacked, Tags);
  }
  // The one finding that there must be.
  ShardFinding Only() {
    auto report = Compare();
    EXPECT_TRUE(report.ok());
    EXPECT_EQ(report->findings.size(), 1u);
    return report->findings.empty() ? ShardFinding{} : report->findings[0];
  }
  std::vector<std::byte> Whole(const std::string& component) {
    return model.ExpectedSlice(component, {})->bytes;
  }
};

std::vector<uint32_t> Words(const std::vector<std::byte>& bytes) {
  std::vector<uint32_t> words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}
void SetWords(const std::vector<uint32_t>& words, ExportedShard* shard) {
  std::memcpy(shard->bytes.data(), words.data(), shard->bytes.size());
}

TEST(CompareShards, RightShardsGiveNoFinding) {
  for (const int tp : {1, 2, 4}) {
    Rig rig(tp);
    auto report = rig.Compare();
    ASSERT_TRUE(report.ok());
    EXPECT_TRUE(report->findings.empty());
    EXPECT_TRUE(report->missing.empty());
    EXPECT_TRUE(report->uncovered.empty());
    EXPECT_EQ(report->compared, static_cast<int64_t>(rig.engine.shards.size()));
    EXPECT_GT(report->bytes, 10000);
  }
}

TEST(CompareShards, OneWrongValueIsNamedInBothCoordinates) {
  Rig rig;
  rig.Shard(kScale).bytes[2 * (17 * 4 + 1) + 1] ^= std::byte{0x01};
  const ShardFinding f = rig.Only();
  EXPECT_EQ(f.component, kScale);
  EXPECT_EQ(f.rank, 1);
  EXPECT_EQ(f.unit, "group");
  EXPECT_EQ(f.index, (std::vector<int64_t>{17, 5}));
  EXPECT_EQ(f.local_index, (std::vector<int64_t>{17, 1}));
  EXPECT_EQ(f.wrong, 1);
  EXPECT_EQ(f.total, 32 * 4);
  EXPECT_EQ(f.cls, "loader");
  EXPECT_EQ(f.expected_bits.size(), 4u);
  EXPECT_NE(f.expected_bits, f.got_bits);
  EXPECT_NE(f.expected, f.got);
  EXPECT_EQ(f.signature.id, "unknown");
}

TEST(CompareShards, ScalesOfAnotherRank) {
  Rig rig(4);
  rig.Shard(kScale, 3).bytes = rig.Shard(kScale, 0).bytes;
  const ShardFinding f = rig.Only();
  EXPECT_EQ(f.signature.id, "scales-of-another-rank");
  EXPECT_EQ(f.signature.text, "scales of rank 0 on rank 3");
  EXPECT_EQ(f.signature.evidence, "64 of 64 groups equal rank 0's");
}

TEST(CompareShards, AnotherLayoutIsItsOwnClass) {
  Rig rig;
  for (std::byte& b : rig.Shard(kGate).bytes) b ^= std::byte{1};
  const ShardFinding f = rig.Only();
  EXPECT_EQ(f.cls, "layout");
  EXPECT_EQ(f.signature.id, "wrong-layout");
  EXPECT_EQ(f.signature.text, "packed as mirror, tagged row");
}

TEST(CompareShards, GateAndUpSwapped) {
  Rig rig;
  std::swap(rig.Shard(kGate).bytes, rig.Shard("L1.moe.e1.up.weight").bytes);
  auto report = rig.Compare();
  ASSERT_EQ(report->findings.size(), 2u);
  for (const ShardFinding& f : report->findings) EXPECT_EQ(f.signature.id, "gate-up-swapped");
  EXPECT_EQ(report->findings[0].component, kGate) << "data-flow order";
}

TEST(CompareShards, AnotherExpertsValues) {
  Rig rig;
  rig.Shard(kDown).bytes = rig.Shard("L1.moe.e3.down.weight").bytes;
  EXPECT_EQ(rig.Only().signature.id, "another-expert");
}

TEST(CompareShards, MisalignedWithinTheRows) {
  Rig rig(4);
  // Rank 1 holds words 2 and 3 of each row; it took 5 and 6.
  const auto whole = Words(rig.Whole(kDown));
  auto words = Words(rig.Shard(kDown).bytes);
  for (int64_t r = 0; r < 32; ++r) {
    for (int64_t c = 0; c < 2; ++c) words[r * 2 + c] = whole[r * 8 + 5 + c];
  }
  SetWords(words, &rig.Shard(kDown));
  const ShardFinding f = rig.Only();
  EXPECT_EQ(f.signature.id, "misaligned-shard");
  EXPECT_EQ(f.signature.text, "words from global column 5 where 2 was due");
  EXPECT_EQ(f.index, (std::vector<int64_t>{0, 2}));
}

TEST(CompareShards, MisalignedPastTheRowsEnd) {
  Rig rig(2);
  // The logical extent of rank 1's begin, 32 elements, taken for words: four rows further on.
  const auto whole = Words(rig.Whole(kDown));
  auto words = Words(rig.Shard(kDown).bytes);
  for (int64_t r = 0; r < 32; ++r) {
    for (int64_t c = 0; c < 4; ++c) {
      const int64_t at = r * 8 + 32 + c;
      words[r * 4 + c] = at < static_cast<int64_t>(whole.size()) ? whole[at] : 0xabcdef01u;
    }
  }
  SetWords(words, &rig.Shard(kDown));
  const ShardFinding f = rig.Only();
  EXPECT_EQ(f.signature.id, "misaligned-shard");
  EXPECT_NE(f.signature.text.find("row 4 where row 0 was due"), std::string::npos);
}

TEST(CompareShards, MisalignedInsideAWord) {
  Rig rig(2);
  const auto whole = rig.Whole(kDown);
  auto& bytes = rig.Shard(kDown).bytes;
  for (int64_t r = 0; r < 32; ++r) std::memcpy(&bytes[r * 16], &whole[r * 32 + 6], 16);
  const ShardFinding f = rig.Only();
  EXPECT_EQ(f.signature.id, "misaligned-shard");
  EXPECT_EQ(f.signature.text, "bytes from global column 6 where 16 was due");
}

TEST(CompareShards, ASlabInsteadOfColumns) {
  Rig rig(2);
  const auto whole = Words(rig.Whole(kDown));
  SetWords({whole.begin() + 128, whole.end()}, &rig.Shard(kDown));
  const ShardFinding f = rig.Only();
  EXPECT_EQ(f.signature.id, "misaligned-shard");
  EXPECT_NE(f.signature.evidence.find("directly after the other"), std::string::npos);
}

TEST(CompareShards, ShiftedByAGroup) {
  Rig rig(4);
  const auto whole = rig.Whole(kScale);
  auto& bytes = rig.Shard(kScale, 2).bytes;
  for (int64_t r = 0; r < 32; ++r) {
    std::memcpy(bytes.data() + r * 4, whole.data() + (r * 8 + 5) * 2, 4);
  }
  const ShardFinding f = rig.Only();
  EXPECT_EQ(f.signature.id, "shift-by-a-group");
  EXPECT_EQ(f.signature.text, "groups from global group 5 where 4 was due");
}

TEST(CompareShards, PermutedRowsAndColumns) {
  Rig rows;
  auto words = Words(rows.Shard(kDown).bytes);
  for (int64_t r = 0; r + 1 < 32; r += 2) {
    for (int64_t c = 0; c < 4; ++c) std::swap(words[r * 4 + c], words[(r + 1) * 4 + c]);
  }
  SetWords(words, &rows.Shard(kDown));
  EXPECT_EQ(rows.Only().signature.id, "permuted-rows");
  Rig columns;
  words = Words(columns.Shard(kDown).bytes);
  for (int64_t r = 0; r < 32; ++r) std::swap(words[r * 4], words[r * 4 + 2]);
  SetWords(words, &columns.Shard(kDown));
  EXPECT_EQ(columns.Only().signature.id, "permuted-columns");
}

TEST(CompareShards, ZerosAndPoison) {
  Rig rig;
  for (std::byte& b : rig.Shard(kDown).bytes) b = std::byte{0};
  EXPECT_EQ(rig.Only().signature.id, "zero-filled");
  Rig half;  // only the second half was never written
  auto& bytes = half.Shard(kGate).bytes;
  std::fill(bytes.begin() + bytes.size() / 2, bytes.end(), std::byte{0xff});
  const ShardFinding f = half.Only();
  EXPECT_EQ(f.signature.id, "never-loaded");
  EXPECT_EQ(f.local_index, (std::vector<int64_t>{16, 0}));
  EXPECT_EQ(f.index, (std::vector<int64_t>{48, 0}));
}

TEST(CompareShards, NibblesAndSigns) {
  const std::pair<const char*, uint32_t (*)(uint32_t)> cases[] = {
      {"nibble-swapped",
       [](uint32_t w) { return (w & 0x0f0f0f0fu) << 4 | (w >> 4 & 0x0f0f0f0fu); }},
      {"sign-convention", [](uint32_t w) { return w ^ 0x88888888u; }},
      {"nibble-order", [](uint32_t w) { return __builtin_bswap32(w); }},
      {"nibble-order",
       [](uint32_t w) {
         uint32_t out = 0;
         const int order[] = {0, 2, 4, 6, 1, 3, 5, 7};
         for (int i = 0; i < 8; ++i) out |= (w >> (4 * order[i]) & 15u) << (4 * i);
         return out;
       }},
      {"code-offset",
       [](uint32_t w) {
         uint32_t out = 0;
         for (int i = 0; i < 8; ++i) out |= (((w >> (4 * i)) + 1) & 15u) << (4 * i);
         return out;
       }},
  };
  for (const auto& [id, change] : cases) {
    Rig rig;
    auto words = Words(rig.Shard(kDown).bytes);
    for (uint32_t& w : words) w = change(w);
    SetWords(words, &rig.Shard(kDown));
    EXPECT_EQ(rig.Only().signature.id, id);
  }
}

TEST(CompareShards, AConstantFactorOfScales) {
  Rig rig;
  auto& shard = rig.Shard(kScale);
  std::vector<double> values = judge::ToTensor({shard.dtype, {128}, shard.bytes}).data;
  for (double& v : values) v /= 2;
  shard.bytes = Encode(values, DType::kBF16);
  const ShardFinding f = rig.Only();
  EXPECT_EQ(f.signature.id, "constant-factor");
  EXPECT_EQ(f.signature.text, "every value times 0.5");
}

TEST(CompareShards, MergedMatricesAreCutByFirstRow) {
  Rig rig;
  ExportedShard& gate = rig.Shard(kGate);
  ExportedShard& up = rig.Shard("L1.moe.e1.up.weight");
  std::vector<std::byte> merged = gate.bytes;
  merged.insert(merged.end(), up.bytes.begin(), up.bytes.end());
  gate.total_rows = up.total_rows = gate.rows + up.rows;
  up.first_row = gate.rows;
  gate.bytes = up.bytes = merged;
  EXPECT_TRUE(rig.Compare()->findings.empty());
  up.first_row = 0;
  EXPECT_EQ(rig.Only().signature.id, "gate-up-swapped");
  up.first_row = gate.rows + 1;
  EXPECT_FALSE(rig.Compare().ok()) << "rows past the end";
}

TEST(CompareShards, AnotherRepresentationHasAnotherShape) {
  Rig rig;
  ExportedShard& shard = rig.Shard(kDown);
  shard.columns = 16;  // four bytes a word
  shard.dtype = DType::kU8;
  const ShardFinding f = rig.Only();
  EXPECT_EQ(f.signature.id, "packed-against-unpacked");
  EXPECT_EQ(f.signature.text, "axis k: 16 bytes of U8 where 4 words of I32 were due");
  EXPECT_EQ(f.wrong, f.total);
}

TEST(CompareShards, MissingShardsAndUnknownLayoutsAreSaid) {
  Rig rig;
  rig.engine.shards.erase({kGate, 0});
  auto report = rig.Compare();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->missing, (std::vector<std::string>{std::string(kGate) + "@r0"}));
  rig.Shard(kGate, 1).layout = "strange";
  EXPECT_FALSE(rig.Compare().ok());
}

TEST(Names, KindsLeaveOutLayersAndExperts) {
  EXPECT_EQ(KindOf("L1.moe.e12.down.scale"), "moe.down.scale");
  EXPECT_EQ(KindOf("embed.weight"), "embed.weight");
  EXPECT_EQ(ParameterOf("L1.moe.e5.down.scale"), "L1.moe.e5.down");
  EXPECT_EQ(SuffixOf("L1.moe.e5.down.scale"), ".scale");
}

}  // namespace
}  // namespace assay::locate
