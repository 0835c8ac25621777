// Planted faults end to end: engine, judge, locate. Every coordinate must be right.
#include "harness/locate/locate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/judge/testing/test_model.h"

namespace assay::locate {
namespace {

using assay::testing::Engine;
using assay::testing::Prefill;
using assay::testing::RequestFor;
using assay::testing::TestModel;
using reference::Node;
using reference::Tensor;

struct Rig {
  TestModel model;
  int tp;
  Engine engine;
  std::vector<reference::Step> steps = Prefill(9);
  bool with_shards = true, black_box = false;
  std::string handed;  // a tap that the harness gave as an input

  explicit Rig(int tp_ = 2, uint64_t seed = 31) : model(seed), tp(tp_), engine(model, tp_, seed) {}

  std::vector<Divergence> Run() {
    EngineTrace trace = engine.Run(steps);
    // An engine that shows of its experts only the sum over ranks.
    if (black_box) {
      std::erase_if(trace.taps, [](const auto& tap) {
        return tap.first.tap.find(".moe.") != std::string::npos && tap.first.tap != "L1.moe.out";
      });
    }
    LocateRequest request;
    request.judge = RequestFor(model, trace, tp, steps);
    for (const auto& [key, value] : trace.taps) {
      if (key.tap == handed) request.judge.given[key] = value;
    }
    auto judged = judge::JudgeTrace(request.judge);
    EXPECT_TRUE(judged.ok()) << (judged.ok() ? "" : judged.error().message);
    if (!judged.ok()) return {};
    request.judgements = &*judged;
    std::vector<ShardKey> keys;
    for (const auto& [key, shard] : engine.shards) keys.push_back(key);
    auto report = CompareShards(
        model, trace, keys, {tp, tp},
        [](const std::string&, const std::string&, const ExportedShard& shard) {
          return Result<std::vector<std::byte>>(shard.bytes);
        },
        nullptr);
    EXPECT_TRUE(report.ok());
    if (with_shards) request.shards = &*report;
    auto divergences = Locate(request);
    EXPECT_TRUE(divergences.ok()) << (divergences.ok() ? "" : divergences.error().message);
    return divergences.ok() ? *divergences : std::vector<Divergence>{};
  }
  // Plants a mistake in one tap on one rank (-1: on all).
  void Plant(const std::string& tap, int rank, std::function<void(Tensor*)> change) {
    engine.hook = [=](const Node& node, int r, Tensor* value) {
      if (node.tap == tap && (rank < 0 || r == rank)) change(value);
    };
  }
};

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

TEST(Locate, IndependentFaultsAreSeparateEntriesInDataFlowOrder) {
  Rig rig;
  auto& words = rig.engine.shards[{"L1.moe.e3.down.weight", 0}].bytes;
  std::fill(words.begin(), words.end(), std::byte{0});
  rig.engine.reduce_ranks = [](const Node&) { return std::vector<int>{0}; };
  rig.Plant("L1.attn.scores", 1, [](Tensor* v) { v->data[9] += 2; });
  const auto found = rig.Run();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].tap, "L1.attn.scores");
  EXPECT_EQ(found[0].index, (std::vector<int64_t>{1, 0, 0}));
  EXPECT_EQ(found[1].tensor, "L1.moe.e3.down.weight");
  EXPECT_EQ(found[2].cls, "collective");
}

TEST(Locate, AKernelWrongOnAWrongShardIsTwoFaults) {
  Rig rig;
  auto& scale = rig.engine.shards[{"L1.moe.e2.down.scale", 1}];
  scale.bytes = rig.engine.shards[{"L1.moe.e2.down.scale", 0}].bytes;
  rig.Plant("L1.moe.e2.down", 1, [](Tensor* v) {
    for (double& x : v->data) x *= 3;
  });
  const auto found = rig.Run();
  ASSERT_EQ(found.size(), 2u);
  std::set<std::string> classes{found[0].cls, found[1].cls};
  EXPECT_EQ(classes, (std::set<std::string>{"kernel", "loader"}));
}

TEST(Locate, ABlackBoxIsNotTheCollectivesFault) {
  Rig rig;
  rig.black_box = true;
  rig.Plant("L1.moe.e2.act", 1, [](Tensor* v) {
    for (double& x : v->data) x *= 1.5;
  });
  auto found = rig.Run();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].tap, "L1.moe.out");
  EXPECT_EQ(found[0].cls, "kernel");
  EXPECT_EQ(found[0].cleared, (std::vector<std::string>{"loader"}));
}

TEST(Locate, AWrongShardInsideABlackBoxExplainsWhatComesOut) {
  Rig rig(4);
  rig.black_box = true;
  rig.engine.shards[{"L1.moe.e2.down.scale", 3}].bytes =
      rig.engine.shards[{"L1.moe.e2.down.scale", 0}].bytes;
  const auto found = rig.Run();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].cls, "loader");
  EXPECT_EQ(found[0].tensor, "L1.moe.e2.down.scale");
  EXPECT_EQ(found[0].rank, 3);
  EXPECT_EQ(found[0].cleared, (std::vector<std::string>{"kernel"}));
}

