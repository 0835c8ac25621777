// The chain: forced routing, ranges of layers, roundings of a contract, chunks, and clean errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "reference/test_support.h"

namespace assay::reference {
namespace {

using testing_support::Opened;
using testing_support::OpenModel;
using testing_support::Overlay;

const Contract kExact = Contract::Exact();
const std::vector<int32_t> kTokens = {256, 102, 111, 114, 32, 105, 32, 105, 110};

Trace RunOrFail(const Oracle& oracle, const RunRequest& request, const Contract& contract) {
  auto trace = oracle.Run(request, contract);
  if (!trace) {
    ADD_FAILURE() << trace.error().message;
    return Trace(request.steps.size());
  }
  return std::move(*trace);
}
std::string ErrorOf(const Oracle& oracle, const RunRequest& request) {
  const auto trace = oracle.Run(request, kExact);
  return trace.ok() ? std::string() : trace.error().message;
}

TEST(Run, ChunksAndDecodesEqualOnePrefill) {
  for (const char* name : {"k2-mini", "qwen3-mini"}) {
    const Opened model = OpenModel(name);
    RunRequest whole, chunks;
    whole.steps = {{kTokens, 0}};
    chunks.steps = {{{kTokens.begin(), kTokens.begin() + 4}, 0},
                    {{kTokens.begin() + 4, kTokens.begin() + 8}, 4},
                    {{kTokens[8]}, 8}};
    for (const bool absorbed : {false, true}) {
      whole.mla_absorbed = chunks.mla_absorbed = absorbed;
      const Trace one = RunOrFail(*model.oracle, whole, kExact);
      const Trace many = RunOrFail(*model.oracle, chunks, kExact);
      const Tensor& logits = one[0].at("logits");
      size_t at = 0;
      for (const auto& step : many) {
        for (const double value : step.at("logits").data) EXPECT_EQ(value, logits.data[at++]);
      }
      EXPECT_EQ(at, logits.data.size());
    }
  }
}

TEST(Run, TheAbsorbedFormIsAnotherComputationOfTheSameNumbers) {
  const Opened model = OpenModel("k2-mini");
  RunRequest request;
  request.steps = {{kTokens, 0}};
  const Trace plain = RunOrFail(*model.oracle, request, kExact);
  request.mla_absorbed = true;
  const Trace absorbed = RunOrFail(*model.oracle, request, kExact);
  const Tensor& a = plain[0].at("L1.attn.scores");
  const Tensor& b = absorbed[0].at("L1.attn.scores");
  int differ = 0;
  for (size_t i = 0; i < a.data.size(); ++i) {
    if (!std::isfinite(a.data[i])) continue;
    differ += a.data[i] != b.data[i] ? 1 : 0;
    EXPECT_NEAR(a.data[i], b.data[i], 0x1p-40);
  }
  EXPECT_GT(differ, 0);  // bit for bit the same would mean that it is not another computation
}

TEST(Run, WhatIsWantedIsAllThatComesBack) {
  const Opened model = OpenModel("k2-mini");
  RunRequest request;
  request.steps = {{kTokens, 0}};
  request.wanted = {"L1.moe.out", "L0.attn.q"};
  std::set<std::string> computed;
  request.observe = [&](const Node& node, int, Evaluation*) { computed.insert(node.tap); };
  const Trace trace = RunOrFail(*model.oracle, request, kExact);
  EXPECT_EQ(trace[0].size(), 2u);
  EXPECT_FALSE(computed.contains("L1.shared.gate"));
  EXPECT_FALSE(computed.contains("L2.input_norm"));
  EXPECT_FALSE(computed.contains("logits"));
  request.wanted.clear();
  request.observe = nullptr;
  const Trace all = RunOrFail(*model.oracle, request, kExact);
  EXPECT_EQ(all[0].at("L1.moe.out").data, trace[0].at("L1.moe.out").data);
  // Idle experts apart, every tap of the graph.
  for (const Node& node : model.oracle->graph()) {
    EXPECT_TRUE(all[0].contains(node.tap) || node.expert >= 0) << node.tap;
  }
}

TEST(Run, ARangeOfLayersContinuesFromItsInput) {
  const Opened model = OpenModel("k2-mini");
  RunRequest whole;
  whole.steps = {{kTokens, 0}};
  const Trace all = RunOrFail(*model.oracle, whole, kExact);
  RunRequest part = whole;
  part.first_layer = part.last_layer = 1;
  part.input = &all[0].at("L0.residual_mlp");
  const Trace layer = RunOrFail(*model.oracle, part, kExact);
  EXPECT_EQ(layer[0].at("L1.residual_mlp").data, all[0].at("L1.residual_mlp").data);
  EXPECT_FALSE(layer[0].contains("logits"));
  EXPECT_FALSE(layer[0].contains("L2.input_norm"));
  EXPECT_FALSE(layer[0].contains("embed"));
  part.input = nullptr;
  EXPECT_NE(ErrorOf(*model.oracle, part).find("L0.residual_mlp"), std::string::npos);
  // A block alone: its inputs given, nothing else computed.
  RunRequest block = whole;
  block.first_layer = block.last_layer = 1;
  block.given["L1.post_norm"] = all[0].at("L1.post_norm");
  block.wanted = {"L1.mlp.out"};
  EXPECT_EQ(RunOrFail(*model.oracle, block, kExact)[0].at("L1.mlp.out").data,
            all[0].at("L1.mlp.out").data);
}

TEST(Run, ForcedRoutingIsTakenAndRowsAreStepsInOrder) {
  const Opened model = OpenModel("k2-mini");
  RunRequest request;
  request.steps = {{{kTokens.begin(), kTokens.begin() + 8}, 0}, {{kTokens[8]}, 8}};
  const Trace model_routed = RunOrFail(*model.oracle, request, kExact);
  Tensor ids;
  ids.shape = {9, 2};
  for (int t = 0; t < 9; ++t) {
    ids.data.push_back(t == 8 ? 1 : 0);
    ids.data.push_back(5);
  }
  request.given["L1.router.ids"] = ids;
  const Trace forced = RunOrFail(*model.oracle, request, kExact);
  EXPECT_EQ(forced[0].at("L1.moe.e5.down").rows(), 8);
  EXPECT_EQ(forced[0].at("L1.moe.e0.down").rows(), 8);
  EXPECT_FALSE(forced[0].contains("L1.moe.e1.down"));
  EXPECT_TRUE(forced[1].contains("L1.moe.e1.down"));
  EXPECT_FALSE(forced[1].contains("L1.moe.e0.down"));
  EXPECT_NE(forced[1].at("logits").data, model_routed[1].at("logits").data);
  ids.shape = {3, 6};
  request.given["L1.router.ids"] = ids;
  EXPECT_NE(ErrorOf(*model.oracle, request).find("must be [9, 2]"), std::string::npos);
}

TEST(Run, EveryOutputIsRoundedAsTheContractSays) {
  const Opened model = OpenModel("k2-mini-int4-g32", "quantised");
  Contract contract = kExact;
  contract.rounding = {{"default", DType::kBF16},
                       {"router", DType::kF32},
                       {"moe.up", DType::kF16},
                       {"scores", DType::kF32},
                       {"logits", DType::kF32}};
  RunRequest request;
  request.steps = {{kTokens, 0}};
  const Trace rounded = RunOrFail(*model.oracle, request, contract);
  std::map<DType, int> seen;
  for (const Node& node : model.oracle->graph()) {
    const auto found = rounded[0].find(node.tap);
    if (found == rounded[0].end()) continue;
    const DType type = contract.RoundingOf(node.path, node.op_class);
    ++seen[type];
    for (const double value : found->second.data)
      EXPECT_EQ(value, RoundTo(value, type)) << node.tap;
  }
  EXPECT_GT(seen[DType::kBF16], 30);
  EXPECT_GT(seen[DType::kF16], 1);
  const Trace exact = RunOrFail(*model.oracle, request, kExact);
  EXPECT_NE(exact[0].at("L0.attn.q").data, rounded[0].at("L0.attn.q").data);
}

TEST(Run, DequantProbabilitiesAndTablesAreRoundedInsideTheirOps) {
  const Opened model = OpenModel("k2-mini-int4-g32", "quantised");
  RunRequest request;
  request.steps = {{kTokens, 0}};
  const Trace exact = RunOrFail(*model.oracle, request, kExact);
  const auto first_change = [&](auto change) {
    Contract contract = kExact;
    change(&contract);
    const Trace other = RunOrFail(*model.oracle, request, contract);
    for (const Node& node : model.oracle->graph()) {
      if (exact[0].contains(node.tap) && exact[0].at(node.tap).data != other[0].at(node.tap).data) {
        return node.tap;
      }
    }
    return std::string();
  };
  EXPECT_EQ(first_change([](Contract*) {}), "");
  EXPECT_TRUE(first_change([](Contract* c) { c->dequant = DType::kBF16; }).starts_with("L1.moe.e"));
  EXPECT_EQ(first_change([](Contract* c) { c->probs = DType::kBF16; }), "L0.attn.ctx");
  EXPECT_EQ(first_change([](Contract* c) { c->rope_table = DType::kF32; }), "L0.attn.q_rot");
}

TEST(Run, FlushingZeroesWhatIsSubnormal) {
  const Opened model = OpenModel("llama-mini");
  RunRequest request;
  request.steps = {{{100}, 0}};
  const Trace whole = RunOrFail(*model.oracle, request, kExact);
  RunRequest layer = request;
  layer.first_layer = layer.last_layer = 0;
  layer.wanted = {"L0.mlp.act"};
  Tensor tiny = whole[0].at("L0.mlp.gate");
  for (double& value : tiny.data) value = 0x1p-140;
  layer.given["L0.mlp.gate"] = tiny;
  layer.given["L0.mlp.up"] = whole[0].at("L0.mlp.up");
  Contract contract = kExact;
  const auto nonzero = [&] {
    const Tensor act = RunOrFail(*model.oracle, layer, contract)[0].at("L0.mlp.act");
    return std::count_if(act.data.begin(), act.data.end(), [](double v) { return v != 0; });
  };
  EXPECT_GT(nonzero(), 0);
  contract.ftz = true;
  EXPECT_EQ(nonzero(), 0);
}

TEST(Run, RequestsThatCannotBeAreErrors) {
  const Opened model = OpenModel("k2-mini");
  RunRequest request;
  EXPECT_NE(ErrorOf(*model.oracle, request).find("at least one step"), std::string::npos);
  request.steps = {{{}, 0}};
  EXPECT_NE(ErrorOf(*model.oracle, request).find("at least one token"), std::string::npos);
  request.steps = {{{261}, 0}};
  EXPECT_NE(ErrorOf(*model.oracle, request).find("0 to 260"), std::string::npos);
  request.steps = {{{-1}, 0}};
  EXPECT_FALSE(ErrorOf(*model.oracle, request).empty());
  request.steps = {{{1}, 7}};  // positions 0 to 6 are not there
  EXPECT_NE(ErrorOf(*model.oracle, request).find("position 7"), std::string::npos);
  request.steps = {{{1}, 0}, {{2}, 0}};
  EXPECT_FALSE(ErrorOf(*model.oracle, request).empty());
  request.steps = {{{1}, 0}};
  request.wanted = {"L3.attn.q"};
  EXPECT_NE(ErrorOf(*model.oracle, request).find("L3.attn.q"), std::string::npos);
  request.wanted = {};
  request.given["L0.nothing"] = Tensor();
  EXPECT_NE(ErrorOf(*model.oracle, request).find("L0.nothing"), std::string::npos);
  request.given = {};
  request.first_layer = 3;
  EXPECT_NE(ErrorOf(*model.oracle, request).find("0 to 2"), std::string::npos);
}

TEST(Create, RefusesWhatContradictsItselfAndWhatItDoesNotKnow) {
  const Opened model = OpenModel("k2-mini-int4-g32", "quantised");
  const auto error = [&](const ModelConfig& config, const TensorSource& source) {
    const auto oracle = Oracle::Create(config, source);
    return oracle.ok() ? Error{""} : oracle.error();
  };
  ModelConfig config = model.config();
  config.hidden_act = "gelu";
  EXPECT_EQ(error(config, *model.checkpoint).kind, ErrorKind::kUnsupported);
  config = model.config();
  config.family = Family::kUnknown;
  EXPECT_EQ(error(config, *model.checkpoint).kind, ErrorKind::kUnsupported);
  // What the config says of it, where it says something.
  EXPECT_EQ(error(config, *model.checkpoint).message.find(": "), std::string::npos);
  config.why_unknown = "a sliding window of 8";
  EXPECT_NE(error(config, *model.checkpoint).message.find(": a sliding window of 8"),
            std::string::npos);
  config = model.config();
  config.scoring = "softmax";
  EXPECT_NE(error(config, *model.checkpoint).message.find("softmax"), std::string::npos);
  config = model.config();
  config.intermediate = 161;
  EXPECT_NE(error(config, *model.checkpoint).message.find("mlp.gate_proj.weight"),
            std::string::npos);
  config = model.config();
  config.groups = 4;
  EXPECT_FALSE(error(config, *model.checkpoint).message.empty());
  Overlay missing(*model.checkpoint);
  missing.removed.insert("model.layers.2.mlp.experts.3.up_proj.weight_scale");
  EXPECT_NE(error(model.config(), missing).message.find("experts.3.up_proj"), std::string::npos);
  // A bias that the config does not know is not ignored.
  const Opened qwen2 = OpenModel("qwen2-mini");
  config = qwen2.config();
  config.qkv_bias = false;
  EXPECT_NE(error(config, *qwen2.checkpoint).message.find("q_proj.bias"), std::string::npos);
  EXPECT_NE(error(model.config(), MemorySource()).message.find("no tensor"), std::string::npos);
}

TEST(Create, OneLayersTensorsAreEnoughForOneLayer) {
  const Opened model = OpenModel("k2-mini");
  Overlay only(*model.checkpoint);
  for (const std::string& name : model.checkpoint->Names()) {
    if (name.find(".layers.1.") == std::string::npos) only.removed.insert(name);
  }
  const auto oracle = Oracle::Create(model.config(), only);
  ASSERT_TRUE(oracle.ok()) << oracle.error().message;
  EXPECT_TRUE((*oracle)->Components(0).empty());
  EXPECT_EQ((*oracle)->Components().size(), model.oracle->Components(1).size());
  RunRequest request;
  request.steps = {{kTokens, 0}};
  EXPECT_NE(ErrorOf(**oracle, request).find("embed_tokens"), std::string::npos);
  const Tensor input = testing_support::RandomTensor(3, {9, 96});
  request.input = &input;
  request.first_layer = request.last_layer = 1;
  EXPECT_EQ(RunOrFail(**oracle, request, kExact)[0].at("L1.mlp.out").data,
            RunOrFail(*model.oracle, request, kExact)[0].at("L1.mlp.out").data);
}

// Decoding everything at once would not fit at a real model's size.
TEST(Create, NothingIsDecodedBeforeItIsNeeded) {
  const Opened model = OpenModel("k2-mini-int4-g32", "quantised");
  Overlay broken(*model.checkpoint);
  // NaN scales in an expert that the routing below never asks for.
  const std::string name = "model.layers.1.mlp.experts.3.up_proj.weight_scale";
  const TensorView* view = model.checkpoint->Find(name);
  broken.changed.Put(name, view->dtype, view->shape,
                     std::vector<std::byte>(view->bytes.size(), std::byte{0xff}));
  const auto oracle = Oracle::Create(model.config(), broken);
  ASSERT_TRUE(oracle.ok());
  RunRequest request;
  request.steps = {{{100}, 0}};
  Tensor ids;
  ids.shape = {1, 2};
  ids.data = {0, 1};
  request.given["L1.router.ids"] = ids;
  EXPECT_EQ(ErrorOf(**oracle, request), "");
  request.given["L1.router.ids"].data = {0, 3};
  const auto refused = (*oracle)->Run(request, kExact);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kRefused);
  EXPECT_NE(refused.error().message.find(name), std::string::npos) << refused.error().message;
}

// Hundreds of thousands of them in a large checkpoint: only those of the parameters in use are
// read.
TEST(Run, AStatedShapeIsReadWhereItsParameterIsUsed) {
  const Opened base = OpenModel("k2-mini-int4-g32", "quantised");
  Overlay source(*base.checkpoint);
  const std::string name = "model.layers.2.mlp.experts.0.down_proj.weight_shape";
  std::vector<std::byte> lie(2 * sizeof(int64_t));
  source.changed.Put(name, DType::kI64, {2}, lie);
  const auto oracle = Oracle::Create(base.config(), source);
  ASSERT_TRUE(oracle.ok()) << oracle.error().message;
  EXPECT_EQ((*oracle)->Components(), base.oracle->Components());
  RunRequest request;
  request.steps = {{kTokens, 0}};
  request.last_layer = 1;
  EXPECT_EQ(ErrorOf(**oracle, request), "");
  request.last_layer = 2;
  // Forced, so that expert 0 is in use.
  Tensor ids;
  ids.shape = {static_cast<int64_t>(kTokens.size()), base.config().top_k};
  for (size_t i = 0; i < kTokens.size(); ++i) ids.data.insert(ids.data.end(), {0, 1});
  request.given["L2.router.ids"] = ids;
  EXPECT_NE(ErrorOf(**oracle, request).find(name + ": says [0, 0]"), std::string::npos);
}

}  // namespace
}  // namespace assay::reference
