// Planted faults end to end: engine, judge, locate. Every coordinate must be right.
#include <gtest/gtest.h>

#include <cmath>

#include "harness/locate/testing/rig.h"

namespace assay::locate {
namespace {

using assay::testing::Prefill;
using reference::Node;
using reference::Tensor;

TEST(Locate, ACleanRunHasNoDivergence) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    for (const int tp : {1, 2, 4}) EXPECT_TRUE(Rig(tp, seed).Run().empty());
  }
}

TEST(Locate, ScalesOfRankZeroOnEveryRank) {
  Rig rig(4);
  for (int64_t e = 0; e < 4; ++e) {
    const std::string scale = "L1.moe.e" + std::to_string(e) + ".down.scale";
    for (int r = 1; r < 4; ++r) {
      rig.engine.shards[{scale, r}].bytes = rig.engine.shards[{scale, 0}].bytes;
    }
  }
  const auto found = rig.Run();
  ASSERT_EQ(found.size(), 3u) << "one entry a rank";
  for (int r = 1; r < 4; ++r) {
    const Divergence& d = found[r - 1];
    EXPECT_EQ(d.cls, "loader");
    EXPECT_EQ(d.op, "down");
    EXPECT_EQ(d.tap, "L1.moe.e0.down");
    EXPECT_EQ(d.tensor, "L1.moe.e0.down.scale");
    EXPECT_EQ(d.layer, 1);
    EXPECT_EQ(d.rank, r);
    EXPECT_EQ(d.expert, 0);
    EXPECT_EQ(d.unit, "group");
    EXPECT_EQ(d.index, (std::vector<int64_t>{0, 2 * r}));
    EXPECT_EQ(d.local_index, (std::vector<int64_t>{0, 0}));
    EXPECT_EQ(d.signature.id, "scales-of-another-rank");
    EXPECT_NE(d.signature.evidence.find("4 experts"), std::string::npos);
    EXPECT_EQ(d.cleared, (std::vector<std::string>{"kernel"}));
    EXPECT_NE(std::find(d.propagated.begin(), d.propagated.end(), "L1.moe.out"),
              d.propagated.end());
    EXPECT_EQ(d.bits.size(), 2u);
  }
}

TEST(Locate, NothingPropagatesThroughAnInputThatWasHandedOver) {
  for (const bool handed : {false, true}) {
    Rig rig;
    rig.engine.shards[{"L1.moe.e0.down.scale", 1}].bytes =
        rig.engine.shards[{"L1.moe.e0.down.scale", 0}].bytes;
    if (handed) rig.handed = "L1.moe.partial";
    const auto found = rig.Run();
    ASSERT_EQ(found.size(), 1u);
    const auto& taps = found[0].propagated;
    EXPECT_EQ(std::find(taps.begin(), taps.end(), "L1.moe.out") == taps.end(), handed);
  }
}

TEST(Locate, GateAndUpSwappedInTheLoaderIsOneFault) {
  Rig rig;
  for (int64_t e = 0; e < 4; ++e) {
    const std::string x = "L1.moe.e" + std::to_string(e) + ".";
    std::swap(rig.engine.shards[{x + "gate.weight", 1}].bytes,
              rig.engine.shards[{x + "up.weight", 1}].bytes);
  }
  const auto found = rig.Run();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].cls, "loader");
  EXPECT_EQ(found[0].rank, 1);
  EXPECT_EQ(found[0].tensor, "L1.moe.e0.gate.weight");
  EXPECT_EQ(found[0].op, "gate");
  EXPECT_EQ(found[0].signature.id, "gate-up-swapped");
}

TEST(Locate, AnExpertThatNobodyWasRoutedToIsStillALoadersFault) {
  Rig rig;
  rig.steps = Prefill(1);
  for (int64_t e = 0; e < 4; ++e) {
    const std::string up = "L1.moe.e" + std::to_string(e) + ".up.weight";
    for (std::byte& b : rig.engine.shards[{up, 0}].bytes) b = std::byte{0};
  }
  const auto found = rig.Run();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].tensor, "L1.moe.e0.up.weight");
  EXPECT_EQ(found[0].signature.id, "zero-filled");
  EXPECT_NE(found[0].signature.evidence.find("4 experts"), std::string::npos);
}