TEST(Locate, TheRoutersChoiceIsTheRouters) {
  Rig rig;
  rig.Plant("L1.router.ids", 0, [](Tensor* v) {
    double* row = v->data.data();
    for (double e = 0; e < 4; ++e) {
      if (row[0] == e || row[1] == e) continue;
      row[1] = e;
      break;
    }
    if (row[0] > row[1]) std::swap(row[0], row[1]);
  });
  const auto found = rig.Run();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].cls, "router");
  EXPECT_EQ(found[0].op, "ids");
  EXPECT_EQ(found[0].signature.id, "other-choice");
}

TEST(Locate, IdsThatNoRouterMayGiveAreTheRoutersWhateverIsHidden) {
  const std::tuple<const char*, double, double> cases[] = {
      {"ids-out-of-range", 0, 99}, {"ids-out-of-range", -5, 1}, {"ids-twice", 2, 2}};
  for (const auto& [id, first, second] : cases) {
    for (const bool hidden : {false, true}) {
      Rig rig;
      EngineTrace trace = rig.engine.Run(rig.steps);
      TapValue& ids = trace.taps.at({0, "L1.router.ids", 0});
      auto values = judge::ToTensor(ids).data;
      values[0] = first;
      values[1] = second;
      ids.bytes = assay::testing::Encode(values, ids.dtype);
      if (hidden) {
        std::erase_if(trace.taps,
                      [](const auto& tap) { return tap.first.tap == "L1.router.scores"; });
      }
      LocateRequest request;
      request.judge = RequestFor(rig.model, trace, 2, rig.steps);
      auto judged = judge::JudgeTrace(request.judge);
      ASSERT_TRUE(judged.ok()) << judged.error().message;
      request.judgements = &*judged;
      const auto found = Locate(request);
      ASSERT_TRUE(found.ok());
      ASSERT_FALSE(found->empty());
      EXPECT_EQ((*found)[0].tap, "L1.router.ids");
      EXPECT_EQ((*found)[0].cls, "router");
      EXPECT_EQ((*found)[0].signature.id, id) << (*found)[0].signature.text;
    }
  }
}

TEST(Locate, TheRightExpertsInAnotherOrderAreNotAnotherChoice) {
  Rig rig;
  rig.Plant("L1.router.ids", 0, [](Tensor* v) { std::swap(v->data[0], v->data[1]); });
  const auto found = rig.Run();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].signature.id, "ids-not-ascending");
  EXPECT_NE(found[0].signature.text.find("not ascending"), std::string::npos);
}

TEST(Locate, AFactorNearOneIsPrintedWithItsDigits) {
  Rig rig;
  rig.Plant("L1.moe.partial", 1, [](Tensor* v) {
    for (double& x : v->data) x *= 1.0000321;
  });
  const auto found = rig.Run();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].signature.id, "constant-factor");
  EXPECT_NE(found[0].signature.text.find("1.00003"), std::string::npos) << found[0].signature.text;
}

TEST(Locate, AnOpsFindingHasItsStepAndAShardsHasNone) {
  Rig rig;
  rig.steps.push_back({{7}, 9});
  int calls = 0;
  rig.engine.hook = [&](const Node& node, int rank, Tensor* value) {
    if (node.tap == "L1.post_norm" && rank == 0 && ++calls == 2) value->data[0] += 5;
  };
  auto found = rig.Run();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].step, 1);
  Rig wrong;
  wrong.engine.shards[{"L1.moe.e2.down.scale", 1}].bytes =
      wrong.engine.shards[{"L1.moe.e2.down.scale", 0}].bytes;
  found = wrong.Run();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].step.has_value());
}

TEST(Locate, AnExactDatasLastPlaceIsATruncation) {
  assay::testing::Sizes sizes;
  sizes.exact = true;
  const TestModel model(5, sizes);
  Engine engine(model, 1, 3);
  engine.hook = [](const Node& node, int, Tensor* value) {
    if (node.tap != "L1.attn.q") return;
    for (double& v : value->data) {  // cut off after the eight bits of bf16
      if (v == 0) continue;
      const double unit = std::ldexp(1.0, std::ilogb(v) - 7);
      v = std::trunc(v / unit) * unit;
    }
  };
  const auto steps = Prefill(9);
  const EngineTrace trace = engine.Run(steps);
  LocateRequest request;
  request.judge = RequestFor(model, trace, 1, steps);
  auto judged = judge::JudgeTrace(request.judge);
  request.judgements = &*judged;
  auto found = Locate(request);
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ((*found)[0].signature.id, "truncated-rounding");
}

TEST(Locate, NothingToLocateInIsAnError) { EXPECT_FALSE(Locate({}).ok()); }

}  // namespace
}  // namespace assay::locate
