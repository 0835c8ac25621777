// An engine with a planted fault, judged and located: for tests of coordinates and blame.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "harness/judge/testing/test_model.h"
#include "harness/locate/locate.h"

namespace assay::locate {

struct Rig {
  assay::testing::TestModel model;
  int tp;
  assay::testing::Engine engine;
  std::vector<reference::Step> steps = assay::testing::Prefill(9);
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
    request.judge = assay::testing::RequestFor(model, trace, tp, steps);
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
        [](const ShardKey&, const std::string&, const ExportedShard& shard) {
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
  void Plant(const std::string& tap, int rank, std::function<void(reference::Tensor*)> change) {
    engine.hook = [=](const reference::Node& node, int r, reference::Tensor* value) {
      if (node.tap == tap && (rank < 0 || r == rank)) change(value);
    };
  }
};

}  // namespace assay::locate