// Recomputes a linear op without the last of K, in float.
Tensor WithoutTail(const Rig& rig, const Tensor& y, const EngineTrace& right, const Node& node,
                   int rank, int64_t tail) {
  const Tensor x = judge::ToTensor(right.taps.at({0, node.inputs[0], rank}));
  MemorySource source;
  for (const char* suffix : {".weight", ".scale"}) {
    const auto shard = rig.engine.shards.find({node.weight + suffix, rank});
    if (shard == rig.engine.shards.end()) continue;
    source.Put(node.weight + suffix, shard->second.dtype,
               {shard->second.rows, shard->second.columns}, shard->second.bytes);
  }
  int64_t n = 0, k = 0;
  const auto w = assay::testing::DecodeWeight(source, node.weight, &n, &k);
  Tensor out = y;
  std::vector<int64_t> rows;
  for (int64_t r = 0; r < x.rows(); ++r) {
    bool mine = node.inputs.size() < 2;
    if (!mine) {
      const Tensor ids = judge::ToTensor(right.taps.at({0, node.inputs[1], rank}));
      for (int64_t j = 0; j < ids.columns(); ++j) {
        mine = mine || ids.data[r * ids.columns() + j] == static_cast<double>(node.expert);
      }
    }
    if (mine) rows.push_back(r);
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    for (int64_t c = 0; c < n; ++c) {
      float sum = 0;
      for (int64_t i = 0; i < k - tail; ++i) {
        sum += static_cast<float>(x.data[rows[r] * k + i]) * static_cast<float>(w[c * k + i]);
      }
      out.data[r * n + c] = sum;
    }
  }
  return out;
}

TEST(Locate, TheTailOfKIsCounted) {
  for (const char* tap : {"L1.moe.e2.down", "L1.moe.e1.gate", "L1.router.logits"}) {
    for (const int64_t tail : {1, 8}) {
      Rig rig;
      const EngineTrace right = rig.engine.Run(rig.steps);
      rig.engine.hook = [&](const Node& node, int rank, Tensor* value) {
        if (node.tap == tap && rank == 1) {
          *value = WithoutTail(rig, *value, right, node, rank, tail);
        }
      };
      const auto found = rig.Run();
      ASSERT_FALSE(found.empty());
      EXPECT_EQ(found[0].tap, tap);
      EXPECT_EQ(found[0].cls, "kernel");
      EXPECT_EQ(found[0].tensor, "");
      EXPECT_EQ(found[0].unit, "element");
      EXPECT_EQ(found[0].signature.id, "tail-dropped") << found[0].signature.text;
      EXPECT_EQ(found[0].signature.text.find("the last " + std::to_string(tail) + " of"), 0u);
      EXPECT_EQ(found[0].cleared, (std::vector<std::string>{"loader"}));
    }
  }
}

TEST(Locate, AKernelsElementIsInCoordinatesOfTheWholeTap) {
  Rig rig;
  rig.Plant("L1.moe.e2.gate", 1, [](Tensor* v) { v->data[32 + 3] += 1; });
  const auto found = rig.Run();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].local_index, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(found[0].index, (std::vector<int64_t>{1, 32 + 3}));
  EXPECT_EQ(found[0].rank, 1);
  EXPECT_EQ(found[0].expert, 2);
  EXPECT_EQ(found[0].op, "gate");
  EXPECT_EQ(std::round(*found[0].got - *found[0].expected), 1);
  rig.with_shards = false;
  EXPECT_TRUE(rig.Run()[0].cleared.empty()) << "nothing was cleared that was not looked at";
}

TEST(Locate, SumsOfRanks) {
  // The last column is the culprit, whose summand is missing or doubled.
  const std::vector<std::tuple<std::vector<int>, const char*, const char*, int>> cases = {
      {{0, 2, 3}, "missing-rank", "sum lacks rank 1's partial", 1},
      {{0, 1, 2}, "missing-rank", "sum lacks rank 3's partial", 3},
      {{0, 1, 2, 3, 2}, "doubled-rank", "sum has rank 2's partial twice", 2},
      {{0, 1, 1, 3}, "doubled-rank", "sum has rank 1's partial twice and lacks rank 2's", 2},
      {{0}, "not-reduced", "rank 0's partial alone", 0},
  };
  for (const auto& [ranks, id, text, culprit] : cases) {
    Rig rig(4);
    rig.engine.reduce_ranks = [ranks = ranks](const Node&) { return ranks; };
    const auto found = rig.Run();
    ASSERT_EQ(found.size(), 1u) << text << ": ranks with equal bits are one entry";
    EXPECT_EQ(found[0].cls, "collective");
    EXPECT_EQ(found[0].rank, culprit);
    EXPECT_EQ(found[0].op, "out");
    EXPECT_EQ(found[0].tap, "L1.moe.out");
    EXPECT_EQ(found[0].signature.id, id);
    EXPECT_EQ(found[0].signature.text, text);
    EXPECT_NE(found[0].signature.evidence.find("ranks 1, 2, 3"), std::string::npos);
  }
  Rig rig(4);
  rig.Plant("L1.moe.out", -1, [](Tensor* v) {
    for (double& x : v->data) x /= 4;
  });
  const auto found = rig.Run();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].signature.id, "averaged");
}

struct FieldCase {
  const char* tap;
  const char* id;
  std::function<void(Tensor*)> change;
};

