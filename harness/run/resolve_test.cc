// From a problem string to what is loaded, run and judged; and each way in which that fails.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "harness/run/cell.h"
#include "harness/run/spec.h"

namespace assay::run {
namespace {

ModelStore& Models() {
  static ModelStore models;
  return models;
}

Result<std::unique_ptr<CellSpec>> Resolve(const std::string& text) {
  auto problem = ParseProblem(text);
  if (!problem) return problem.error();
  return ResolveCell(*problem, &Models());
}

std::unique_ptr<CellSpec> Spec(const std::string& text) {
  auto spec = Resolve(text);
  if (spec) return std::move(*spec);
  ADD_FAILURE() << text << ": " << spec.error().message;
  return nullptr;
}

std::set<std::string> Taps(const CellSpec& spec) {
  std::set<std::string> taps;
  for (const reference::Node* node : spec.nodes) taps.insert(node->tap);
  return taps;
}

void ExpectError(const std::string& text, ErrorKind kind, const std::vector<std::string>& parts) {
  const auto spec = Resolve(text);
  ASSERT_FALSE(spec.ok()) << text << " resolved";
  EXPECT_EQ(static_cast<int>(spec.error().kind), static_cast<int>(kind)) << spec.error().message;
  for (const std::string& part : parts) {
    EXPECT_NE(spec.error().message.find(part), std::string::npos)
        << "'" << part << "' not in: " << spec.error().message;
  }
}

void ExpectBad(const std::string& text, const std::vector<std::string>& parts) {
  ExpectError(text, ErrorKind::kBadInput, parts);
}

// Restores the variable at its end.
class FakeTiers {
 public:
  explicit FakeTiers(const char* tiers) { setenv("ASSAY_FAKE_TIERS", tiers, 1); }
  ~FakeTiers() { unsetenv("ASSAY_FAKE_TIERS"); }
};

TEST(Resolve, EachKindHasItsModeAndOps) {
  struct Row {
    const char* text;
    Mode mode;
    const char* has;
    const char* has_not;
  };
  const Row rows[] = {
      {"linear model=k2-mini layer=1", Mode::kOps, "L1.moe.e3.down", "L1.moe.e3.act"},
      {"norm model=qwen3-mini layer=1", Mode::kOps, "L1.attn.q_norm", "L1.attn.q"},
      {"act model=llama-mini layer=0", Mode::kOps, "L0.mlp.act", "L0.mlp.up"},
      {"collective model=k2-mini layer=1", Mode::kCollective, "L1.moe.out", "L1.moe.partial"},
      {"attn model=k2-mini layer=1", Mode::kScope, "L1.attn.scores", "L1.post_norm"},
      {"route model=k2-mini layer=1", Mode::kScope, "L1.router.ids", "L1.moe.out"},
      {"moe model=k2-mini layer=1", Mode::kScope, "L1.mlp.out", "L1.attn.out"},
      {"layer model=llama-mini layer=1", Mode::kScope, "L1.residual_mlp", "L0.residual_mlp"},
      {"model model=llama-mini", Mode::kScope, "logits", "L9.mlp.out"},
  };
  for (const Row& row : rows) {
    const auto spec = Spec(row.text);
    ASSERT_NE(spec, nullptr);
    EXPECT_EQ(spec->mode, row.mode) << row.text;
    EXPECT_EQ(Taps(*spec).count(row.has), 1u) << row.text;
    EXPECT_EQ(Taps(*spec).count(row.has_not), 0u) << row.text;
  }
  const auto load = Spec("load model=k2-mini");
  EXPECT_EQ(load->mode, Mode::kLoad);
  EXPECT_TRUE(load->nodes.empty());
}

TEST(Resolve, OpsByShortAndFullName) {
  for (const char* op : {"moe.down", "down"}) {
    const auto spec = Spec(std::string("linear model=k2-mini layer=1 expert=3 op=") + op);
    ASSERT_NE(spec, nullptr);
    EXPECT_EQ(Taps(*spec), (std::set<std::string>{"L1.moe.e3.down"})) << op;
    EXPECT_EQ(spec->selection.experts, (std::vector<int64_t>{3}));
    EXPECT_FALSE(spec->selection.attention);
    EXPECT_TRUE(spec->selection.mlp);
  }
  // The short name of two ops takes both; the end of a word is not a name.
  EXPECT_EQ(Taps(*Spec("collective model=k2-mini layer=1 op=out")),
            (std::set<std::string>{"L1.attn.out", "L1.moe.out", "L1.shared.out"}));
  ExpectBad("linear model=k2-mini layer=1 op=own", {"op=own", "layer=1", "moe.down", "attn.q"});
}

TEST(Resolve, ExpertsOfAllOps) {
  const auto spec = Spec("linear model=k2-mini layer=1 op=moe.gate");
  const auto experts = spec->model->checkpoint->config().experts;
  EXPECT_EQ(static_cast<int64_t>(spec->nodes.size()), experts);
  ASSERT_TRUE(FillCell(spec.get()).ok());
  // Five tokens of two experts each reach every one of up to ten.
  const auto& ids = spec->given.at({0, "L1.router.ids", -1});
  std::set<int32_t> reached;
  const auto* values = reinterpret_cast<const int32_t*>(ids.bytes.data());
  for (size_t i = 0; i < ids.bytes.size() / sizeof(int32_t); ++i) reached.insert(values[i]);
  EXPECT_EQ(static_cast<int64_t>(reached.size()),
            std::min(experts, 5 * spec->model->checkpoint->config().top_k));
  // One expert has every row.
  const auto one = Spec("linear model=k2-mini layer=1 op=moe.gate expert=5");
  ASSERT_TRUE(FillCell(one.get()).ok());
  const auto& all = one->given.at({0, "L1.router.ids", -1});
  const int64_t top_k = all.shape[1];
  const auto* rows = reinterpret_cast<const int32_t*>(all.bytes.data());
  for (int64_t row = 0; row < all.shape[0]; ++row) {
    const std::set<int32_t> chosen(rows + row * top_k, rows + (row + 1) * top_k);
    EXPECT_EQ(static_cast<int64_t>(chosen.size()), top_k);
    EXPECT_TRUE(chosen.count(5));
  }
}

TEST(Resolve, TierIsTheBestOfHostAndEngine) {
  const FakeTiers fake("scalar");
  EXPECT_EQ(NativeTiers(), (std::vector<std::string>{"scalar"}));
  EXPECT_EQ(Spec("linear model=k2-mini layer=1")->problem.Get("tier"), "scalar");
  // A demanded tier stays: that the host lacks it is the engine's to say.
  EXPECT_EQ(Spec("linear model=k2-mini layer=1 tier=avx2")->problem.Get("tier"), "avx2");
}

TEST(Resolve, WithoutAFakeTheBestComesFirst) {
  const auto tiers = NativeTiers();
  ASSERT_FALSE(tiers.empty());
  EXPECT_EQ(tiers.back(), "scalar");
  EXPECT_EQ(Spec("linear model=k2-mini layer=1")->problem.Get("tier"), tiers.front());
}

TEST(Resolve, MethodIsThatOfTheWeights) {
  EXPECT_EQ(Spec("linear model=k2-mini-int4-g32 layer=1 op=moe.up")->problem.Get("method"),
            "ct-int4-g32");
  EXPECT_EQ(Spec("linear model=k2-mini-int4-g32 layer=1 op=attn.q")->problem.Get("method"), "bf16");
  EXPECT_EQ(Spec("load model=k2-mini-int4-g32")->problem.Get("method"), "ct-int4-g32");
  EXPECT_EQ(Spec("model model=k2-mini")->problem.Get("method"), "bf16");
  ExpectBad("linear model=k2-mini-int4-g32 layer=1 op=moe.up method=bf16",
            {"method=bf16", "ct-int4-g32", "model="});
  ExpectBad("model model=k2-mini method=ct-int4-g32", {"method=ct-int4-g32", "stored as bf16"});
}

TEST(Resolve, GroupIsThatOfTheWeights) {
  EXPECT_NE(Spec("linear model=k2-mini-int4-g32 layer=1 op=moe.up group=32"), nullptr);
  ExpectBad("linear model=k2-mini-int4-g32 layer=1 op=moe.up group=64",
            {"group=64", "ct-int4-g32"});
  ExpectBad("linear model=k2-mini layer=1 op=moe.up group=32", {"group=32", "without groups"});
}

TEST(Resolve, ResolvingAgainChangesNothing) {
  for (const char* text : {"moe model=k2-mini-int4-g32 layer=1 tp=2", "load model=qwen2-mini tp=3",
                           "model model=llama-mini prompt=t5 tokens=3+2"}) {
    const auto once = Spec(text);
    const auto twice = ResolveProblem(once->problem, &Models());
    ASSERT_TRUE(twice.ok());
    EXPECT_EQ(PrintCanonical(*twice), PrintCanonical(once->problem));
  }
}

TEST(Resolve, LayersAndExpertsHaveRanges) {
  ExpectBad("layer model=llama-mini layer=99", {"layer=99", "all and 0 to "});
  ExpectBad("load model=llama-mini layer=99", {"layer=99", "all and 0 to "});
  ExpectBad("linear model=k2-mini layer=1 expert=999", {"expert=999", "0 to "});
  ExpectBad("layer model=llama-mini", {"layer needs layer=", "0 to "});
  ExpectBad("moe model=k2-mini layer=all", {"moe layer=all", "name one layer"});
  ExpectBad("moe model=k2-mini layer=0", {"layer=0", "has no experts"});
  ExpectBad("route model=llama-mini layer=0", {"has no experts"});
  ExpectBad("linear model=k2-mini layer=0 expert=3", {"no such op"});
}

TEST(Resolve, KeysThatTheKindHasNoUseFor) {
  ExpectBad("moe model=k2-mini layer=1 op=moe.down", {"moe op=moe.down", "linear, norm, act"});
  ExpectBad("load model=k2-mini op=attn.q", {"load op=attn.q"});
  ExpectBad("moe model=k2-mini layer=1 expert=3", {"moe expert=3", "load, linear"});
  ExpectBad("model model=k2-mini layer=1", {"model layer=1", "kind layer"});
}

TEST(Resolve, WhatIsNotBuiltIsNotPassedOver) {
  for (const char* key :
       {"ep=2", "dp=2", "pools=2", "split=ceil", "placement=gpu", "graph=captured", "lm_head=dp",
        "beta=2", "linear_beta=2", "chunk=2", "prefix=3", "prefill_threshold=9", "tokens=4x1"}) {
    const std::string text = std::string("model model=llama-mini ") + key;
    ExpectError(text, ErrorKind::kUnsupported, {std::string(key).substr(0, 3), "built"});
  }
  ExpectError("model model=llama-mini reduce=ring:int4", ErrorKind::kUnsupported, {"ring:int4"});
  ExpectError("lora model=llama-mini", ErrorKind::kUnsupported, {"lora"});
  ExpectError("collective model=k2-mini layer=1 fill=real", ErrorKind::kUnsupported, {"fill=real"});
}

TEST(Resolve, TooMuchIsRefusedAtOnce) {
  ExpectBad("load model=k2-mini tp=1025", {"tp=1025", "1 to 1024"});
  ExpectBad("collective model=k2-mini layer=1 tp=2147483647", {"tp=2147483647", "1 to 1024"});
  ExpectBad("load model=k2-mini attn_tp=4096", {"attn_tp=4096", "1 to 1024"});
  ExpectBad("load model=k2-mini threads=2147483647", {"threads=2147483647", "1 to 1024"});
  ExpectBad("linear model=k2-mini layer=0 op=mlp.up tokens=1048576",
            {"tokens=1048576", "values", "fewer tokens"});
  ExpectBad("collective model=k2-mini layer=1 tp=1024 tokens=4096", {"tokens=4096", "values"});
  EXPECT_NE(Spec("collective model=k2-mini layer=1 tp=1024"), nullptr);
  EXPECT_NE(Spec("linear model=k2-mini layer=0 op=mlp.up tokens=4096"), nullptr);
}

TEST(Resolve, PositionsOfTheModel) {
  const int64_t positions = Spec("load model=llama-mini")->model->checkpoint->config().max_position;
  const std::string over = std::to_string(positions + 1);
  ExpectBad("model model=llama-mini tokens=" + over, {over, "positions"});
  ExpectBad("attn model=llama-mini layer=0 tokens=" + std::to_string(positions) + "+1",
            {"positions"});
  EXPECT_NE(Spec("model model=llama-mini tokens=" + std::to_string(positions)), nullptr);
  EXPECT_NE(Spec("linear model=llama-mini layer=0 tokens=" + over), nullptr);
}

TEST(Resolve, Tokens) {
  const auto spec = Spec("attn model=k2-mini layer=1 tokens=7+2");
  ASSERT_EQ(spec->steps.size(), 3u);
  EXPECT_EQ(spec->steps[0].tokens.size(), 7u);
  EXPECT_EQ(spec->steps[2].first_position, 8);
  ExpectBad("linear model=k2-mini layer=1 tokens=7+2", {"tokens=7+2", "a decode needs a scope"});
}

TEST(Resolve, Prompts) {
  EXPECT_EQ(Spec("model model=llama-mini prompt=t5")->steps[0].tokens.size(), 5u);
  const auto split = Spec("model model=llama-mini prompt=t5 tokens=3+2");
  ASSERT_EQ(split->steps.size(), 3u);
  EXPECT_EQ(split->steps[1].first_position, 3);
  ExpectBad("model model=llama-mini prompt=t5 tokens=6", {"tokens=6", "prompt=t5", "5 tokens"});
  ExpectBad("model model=llama-mini prompt=t999", {"prompt=t999", "golden", "file of ids"});
  ExpectBad("model model=llama-mini prompt=/dev/zero", {"prompt=/dev/zero", "regular file"});
  ExpectBad("model model=llama-mini prompt=/", {"regular file"});
  const std::string file = std::string(std::getenv("TEST_TMPDIR")) + "/ids";
  const auto write = [&](const char* text) { std::ofstream(file) << text; };
  write("3 1\n4 1 5\n");
  EXPECT_EQ(Spec("model model=llama-mini prompt=" + file)->steps[0].tokens,
            (std::vector<int32_t>{3, 1, 4, 1, 5}));
  write("3 four");
  ExpectBad("model model=llama-mini prompt=" + file, {"token 1 is not a number"});
  write("3 -1");
  ExpectBad("model model=llama-mini prompt=" + file, {"token 1 is -1", "0 to "});
  write("99999999999999999999");
  ExpectBad("model model=llama-mini prompt=" + file, {"token 0 is not a number"});
  write("4294967296");
  ExpectBad("model model=llama-mini prompt=" + file, {"token 0 is 4294967296"});
  write(" \n");
  ExpectBad("model model=llama-mini prompt=" + file, {"no token ids"});
}

TEST(Resolve, ModelsThatAreNotThere) {
  ExpectError("model model=k9-mini", ErrorKind::kEnvironment, {"k9-mini", "k2-mini", "a path"});
  ExpectError("model model=/no/such", ErrorKind::kEnvironment, {"/no/such"});
  ExpectBad("model model=/dev/zero", {"/dev/zero"});
  // Twice the same: a failure is kept as a model is.
  ExpectError("model model=k9-mini", ErrorKind::kEnvironment, {"k9-mini"});
  // Shipped, and of a family that the oracle does not know.
  ExpectError("model model=v4-mini", ErrorKind::kUnsupported, {});
}

TEST(Resolve, EnginesAndFaults) {
  EXPECT_NE(Spec("moe model=k2-mini layer=1 tp=2 fault=K03/rank0"), nullptr);
  ExpectBad("moe model=k2-mini layer=1 fault=K99/nothing", {"fault=K99/nothing", "K03/rank0"});
  ExpectBad("moe model=k2-mini layer=1 engine=other", {"engine=other", "native", "library"});
  ExpectError("moe model=k2-mini layer=1 engine=./no.so", ErrorKind::kEnvironment, {"./no.so"});
  ExpectBad("moe model=k2-mini layer=1 engine=/dev/null fault=K03/rank0",
            {"faults wrap the native engine only"});
  ExpectBad("moe model=k2-mini layer=1 engine=/dev/null", {"engine=/dev/null"});
}

TEST(Resolve, LegalityIsThePlanners) {
  const auto legal = [](const char* text) {
    const auto is = IsLegal(*ParseProblem(text), &Models());
    EXPECT_TRUE(is.ok()) << text;
    return is.ok() && *is;
  };
  EXPECT_TRUE(legal("load model=llama-mini tp=3"));
  EXPECT_FALSE(legal("load model=llama-mini tp=2"));
  EXPECT_FALSE(legal("load model=qwen2-mini tp=2"));
  EXPECT_FALSE(legal("load model=dsv3-mini tp=4"));
  EXPECT_TRUE(legal("load model=dsv3-mini tp=2"));
  EXPECT_FALSE(legal("collective model=k2-mini layer=1 tp=4 attn_tp=3"));
  EXPECT_TRUE(legal("collective model=k2-mini layer=1 tp=4 attn_tp=2"));
}

}  // namespace
}  // namespace assay::run
