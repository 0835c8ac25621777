// Mistakes between tensors, planted: fused matrices, replicas, experts in a table, rows from other
// places; and what is not given back at all.
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/locate/testing/table.h"

namespace assay::locate {
namespace {

const Entry kScale = {"L0.mlp.down.scale", DType::kBF16, 24, 8, 'k'};

TEST(Fused, RowsOfGateAndUpInOtherOrders) {
  const std::string gate = "L0.mlp.gate.weight", up = "L0.mlp.up.weight";
  struct Order {
    const char* text;
    std::function<std::pair<int, int64_t>(int64_t row)> source;  // of gate: which, and its row
  };
  const Order orders[] = {
      {"gate above up read as if their rows alternated",
       [](int64_t row) { return std::pair(row < 8 ? 0 : 1, 2 * row % 16); }},
      {"alternating rows of gate and up read as gate above up",
       [](int64_t row) { return std::pair(static_cast<int>(row % 2), row / 2); }},
      {"row 3 of L0.mlp.up.weight where row 12 was due",
       [](int64_t row) { return std::pair(row % 3 == 0 ? 1 : 0, 15 - row); }},
  };
  for (const Order& order : orders) {
    ShardRig rig({Matrix(gate, 16), Matrix(up, 16)}, 1);
    const std::vector<std::byte> both[] = {rig.trace.shards[{gate, 0}].bytes,
                                           rig.trace.shards[{up, 0}].bytes};
    auto& shard = rig.trace.shards[{gate, 0}].bytes;
    for (int64_t row = 0; row < 16; ++row) {
      const auto [which, from] = order.source(row);
      std::copy_n(both[which].begin() + from * 24, 24, shard.begin() + row * 24);
    }
    const ShardFinding found = rig.Only();
    EXPECT_EQ(found.signature.id, "fused-order");
    if (std::string_view(order.text).starts_with("row")) continue;
    EXPECT_EQ(found.signature.text, order.text);
  }
}

TEST(Fused, OneMatrixCutAsASlab) {
  const std::string gate = "L0.mlp.gate.weight", up = "L0.mlp.up.weight";
  ShardRig rig({Matrix(gate, 16), Matrix(up, 16)}, 2);
  // Rank 1 has all of up: its first half for gate, its second for up.
  rig.trace.shards[{gate, 1}].bytes = rig.trace.shards[{up, 0}].bytes;
  const ShardFinding found = rig.Only();
  EXPECT_EQ(found.signature.id, "fused-order");
  EXPECT_EQ(found.signature.text, "gate above up cut as one matrix");
  EXPECT_EQ(found.index, (std::vector<int64_t>{8, 0}));
}

TEST(Fused, HeadsInGroups) {
  const std::string q = "L0.attn.q.weight";
  ShardRig rig({Matrix(q, 16), Matrix("L0.attn.k.weight", 4), Matrix("L0.attn.v.weight", 4)}, 1);
  std::vector<std::byte> all;
  for (const auto* name : {"L0.attn.q.weight", "L0.attn.k.weight", "L0.attn.v.weight"}) {
    const auto& bytes = rig.trace.shards[{name, 0}].bytes;
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  auto& shard = rig.trace.shards[{q, 0}].bytes;
  for (int64_t row = 0; row < 16; ++row) {
    const int64_t from = row / 8 * 12 + row % 8;
    std::copy_n(all.begin() + from * 24, 24, shard.begin() + row * 24);
  }
  const ShardFinding found = rig.Only();
  EXPECT_EQ(found.signature.id, "fused-order");
  EXPECT_EQ(found.signature.text, "q above k above v read as 2 groups of heads");
}

TEST(Fused, AScaleOfAnotherMember) {
  const auto scalar = [](const char* name) {
    return Entry{name, DType::kF32, 1, 1, 'w', "ct-fp8-tensor", "element"};
  };
  ShardRig rig({scalar("L0.attn.q.scale"), scalar("L0.attn.k.scale"), scalar("L0.attn.v.scale")},
               2);
  rig.trace.shards[{"L0.attn.v.scale", 1}].bytes = rig.trace.shards[{"L0.attn.q.scale", 0}].bytes;
  EXPECT_EQ(rig.Only().signature.id, "merged-scale");
  rig.trace.shards[{"L0.attn.v.scale", 1}].bytes[3] ^= std::byte{0x40};
  EXPECT_NE(rig.Only().signature.id, "merged-scale");
}

TEST(Replicas, OneThatDiffersIsNamedWithTheRightOne) {
  Entry norm = Matrix("L0.input_norm.weight", 4);
  norm.cut = 'w';
  ShardRig rig({norm}, 3);
  const auto spoil = [](Values* values) {
    for (size_t i = 0; i < values->bits.size(); i += 3) values->bits[i] = 0x3F80 + i * i * 7 % 113;
  };
  rig.Change(norm.name, 2, spoil);
  const ShardFinding found = rig.Only();
  EXPECT_EQ(found.signature.id, "replica-differs");
  EXPECT_EQ(found.signature.text, "rank 0 has the same values, and has them right");
  // A rank's own values have no replica.
  ShardRig cut({Matrix("L0.mlp.up.weight", 12)}, 3);
  cut.Change("L0.mlp.up.weight", 2, spoil);
  EXPECT_EQ(cut.Only().signature.id, "unknown");
}

TEST(Rows, AnotherStrideFromOneRowOn) {
  ShardRig rig({kScale}, 1);
  rig.Change(kScale.name, 0, [](Values* values) {
    const auto before = values->bits;
    for (size_t r = 9; r < 24; ++r) {
      for (size_t c = 0; c < 8; ++c) values->bits[r * 8 + c] = before[8 * 8 + (r - 8) * 7 + c];
    }
  });
  const ShardFinding found = rig.Only();
  EXPECT_EQ(found.signature.id, "wrong-stride");
  EXPECT_EQ(found.signature.text, "from row 8 on rows are 7 groups apart, 8 are due");
}

TEST(Rows, OfTheVocabularyFromAnotherPlace) {
  ShardRig rig({Matrix("embed.weight", 20), Matrix("L0.mlp.up.weight", 20)}, 2);
  for (const char* name : {"embed.weight", "L0.mlp.up.weight"}) {
    const auto whole = rig.model.ExpectedSlice(name, {})->bytes;
    std::copy_n(whole.begin() + 7 * 24, 240, rig.trace.shards[{name, 1}].bytes.begin());
  }
  const ShardReport report = rig.Compare();
  ASSERT_EQ(report.findings.size(), 2u);
  EXPECT_EQ(report.findings[0].signature.id, "vocabulary-cut");
  EXPECT_EQ(report.findings[0].signature.text, "row 7 of the vocabulary where row 10 was due");
  EXPECT_EQ(report.findings[1].signature.id, "misaligned-shard");
}

TEST(Experts, PartsOfAnotherOneAndPlacesInTheirTable) {
  const auto name = [](int expert) { return "L1.moe.e" + std::to_string(expert) + ".down.scale"; };
  std::vector<Entry> entries;
  for (int e = 0; e < 4; ++e) {
    entries.push_back(kScale);
    entries.back().name = name(e);
    entries.back().cut = 'w';
  }
  ShardRig half(entries, 1);
  std::copy_n(half.trace.shards[{name(3), 0}].bytes.begin() + 192, 192,
              half.trace.shards[{name(1), 0}].bytes.begin() + 192);
  EXPECT_EQ(half.Only().signature.text, "values of L1.moe.e3.down.scale in L1.moe.e1.down.scale");
  ShardRig table(entries, 1);
  std::vector<std::byte> all;
  for (int e = 0; e < 4; ++e) {
    const auto& bytes = table.trace.shards[{name(e), 0}].bytes;
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  std::copy_n(all.begin() + 200, 384, table.trace.shards[{name(2), 0}].bytes.begin());
  const ShardFinding found = table.Only();
  EXPECT_EQ(found.signature.id, "another-expert");
  EXPECT_EQ(found.signature.text,
            "values from flat 100 of the experts' table on, L1.moe.e2.down.scale begins at 384");
}

// Missing, stale and wrong are three things; this is the first.
TEST(Missing, WhatIsNotGivenBackThoughItsLikeIs) {
  const std::string weight = "L0.mlp.down.weight", scale = kScale.name;
  ShardRig rig({Matrix(weight, 8), kScale}, 2);
  rig.trace.shards.erase({weight, 1});
  ShardFinding found = rig.Only();
  EXPECT_EQ(found.signature.id, "never-loaded");
  EXPECT_EQ(found.component, weight);
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(rig.Compare().missing, std::vector<std::string>{weight + "@r1"});
  // The weight is shown nowhere, its scale is.
  rig.trace.shards.erase({weight, 0});
  EXPECT_EQ(rig.Compare().findings.size(), 2u);
  // An engine that shows neither says nothing about it.
  rig.trace.shards.erase({scale, 0});
  rig.trace.shards.erase({scale, 1});
  EXPECT_TRUE(rig.Compare().findings.empty());
  EXPECT_EQ(rig.Compare().missing.size(), 4u);
}

TEST(Missing, NoRowsWhereSomeWereDue) {
  ShardRig rig({Matrix("L0.mlp.down.weight", 8)}, 2);
  ExportedShard& shard = rig.trace.shards[{"L0.mlp.down.weight", 1}];
  shard.rows = shard.total_rows = 0;
  shard.bytes.clear();
  const ShardFinding found = rig.Only();
  EXPECT_EQ(found.signature.id, "never-loaded");
  EXPECT_EQ(found.signature.text, "no rows where 4 were due: never loaded");
}

TEST(Place, IsReadOffTheName) {
  Divergence divergence;
  SetPlace("L12.moe.e345.down.scale", &divergence);
  EXPECT_EQ(divergence.layer, 12);
  EXPECT_EQ(divergence.expert, 345);
  EXPECT_EQ(divergence.op, "down");
  Divergence table;
  SetPlace("embed.weight", &table);
  EXPECT_FALSE(table.layer.has_value());
  EXPECT_FALSE(table.expert.has_value());
  EXPECT_EQ(table.op, "embed");
}

}  // namespace
}  // namespace assay::locate
