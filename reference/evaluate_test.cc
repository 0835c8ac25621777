// Single ops on what one rank has: sums of partials, exactness, propagated errors, foreign shards.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "reference/golden_bound.h"
#include "reference/model.h"
#include "reference/test_support.h"

namespace assay::reference {
namespace {

using testing_support::Opened;
using testing_support::OpenModel;
using testing_support::Overlay;
using testing_support::RandomTensor;
using testing_support::Uniform;

const Contract kExact = Contract::Exact();
constexpr int64_t kTokens = 5;

Step FiveTokens() { return {{256, 102, 111, 114, 32}, 0}; }

// All taps of one prefill, and what a rank has of each.
struct Chain {
  explicit Chain(const Opened& model) : oracle(*model.oracle) {
    RunRequest request;
    request.steps = {FiveTokens()};
    auto run = oracle.Run(request, kExact);
    EXPECT_TRUE(run.ok());
    whole = std::move((*run)[0]);
  }
  // The rank's columns of a tap; scores are cut by heads.
  Tensor Part(const Node& node, const Where& where) const {
    const Tensor& from = whole.at(node.tap);
    const auto columns = *oracle.TapColumns(node, where);
    const int64_t width = node.op == Op::kScores ? from.shape[2] : 1;
    Tensor to;
    to.shape = {from.rows(), static_cast<int64_t>(columns.size())};
    if (width > 1) to.shape.push_back(width);
    for (int64_t t = 0; t < from.rows(); ++t) {
      for (const int64_t column : columns) {
        for (int64_t i = 0; i < width; ++i) {
          to.data.push_back(
              column < 0 ? 0
                         : from.data[static_cast<size_t>(t * from.columns() + column * width + i)]);
        }
      }
    }
    return to;
  }
  const Oracle& oracle;
  std::map<std::string, Tensor> whole;
};

// A node's inputs on a rank, owned.
struct Inputs {
  std::vector<Tensor> values, errors;
  std::vector<Input> list;
};
Inputs InputsOf(const Chain& chain, const Node& node, const Where& where) {
  Inputs inputs;
  if (node.op == Op::kEmbed) return inputs;
  for (const std::string& tap : node.inputs) {
    const bool idle = !chain.whole.contains(tap);
    inputs.values.push_back(idle ? Tensor() : chain.Part(*chain.oracle.FindNode(tap), where));
  }
  for (const Tensor& value : inputs.values) {
    inputs.list.push_back({value.shape.empty() ? nullptr : &value, nullptr});
  }
  return inputs;
}

// Every op of every family on every rank equals the whole chain's columns; partial sums add up.
void ExpectRanksMakeTheWhole(const Opened& model, Parallel degrees, bool attention_only = false) {
  const Chain chain(model);
  const Step step = FiveTokens();
  int evaluated = 0;
  for (const Node& node : chain.oracle.graph()) {
    if (!chain.whole.contains(node.tap)) continue;  // an idle expert
    // A reduce's inputs are the ranks' partials: their sum is tested here as the sum of parts.
    if (node.op == Op::kReduce) continue;
    if (attention_only && !node.path.starts_with("attn.")) continue;
    Tensor sum, bound;
    const int ranks = node.domain == Domain::kAttention ? degrees.attn_tp : degrees.tp;
    for (int rank = 0; rank < ranks; ++rank) {
      const Where where = {degrees, rank};
      const Inputs inputs = InputsOf(chain, node, where);
      const auto e = chain.oracle.Evaluate(node, inputs.list, where, step, kExact);
      ASSERT_TRUE(e.ok()) << node.tap << ": " << e.error().message;
      ++evaluated;
      if (node.spread != Spread::kPartial) {
        const Tensor expected = chain.Part(node, where);
        ASSERT_EQ(e->value.data.size(), expected.data.size()) << node.tap;
        EXPECT_EQ(e->value.data, expected.data) << node.tap << " rank " << rank;
        continue;
      }
      if (sum.data.empty()) {
        sum.data.assign(e->value.data.size(), 0.0);
        bound = sum;
      }
      for (size_t i = 0; i < sum.data.size(); ++i) {
        sum.data[i] += e->value.data[i];
        bound.data[i] += 2 * DoubleError(node, *e, i, step) + 0x1p-53 * std::fabs(sum.data[i]);
      }
    }
    if (node.op == Op::kCombine) continue;  // its inputs are whole, not the rank's partials
    for (size_t i = 0; i < sum.data.size(); ++i) {
      EXPECT_NEAR(sum.data[i], chain.whole.at(node.tap).data[i], bound.data[i]) << node.tap;
    }
  }
  EXPECT_GT(evaluated, 30);
}

TEST(Evaluate, RanksMakeTheWholeLatentAttention) {
  ExpectRanksMakeTheWhole(OpenModel("k2-mini-int4-g32", "quantised"), {4, 4});
  ExpectRanksMakeTheWhole(OpenModel("k2-mini"), {4, 2});
  ExpectRanksMakeTheWhole(OpenModel("dsv3-mini"), {2, 2});
  ExpectRanksMakeTheWhole(OpenModel("dsv3-mini"), {3, 3}, true);
}
TEST(Evaluate, RanksMakeTheWholeGroupedQueryAttention) {
  ExpectRanksMakeTheWhole(OpenModel("llama-mini"), {3, 3});
  ExpectRanksMakeTheWhole(OpenModel("qwen3-mini"), {2, 2});
  ExpectRanksMakeTheWhole(OpenModel("qwen2-mini"), {4, 1});
  // One key/value head on seven ranks, three on nine.
  ExpectRanksMakeTheWhole(OpenModel("qwen2-mini"), {7, 7}, true);
  ExpectRanksMakeTheWhole(OpenModel("llama-mini"), {9, 9}, true);
}

TEST(Evaluate, AnotherRanksSliceIsNotTheSame) {  // the control of the two tests above
  const Opened model = OpenModel("k2-mini");
  const Chain chain(model);
  const Node& down = *model.oracle->FindNode("L0.mlp.down");
  const Inputs inputs = InputsOf(chain, down, {{4, 4}, 1});
  const auto right = model.oracle->Evaluate(down, inputs.list, {{4, 4}, 1}, FiveTokens(), kExact);
  const auto wrong = model.oracle->Evaluate(down, inputs.list, {{4, 4}, 2}, FiveTokens(), kExact);
  ASSERT_TRUE(right.ok() && wrong.ok());
  EXPECT_NE(right->value.data, wrong->value.data);
}

TEST(Evaluate, ReduceAndCombineSumWhatTheyAreGiven) {
  const Opened model = OpenModel("k2-mini");
  const Node& reduce = *model.oracle->FindNode("L0.attn.out");
  const Tensor a = RandomTensor(1, {kTokens, 96}), b = RandomTensor(2, {kTokens, 96});
  const std::vector<Input> parts = {{&a, nullptr}, {&b, &a}};
  const auto e = model.oracle->Evaluate(reduce, parts, {{2, 2}, 1}, FiveTokens(), kExact);
  ASSERT_TRUE(e.ok()) << e.error().message;
  EXPECT_EQ(e->terms, 2);
  for (size_t i = 0; i < a.data.size(); ++i) {
    EXPECT_EQ(e->value.data[i], a.data[i] + b.data[i]);
    EXPECT_EQ(e->magnitude.data[i], std::fabs(a.data[i]) + std::fabs(b.data[i]));
    EXPECT_EQ(e->propagated.data[i], a.data[i]);
  }
}

// First-order bounds against a real perturbation: each input moved by its error, signs at random;
// the output must move, and by no more than the bound (and second order, the error squared).
TEST(Evaluate, PropagatedErrorsBoundARealPerturbation) {
  constexpr double kRelative = 0x1p-30;
  constexpr double kSecondOrder = 1 + 0x1p-16;  // errors are 2^-30 of values; slopes are moderate
  for (const char* name : {"k2-mini", "qwen3-mini", "qwen2-mini", "dsv3-mini"}) {
    const Opened model = OpenModel(name);
    const Chain chain(model);
    std::map<Op, int> seen;
    for (const Node& node : chain.oracle.graph()) {
      if (!chain.whole.contains(node.tap) || node.op == Op::kEmbed) continue;
      Inputs inputs = InputsOf(chain, node, Where{});
      std::vector<Tensor> moved = inputs.values;
      inputs.errors = inputs.values;
      for (size_t i = 0; i < moved.size(); ++i) {
        const bool ids = node.inputs[i].ends_with("router.ids");
        for (size_t j = 0; j < moved[i].data.size(); ++j) {
          const double size = ids || !std::isfinite(moved[i].data[j])
                                  ? 0
                                  : kRelative * (std::fabs(moved[i].data[j]) + 0x1p-10);
          inputs.errors[i].data[j] = size;
          moved[i].data[j] += Uniform(i, j) < 0 ? -size : size;
        }
        if (inputs.list[i].value != nullptr && !ids) inputs.list[i].error = &inputs.errors[i];
      }
      std::vector<Input> moved_list;
      for (const Tensor& tensor : moved) {
        moved_list.push_back({tensor.shape.empty() ? nullptr : &tensor, nullptr});
      }
      const Step step = FiveTokens();
      const auto e = chain.oracle.Evaluate(node, inputs.list, Where{}, step, kExact);
      const auto f = chain.oracle.Evaluate(node, moved_list, Where{}, step, kExact);
      ASSERT_TRUE(e.ok() && f.ok()) << node.tap;
      ++seen[node.op];
      if (node.op == Op::kRouterIds) {
        for (size_t i = 0; i < e->margin.data.size(); ++i) {
          EXPECT_LE(std::fabs(e->margin.data[i] - f->margin.data[i]), e->propagated.data[i]);
        }
        continue;
      }
      ASSERT_EQ(e->propagated.data.size(), e->value.data.size()) << node.tap;
      bool any = false;
      for (size_t i = 0; i < e->value.data.size(); ++i) {
        if (!std::isfinite(e->value.data[i])) continue;
        const double change = std::fabs(f->value.data[i] - e->value.data[i]);
        any = any || change > 0;
        ASSERT_LE(change, kSecondOrder * e->propagated.data[i] + 2 * DoubleError(node, *e, i, step))
            << name << " " << node.tap << " element " << i;
      }
      EXPECT_TRUE(any) << node.tap;
    }
    EXPECT_GE(seen.size(), 8u);
  }
}

TEST(Evaluate, NoErrorsNoPropagation) {
  const Opened model = OpenModel("llama-mini");
  const Chain chain(model);
  for (const Node& node : chain.oracle.graph()) {
    const Inputs inputs = InputsOf(chain, node, Where{});
    const auto e = chain.oracle.Evaluate(node, inputs.list, Where{}, FiveTokens(), kExact);
    ASSERT_TRUE(e.ok());
    EXPECT_TRUE(e->propagated.data.empty()) << node.tap;
  }
}

// The rank's shard as somebody else loaded it.
void PutSlice(const Oracle& oracle, const std::string& component, const Where& where,
              MemorySource* shard) {
  const auto slice = oracle.ExpectedSlice(component, where);
  ASSERT_TRUE(slice.ok()) << slice.error().message;
  shard->Put(
      component, slice->dtype,
      {static_cast<int64_t>(slice->rows.size()), static_cast<int64_t>(slice->columns.size())},
      slice->bytes);
}

TEST(Evaluate, AForeignShardIsUsedAndADamagedOneShows) {
  const Opened model = OpenModel("k2-mini-int4-g32", "quantised");
  const Chain chain(model);
  const Where where = {{4, 4}, 1};
  for (const char* path : {"gate", "up", "down"}) {
    std::string tap;
    for (int expert = 0; expert < 6 && tap.empty(); ++expert) {
      const std::string candidate = "L1.moe.e" + std::to_string(expert) + "." + path;
      if (chain.whole.contains(candidate)) tap = candidate;
    }
    const Node& node = *model.oracle->FindNode(tap);
    const Inputs inputs = InputsOf(chain, node, where);
    MemorySource shard;
    PutSlice(*model.oracle, tap + ".weight", where, &shard);
    PutSlice(*model.oracle, tap + ".scale", where, &shard);
    const auto own = model.oracle->Evaluate(node, inputs.list, where, FiveTokens(), kExact);
    const auto same =
        model.oracle->Evaluate(node, inputs.list, where, FiveTokens(), kExact, &shard);
    ASSERT_TRUE(own.ok() && same.ok()) << same.error().message;
    EXPECT_EQ(own->value.data, same->value.data) << tap;
    const auto other = model.oracle->ExpectedSlice(tap + ".scale", {{4, 4}, 2});
    shard.Put(
        tap + ".scale", other->dtype,
        {static_cast<int64_t>(other->rows.size()), static_cast<int64_t>(other->columns.size())},
        other->bytes);
    const auto wrong =
        model.oracle->Evaluate(node, inputs.list, where, FiveTokens(), kExact, &shard);
    ASSERT_TRUE(wrong.ok());
    EXPECT_NE(own->value.data, wrong->value.data) << tap;
    shard.Put(tap + ".scale", other->dtype, {1, 1}, std::vector<std::byte>(2));
    EXPECT_FALSE(
        model.oracle->Evaluate(node, inputs.list, where, FiveTokens(), kExact, &shard).ok());
  }
}

TEST(Evaluate, ForeignVectorsAndEmbeddingsAreUsed) {
  const Opened model = OpenModel("qwen2-mini");
  const Chain chain(model);
  const Where where = {{7, 7}, 3};
  for (const char* tap : {"L0.input_norm", "L0.attn.q", "embed"}) {
    const Node& node = *model.oracle->FindNode(tap);
    const Inputs inputs = InputsOf(chain, node, where);
    MemorySource shard;
    PutSlice(*model.oracle, std::string(tap) + ".weight", where, &shard);
    if (node.tap == "L0.attn.q") PutSlice(*model.oracle, "L0.attn.q.bias", where, &shard);
    Step step = FiveTokens();
    step.tokens[1] = 200;  // of rank 3's rows, 192 to 255
    const auto own = model.oracle->Evaluate(node, inputs.list, where, step, kExact);
    const auto same = model.oracle->Evaluate(node, inputs.list, where, step, kExact, &shard);
    ASSERT_TRUE(own.ok() && same.ok()) << same.error().message;
    EXPECT_EQ(own->value.data, same->value.data) << tap;
    const TensorView* view = shard.Find(std::string(tap) + ".weight");
    shard.Put(view->name, view->dtype, view->shape, std::vector<std::byte>(view->bytes.size()));
    const auto zero = model.oracle->Evaluate(node, inputs.list, where, step, kExact, &shard);
    ASSERT_TRUE(zero.ok());
    EXPECT_NE(own->value.data, zero->value.data) << tap;
  }
}

TEST(Evaluate, InputsOfOtherShapesAndIllegalIdsAreErrors) {
  const Opened model = OpenModel("k2-mini");
  const Chain chain(model);
  const Step step = FiveTokens();
  const auto error = [&](const char* tap, const std::vector<Input>& inputs, const Where& where) {
    const auto e =
        model.oracle->Evaluate(*model.oracle->FindNode(tap), inputs, where, step, kExact);
    return e.ok() ? std::string() : e.error().message;
  };
  const Tensor narrow = RandomTensor(1, {kTokens, 95}), few = RandomTensor(1, {4, 96});
  EXPECT_NE(error("L0.input_norm", {{&narrow, nullptr}}, Where{}).find("[5, 95]"),
            std::string::npos);
  EXPECT_NE(error("L0.input_norm", {{&few, nullptr}}, Where{}).find("must be [5, 96]"),
            std::string::npos);
  EXPECT_NE(error("L0.input_norm", {}, Where{}).find("0 inputs"), std::string::npos);
  EXPECT_NE(error("L0.input_norm", {{nullptr, nullptr}}, Where{}).find("missing"),
            std::string::npos);
  // The whole tensor where the rank has a quarter.
  EXPECT_FALSE(
      error("L0.mlp.down", {{&chain.whole.at("L0.mlp.act"), nullptr}}, {{4, 4}, 0}).empty());
  Tensor ids = chain.whole.at("L1.router.ids");
  const Tensor& norm = chain.whole.at("L1.post_norm");
  ids.data[3] = 6;
  EXPECT_NE(error("L1.moe.e0.gate", {{&norm, nullptr}, {&ids, nullptr}}, Where{}).find("no expert"),
            std::string::npos);
  ids.data[3] = ids.data[2];
  EXPECT_NE(error("L1.moe.e0.gate", {{&norm, nullptr}, {&ids, nullptr}}, Where{}).find("twice"),
            std::string::npos);
  EXPECT_FALSE(
      error("L0.mlp.gate", {{&chain.whole.at("L0.post_norm"), nullptr}}, {{3, 3}, 0}).empty());
  Contract a8 = kExact;
  a8.act = "anvfp4";
  const std::vector<Input> good = {{&norm, nullptr}};
  EXPECT_EQ(
      model.oracle->Evaluate(*model.oracle->FindNode("L1.input_norm"), good, Where{}, step, a8)
          .error()
          .kind,
      ErrorKind::kUnsupported);
}

TEST(Evaluate, ActivationsThatAContractFlushesAddNothing) {
  const Opened model = OpenModel("llama-mini");
  Tensor x = ops::Zeros({1, 144});
  for (double& value : x.data) value = 0x1p-130;
  const std::vector<Input> inputs = {{&x, nullptr}};
  const Node& up = *model.oracle->FindNode("L0.mlp.up");
  Contract contract = kExact;
  const auto kept = model.oracle->Evaluate(up, inputs, Where{}, {{1}, 0}, contract);
  contract.daz = true;
  const auto flushed = model.oracle->Evaluate(up, inputs, Where{}, {{1}, 0}, contract);
  ASSERT_TRUE(kept.ok() && flushed.ok());
  EXPECT_NE(kept->value.data[0], 0);
  for (const double value : flushed->value.data) EXPECT_EQ(value, 0);
}

TEST(Evaluate, ChannelScalesStayWholeOnEveryRank) {
  const Opened model = OpenModel("k2-mini-int4-g32", "quantised");
  ModelConfig config = model.config();
  config.quant.strategy = "channel";
  Overlay source(*model.checkpoint);
  for (const std::string& name : model.checkpoint->Names()) {
    if (!name.ends_with(".weight_scale")) continue;
    const TensorView* view = model.checkpoint->Find(name);
    std::vector<std::byte> first;  // each row's first group
    for (int64_t n = 0; n < view->shape[0]; ++n) {
      const auto at = view->bytes.begin() + n * view->shape[1] * 2;
      first.insert(first.end(), at, at + 2);
    }
    source.changed.Put(name, view->dtype, {view->shape[0], 1}, std::move(first));
  }
  const auto oracle = Oracle::Create(config, source);
  ASSERT_TRUE(oracle.ok()) << oracle.error().message;
  for (const int tp : {8, 16, 32}) {
    const auto slice = (*oracle)->ExpectedSlice("L1.moe.e0.down.scale", {{tp, 1}, tp - 1});
    ASSERT_TRUE(slice.ok()) << slice.error().message;
    EXPECT_EQ(slice->columns, std::vector<int64_t>{0});
    EXPECT_EQ(slice->elements_per_column, 256);
  }
  // Words still cannot be cut: 256 / 64 = 4 elements.
  EXPECT_EQ((*oracle)->ExpectedSlice("L1.moe.e0.down.scale", {{64, 1}, 0}).error().kind,
            ErrorKind::kRefused);
  const Where where = {{16, 1}, 3};
  MemorySource shard;
  PutSlice(**oracle, "L1.moe.e0.down.weight", where, &shard);
  PutSlice(**oracle, "L1.moe.e0.down.scale", where, &shard);
  const Tensor act = RandomTensor(7, {2, 16});
  const std::vector<Input> inputs = {{&act, nullptr}};
  const Node& down = *(*oracle)->FindNode("L1.moe.e0.down");
  const auto own = (*oracle)->Evaluate(down, inputs, where, {{1, 2}, 0}, kExact);
  const auto same = (*oracle)->Evaluate(down, inputs, where, {{1, 2}, 0}, kExact, &shard);
  ASSERT_TRUE(own.ok() && same.ok());
  EXPECT_EQ(own->value.data, same->value.data);
}

}  // namespace
}  // namespace assay::reference
