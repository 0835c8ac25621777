#include "reference/sharding.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "reference/test_support.h"

namespace assay::reference {
namespace {

using testing_support::Opened;
using testing_support::OpenModel;

struct Named {
  const char* name;
  const char* place;
};
constexpr Named kModels[] = {{"k2-mini", "checkpoints"},    {"dsv3-mini", "checkpoints"},
                             {"llama-mini", "checkpoints"}, {"qwen2-mini", "checkpoints"},
                             {"qwen3-mini", "checkpoints"}, {"k2-mini-int4-g32", "quantised"}};

bool IsReplicated(const std::string& component) {
  for (const char* part : {"norm", "router", "q_a", "kv_a"}) {
    if (component.find(part) != std::string::npos) return true;
  }
  return false;
}
bool IsKv(const std::string& component) {
  return component.find("attn.k.") != std::string::npos ||
         component.find("attn.v.") != std::string::npos;
}

// Every stored value of a cut component belongs to exactly one rank (a key/value head to as many as
// replicate it), and every rank's bytes are those of the checkpoint at its indices.
void ExpectPartition(const Opened& model, const std::string& component, int tp) {
  const TensorView* whole = model.checkpoint->Find(*model.oracle->SourceName(component));
  ASSERT_NE(whole, nullptr) << component;
  const int64_t columns = whole->shape.size() > 1 ? whole->shape[1] : 1;
  const auto size = static_cast<size_t>(SizeOf(whole->dtype).count());
  std::vector<int> holders(whole->bytes.size() / size, 0);
  for (int rank = 0; rank < tp; ++rank) {
    const auto slice = model.oracle->ExpectedSlice(component, {{tp, tp}, rank});
    ASSERT_TRUE(slice.ok()) << slice.error().message;
    ASSERT_EQ(slice->bytes.size(), slice->rows.size() * slice->columns.size() * size);
    size_t local = 0;
    for (const int64_t row : slice->rows) {
      for (const int64_t column : slice->columns) {
        const std::byte* mine = slice->bytes.data() + local++ * size;
        if (row < 0) {
          for (size_t i = 0; i < size; ++i) EXPECT_EQ(mine[i], std::byte{0});
          continue;
        }
        const auto at = static_cast<size_t>(row * columns + column);
        ++holders[at];
        ASSERT_EQ(std::memcmp(mine, whole->bytes.data() + at * size, size), 0) << component;
      }
    }
  }
  int expected = 1;
  if (IsReplicated(component)) expected = tp;
  if (IsKv(component)) {
    expected = std::max(1, tp / static_cast<int>(model.config().kv_heads));
  }
  for (const int count : holders) ASSERT_EQ(count, expected) << component << " tp " << tp;
}

TEST(Sharding, EveryLegalDegreePartitionsEveryComponent) {
  std::map<std::string, int> cut;  // legal (component, tp > 1) pairs of each model
  for (const Named& named : kModels) {
    const Opened model = OpenModel(named.name, named.place);
    for (const int tp : {1, 2, 3, 4, 6, 8}) {
      for (const std::string& component : model.oracle->Components()) {
        const auto slice = model.oracle->ExpectedSlice(component, {{tp, tp}, 0});
        if (!slice) {
          EXPECT_EQ(slice.error().kind, ErrorKind::kRefused) << slice.error().message;
          EXPECT_NE(slice.error().message.find("largest legal tp"), std::string::npos);
          continue;
        }
        if (tp > 1 && !IsReplicated(component)) ++cut[named.name];
        ExpectPartition(model, component, tp);
      }
    }
    EXPECT_GT(cut[named.name], 20) << named.name;
  }
}

// The same of families whose parameters lie in other shapes, against the oracle's whole grid: every
// value has as many holders as every other, one, all, or those that share a key/value head.
TEST(Sharding, EveryFamilysComponentsAreCoveredEvenly) {
  constexpr Named kFamilies[] = {
      {"qwen3moe-mini", "checkpoints"},   {"gptoss-mini", "checkpoints"},
      {"v4-mini", "checkpoints"},         {"kimilinear-mini", "checkpoints"},
      {"k3-mini", "checkpoints"},         {"m3-mini", "checkpoints"},
      {"qwen3moe-mini-fp8", "quantised"}, {"gptoss-mini-mxfp4", "quantised"}};
  for (const Named& named : kFamilies) {
    const Opened model = OpenModel(named.name, named.place);
    int cut = 0;
    for (const std::string& component : model.oracle->Components()) {
      const auto whole = model.oracle->ExpectedSlice(component, Where{});
      ASSERT_TRUE(whole.ok()) << whole.error().message;
      const size_t columns = whole->columns.size(),
                   size = whole->bytes.size() / (whole->rows.size() * columns);
      for (const int tp : {2, 3, 5}) {
        std::vector<int> holders(whole->rows.size() * columns, 0);
        bool legal = true;
        for (int rank = 0; rank < tp && legal; ++rank) {
          const auto slice = model.oracle->ExpectedSlice(component, {{tp, tp}, rank});
          legal = slice.ok();
          if (!legal) break;
          const std::byte* mine = slice->bytes.data();
          for (const int64_t row : slice->rows) {
            for (const int64_t column : slice->columns) {
              const size_t at = static_cast<size_t>(row) * columns + static_cast<size_t>(column);
              if (row >= 0) {
                ++holders[at];
                ASSERT_EQ(std::memcmp(mine, whole->bytes.data() + at * size, size), 0) << component;
              }
              mine += size;
            }
          }
        }
        if (!legal) continue;
        const std::set<int> counts(holders.begin(), holders.end());
        ASSERT_EQ(counts.size(), 1u) << component << " tp " << tp;
        const int kv =
            IsKv(component) ? std::max(1, tp / static_cast<int>(model.config().kv_heads)) : 1;
        EXPECT_TRUE(*counts.begin() == kv || *counts.begin() == tp) << component << " tp " << tp;
        cut += *counts.begin() < tp ? 1 : 0;
      }
    }
    EXPECT_GT(cut, 20) << named.name;
  }
}

TEST(Sharding, GroupsAndWordsAreNotCut) {
  const Opened model = OpenModel("k2-mini-int4-g32", "quantised");
  const auto at = [&](const std::string& component, int tp) {
    return model.oracle->ExpectedSlice(component, {{tp, 1}, tp - 1});
  };
  const auto eight = at("L1.moe.e5.down.scale", 8);
  ASSERT_TRUE(eight.ok());
  EXPECT_EQ(eight->columns, std::vector<int64_t>{7});
  EXPECT_EQ(eight->unit, "group");
  EXPECT_EQ(eight->elements_per_column, 32);
  const auto words = at("L1.moe.e5.down.weight", 8);
  ASSERT_TRUE(words.ok());
  EXPECT_EQ(words->columns, (std::vector<int64_t>{28, 29, 30, 31}));
  EXPECT_EQ(words->unit, "word");
  // 256 / 16 = 16 elements: two whole words, half a group. Both parts are refused.
  for (const char* component : {"L1.moe.e5.down.scale", "L1.moe.e5.down.weight"}) {
    const auto sixteen = at(component, 16);
    ASSERT_FALSE(sixteen.ok());
    EXPECT_EQ(sixteen.error().kind, ErrorKind::kRefused);
    for (const char* word : {"L1.moe.e5.down.scale", "down_proj.weight_scale", "axis k",
                             "16 of 256", "group", "largest legal tp below 16 is 8"}) {
      EXPECT_NE(sixteen.error().message.find(word), std::string::npos)
          << sixteen.error().message << " lacks " << word;
    }
  }
  // Rows of gate have no such limit.
  EXPECT_TRUE(at("L1.moe.e5.gate.scale", 16).ok());
}

TEST(Sharding, AChannelScaleStaysWhole) {
  const auto whole = StoredIndices({0, 1, 2, 3}, 8, {8, 1, "group"}, 1, "x");
  ASSERT_FALSE(whole.ok());  // as a group it would be cut
  EXPECT_EQ(whole.error().kind, ErrorKind::kRefused);
}

TEST(Sharding, KeyValueHeadsAreReplicatedBeyondTheirNumber) {
  const Axis axis = {Cut::kKvHeads, 2 * 4, 4};
  for (int rank = 0; rank < 8; ++rank) {
    const auto rows = AxisIndices(axis, 1, {{8, 8}, rank}, "k");
    ASSERT_TRUE(rows.ok());
    const int64_t head = rank / 4;
    EXPECT_EQ(*rows, (std::vector<int64_t>{head * 4, head * 4 + 1, head * 4 + 2, head * 4 + 3}));
  }
  EXPECT_EQ(AxisIndices(axis, 1, {{3, 3}, 0}, "k").error().kind, ErrorKind::kRefused);
  const Axis three = {Cut::kKvHeads, 3 * 4, 4};
  EXPECT_FALSE(AxisIndices(three, 1, {{4, 4}, 0}, "k").ok());
  EXPECT_TRUE(AxisIndices(three, 1, {{6, 6}, 5}, "k").ok());
}

TEST(Sharding, AttentionIsCutByItsOwnDegree) {
  const Axis heads = {Cut::kHeads, 8, 1};
  const auto rank3 = AxisIndices(heads, 1, {{4, 2}, 3}, "q");
  ASSERT_TRUE(rank3.ok());
  EXPECT_EQ(*rank3, (std::vector<int64_t>{4, 5, 6, 7}));  // attention rank 3 % 2 = 1
  const auto even = AxisIndices({Cut::kDense, 8, 1}, 1, {{4, 2}, 3}, "gate");
  EXPECT_EQ(*even, (std::vector<int64_t>{6, 7}));
  EXPECT_FALSE(AxisIndices(heads, 1, {{4, 3}, 0}, "q").ok());
  EXPECT_FALSE(AxisIndices(heads, 1, {{2, 4}, 0}, "q").ok());
  EXPECT_FALSE(AxisIndices(heads, 1, {{4, 4}, 4}, "q").ok());
}

TEST(Sharding, TheVocabularyIsPadded) {
  EXPECT_EQ(PaddedVocabulary(261, 1), 320);
  EXPECT_EQ(PaddedVocabulary(261, 3), 384);
  EXPECT_EQ(PaddedVocabulary(256, 4), 256);
  const auto last = AxisIndices({Cut::kVocabulary, 261, 1}, 1, {{4, 1}, 3}, "embed");
  ASSERT_TRUE(last.ok());
  ASSERT_EQ(last->size(), 80u);
  EXPECT_EQ((*last)[20], 260);
  EXPECT_EQ((*last)[21], -1);
  const auto whole = AxisIndices({Cut::kVocabulary, 261, 1}, 1, Where{}, "embed");
  EXPECT_EQ(whole->size(), 261u);
}

TEST(Components, AreInDataFlowOrderAndTiedOnesShareATensor) {
  const Opened int4 = OpenModel("k2-mini-int4-g32", "quantised");
  const std::vector<std::string> layer = int4.oracle->Components(1);
  const std::vector<std::string> head(layer.begin(), layer.begin() + 14);
  EXPECT_EQ(head, (std::vector<std::string>{
                      "L1.input_norm.weight", "L1.attn.q_a.weight", "L1.attn.q_a_norm.weight",
                      "L1.attn.q.weight", "L1.attn.kv_a.weight", "L1.attn.kv_a_norm.weight",
                      "L1.attn.kv_b.weight", "L1.attn.out.weight", "L1.post_norm.weight",
                      "L1.router.logits.weight", "L1.router.scores.bias", "L1.moe.e0.gate.weight",
                      "L1.moe.e0.gate.scale", "L1.moe.e0.up.weight"}));
  EXPECT_EQ(layer.size(), 11u + 6 * 6 + 3);
  EXPECT_EQ(*int4.oracle->SourceName("L1.moe.e2.down.scale"),
            "model.layers.1.mlp.experts.2.down_proj.weight_scale");
  const Opened llama = OpenModel("llama-mini");
  EXPECT_EQ(*llama.oracle->SourceName("logits.weight"), "model.embed_tokens.weight");
  const std::vector<std::string> all = llama.oracle->Components();
  EXPECT_EQ(all.front(), "embed.weight");
  EXPECT_EQ(all.back(), "logits.weight");
  for (const char* bad : {"L9.attn.q.weight", "L0.attn.q.scale", "L0.attn.q.bias", "weight", ""}) {
    EXPECT_FALSE(llama.oracle->ExpectedSlice(bad, Where{}).ok()) << bad;
  }
}

}  // namespace
}  // namespace assay::reference