TEST(Locate, PatternsOfTheErrorField) {
  const std::vector<FieldCase> cases = {
      {"L1.moe.partial", "constant-factor",
       [](Tensor* v) {
         for (double& x : v->data) x *= 2.5;
       }},
      {"L1.post_norm", "constant-factor",
       [](Tensor* v) {
         for (double& x : v->data) x = 0;
       }},
      {"L1.attn.q", "columns-permuted",
       [](Tensor* v) {
         for (int64_t r = 0; r < v->rows(); ++r) std::swap(v->data[r * 8 + 1], v->data[r * 8 + 6]);
       }},
      {"L1.attn.q", "columns-shifted",
       [](Tensor* v) {
         for (int64_t r = 0; r < v->rows(); ++r) {
           std::rotate(&v->data[r * 8], &v->data[r * 8 + 1], &v->data[r * 8 + 8]);
         }
       }},
      {"L1.attn.v", "rows-permuted",
       [](Tensor* v) { std::swap_ranges(&v->data[8], &v->data[16], &v->data[24]); }},
      {"L1.attn.k", "last-rows",
       [](Tensor* v) {
         for (size_t i = 56; i < 72; ++i) v->data[i] = v->data[i - 9] + 3;
       }},
      {"L1.attn.k", "some-rows",
       [](Tensor* v) {
         for (size_t i = 16; i < 24; ++i) v->data[i] = v->data[i + 9] + 3;
       }},
      {"L1.attn.k", "last-columns",
       [](Tensor* v) {
         for (int64_t r = 0; r < 9; ++r) v->data[r * 8 + 7] = r * 1.25 + 9;
       }},
      {"L1.attn.k", "some-columns",
       [](Tensor* v) {
         for (int64_t r = 0; r < 9; ++r) v->data[r * 8 + 2] = r * 1.25 + 9;
       }},
      {"L1.attn.q", "clamped",
       [](Tensor* v) {
         for (double& x : v->data) x = std::min(1.5, std::max(-1.5, x));
       }},
      {"L1.attn.q", "offset",
       [](Tensor* v) {
         for (size_t i = 0; i < v->data.size(); ++i) v->data[i] += 0.5 + static_cast<double>(i % 8);
       }},
      {"L1.attn.ctx", "nan-leak", [](Tensor* v) { v->data[5] = NAN; }},
      {"L1.attn.scores", "nan-leak", [](Tensor* v) { v->data[1] = NAN; }},
      {"L1.attn.scores", "mask-missing",
       [](Tensor* v) {
         for (double& x : v->data) x = std::isinf(x) ? 0.25 : x;
       }},
      {"L1.attn.scores", "rows-permuted",
       [](Tensor* v) {
         std::swap_ranges(&v->data[2 * v->columns()], &v->data[3 * v->columns()],
                          &v->data[5 * v->columns()]);
       }},
      {"L1.attn.scores", "constant-factor",
       [](Tensor* v) {
         for (double& x : v->data) x *= 2;
       }},
      {"L1.attn.q", "unknown",
       [](Tensor* v) {
         for (size_t i = 0; i < v->data.size(); ++i) {
           v->data[i] += 3 + std::sin(static_cast<double>(i * i));
         }
       }},
  };
  for (const FieldCase& c : cases) {
    Rig rig;
    rig.Plant(c.tap, 1, c.change);
    const auto found = rig.Run();
    ASSERT_EQ(found.size(), 1u) << c.id;
    EXPECT_EQ(found[0].tap, c.tap);
    EXPECT_EQ(found[0].rank, 1);
    EXPECT_EQ(found[0].signature.id, c.id) << found[0].signature.text;
  }
}

TEST(Locate, TheWrongActivationIsNamed) {
  const std::pair<const char*, double (*)(double, double)> cases[] = {
      {"gate-up-swapped", [](double g, double u) { return u / (1 + std::exp(-u)) * g; }},
      {"other-activation", [](double g, double u) { return g * u; }},
      {"other-activation", [](double g, double u) { return g / (1 + std::exp(-1.702 * g)) * u; }},
  };
  for (const auto& [id, f] : cases) {
    Rig rig;
    const EngineTrace right = rig.engine.Run(rig.steps);
    rig.Plant("L1.moe.e1.act", 0, [&, f = f](Tensor* v) {
      const Tensor g = judge::ToTensor(right.taps.at({0, "L1.moe.e1.gate", 0}));
      const Tensor u = judge::ToTensor(right.taps.at({0, "L1.moe.e1.up", 0}));
      for (size_t i = 0; i < v->data.size(); ++i) v->data[i] = f(g.data[i], u.data[i]);
    });
    const auto found = rig.Run();
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].signature.id, id) << found[0].signature.text;
  }
}

}  // namespace
}  // namespace assay::locate
