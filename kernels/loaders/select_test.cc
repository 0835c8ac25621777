// The choice for a parameter, as a function of what it is and of the stated mode alone.
#include "kernels/loaders/select.h"

#include <gtest/gtest.h>

#include <array>

namespace assay::kernels {
namespace {

void NoRun(const WeightView&, const Activations&, int64_t, int64_t, int64_t, float*, int64_t) {}

LinearKernel Row(std::string_view name, std::string_view method, std::string_view layout,
                 std::string_view act, Tier tier = Tier::kScalar) {
  LinearKernel row{};
  row.name = name;
  row.method = method;
  row.tier = tier;
  row.layout = layout;
  row.act = act;
  row.row_tile = 1;
  row.run = NoRun;
  return row;
}

const std::array<LinearKernel, 6> kRows = {Row("dense", "bf16", "row", "a16"),
                                           Row("int4", "ct-int4-g32", "row", "a16"),
                                           Row("int4_a8", "ct-int4-g32", "row", "a8g32"),
                                           Row("int4_marlin", "ct-int4-g32", "marlin", "a16"),
                                           Row("q8", "gguf-q8_0", "row", "a16"),
                                           Row("wide", "bf16", "row", "a16", Tier::kAvx2)};

ParameterFacts Facts(const std::string& op, const std::string& method, bool joined = false) {
  ParameterFacts facts;
  facts.name = op;
  facts.method = method;
  facts.kind = KindOf(op, 64);
  facts.parts = {"weight", "scale"};
  facts.n = 128;
  facts.k = facts.whole_k = 64;
  facts.gate_up = joined;
  return facts;
}

Mode Stated(const std::string& method, const std::string& layout = "", const std::string& act = "",
            const std::string& kernel = "") {
  return {Tier::kScalar, How::kHardware, method, layout, act, kernel};
}

const std::string kExpert = "L1.moe.e5.gate", kDown = "L1.moe.e5.down", kQ = "L1.attn.q";

TEST(Select, AKernelIsTheMethodsAndBringsItsLayout) {
  Choice choice = Select(Facts(kExpert, "ct-int4-g32"), Stated("bf16"), kRows);
  EXPECT_EQ(choice.kernel, "int4");
  EXPECT_EQ(choice.layout, "row");
  EXPECT_EQ(choice.path, "ct-int:group");
  choice = Select(Facts(kQ, "bf16"), Stated("ct-int4-g32", "marlin", "a8g32"), kRows);
  EXPECT_EQ(choice.kernel, "dense");  // neither wish is about it
  choice = Select(Facts(kExpert, "ct-int4-g32"), Stated("bf16", "", "a8g32"), kRows);
  EXPECT_EQ(choice.kernel, "int4_a8");
  choice = Select(Facts(kExpert, "ct-int4-g32"), Stated("ct-int4-g32", "marlin"), kRows);
  EXPECT_EQ(choice.kernel, "int4_marlin");
  EXPECT_EQ(choice.layout, "marlin");
  Mode wide = Stated("bf16");
  wide.tier = Tier::kAvx2;
  EXPECT_EQ(Select(Facts(kQ, "bf16"), wide, kRows).kernel, "wide");
  EXPECT_EQ(Select(Facts(kExpert, "ct-int4-g32"), wide, kRows).kernel, "");  // no lower tier
}

TEST(Select, WithoutAKernelTheDemandedLayoutIsKept) {
  Choice choice =
      Select(Facts(kExpert, "awq-int4-g32-asym"), Stated("awq-int4-g32-asym", "marlin"), kRows);
  EXPECT_EQ(choice.kernel, "");
  EXPECT_EQ(choice.layout, "marlin");
  EXPECT_EQ(choice.path, "awq");
  choice = Select(Facts(kExpert, "gguf-q5_k"), Stated("gguf-q5_k", "marlin"), kRows);
  EXPECT_EQ(choice.layout, "row");
  // Zero points and an order of inputs are nothing that a kernel here takes.
  ParameterFacts ordered = Facts(kExpert, "ct-int4-g32");
  ordered.parts.push_back("zero");
  EXPECT_EQ(Select(ordered, Stated("bf16"), kRows).kernel, "");
}

TEST(Select, MxFp4ByItsProducer) {
  const auto path = [](const char* method) {
    return Select(Facts(kExpert, method), Stated(method), kRows).path;
  };
  EXPECT_EQ(path("ct-mxfp4"), "mxfp4:ct");
  EXPECT_EQ(path("gptoss-mxfp4"), "mxfp4:gptoss");
  EXPECT_EQ(path("deepseek-v4-mxfp4"), "mxfp4:deepseek-v4");
  EXPECT_EQ(path("quark-mxfp4"), "mxfp4:quark");
}

// A fused kernel of NVFP4 experts has the activation inside; attention's weights have none.
TEST(Select, NvFp4ExpertsByTheirActivation) {
  for (const char* method : {"modelopt-nvfp4", "ct-nvfp4"}) {
    ParameterFacts silu = Facts(kExpert, method), situ = silu;
    situ.hidden_act = "situ";
    const Choice a = Select(silu, Stated(method), kRows), b = Select(situ, Stated(method), kRows);
    EXPECT_NE(a.path, b.path);
    EXPECT_TRUE(a.path.ends_with("experts-silu")) << a.path;
    EXPECT_NE(b.Print().find("hidden_act situ"), std::string::npos) << b.Print();
    ParameterFacts q = Facts(kQ, method), q_situ = q;
    q_situ.hidden_act = "situ";
    EXPECT_EQ(Select(q, Stated(method), kRows), Select(q_situ, Stated(method), kRows));
  }
}

// K = g: one scale a row either way, and the config says which it is.
TEST(Select, ChannelOrGroupWhereBothAreOneScale) {
  const Choice group = Select(Facts(kExpert, "ct-int4-g64"), Stated("bf16"), kRows);
  const Choice channel = Select(Facts(kExpert, "ct-int4-channel"), Stated("bf16"), kRows);
  EXPECT_EQ(group.path, "ct-int:group");
  EXPECT_EQ(channel.path, "ct-int:channel");
  EXPECT_NE(group.why, channel.why);
  EXPECT_NE(group.why.find("not channel"), std::string::npos);
  EXPECT_EQ(Select(Facts(kExpert, "ct-int4-g32"), Stated("bf16"), kRows).why, "");
}

// Kimi-K3: kv_b in floating point (ModelSlim), or split and in blocks (GGUF).
TEST(Select, KvBInOnePieceOrTwo) {
  const Choice whole = Select(Facts("L3.attn.kv_b", "bf16"), Stated("modelslim-w4a8"), kRows);
  EXPECT_EQ(whole.path, "dense");
  EXPECT_EQ(whole.kernel, "dense");
  EXPECT_NE(whole.why.find("one piece"), std::string::npos);
  const Choice keys = Select(Facts("L3.attn.k_b", "gguf-q4_0"), Stated("gguf-q4_0"), kRows);
  const Choice values = Select(Facts("L3.attn.v_b", "gguf-q2_k"), Stated("gguf-q4_0"), kRows);
  EXPECT_EQ(keys.path, "gguf:split-kv_b");
  EXPECT_EQ(values.path, "gguf:split-kv_b");
  EXPECT_EQ(keys.kernel, "");
  EXPECT_EQ(
      Select(Facts("L3.moe.latent_up", "modelslim-w8a8"), Stated("modelslim-w4a8"), kRows).path,
      "modelslim:w8a8");
}

// A16W4 and A8W4 take the interleaved pre-shuffle, A4W4 the separated one.
TEST(Select, AitersPreShufflesByTheActivation) {
  const auto tags = [](const std::string& act) {
    const Mode mode = Stated("quark-mxfp4", "aiter", act);
    return Select(Facts("L1.moe.e5.gate_up", "quark-mxfp4", true), mode, kRows).layout + " " +
           Select(Facts(kDown, "quark-mxfp4"), mode, kRows).layout;
  };
  EXPECT_EQ(tags(""), "aiter-interleaved aiter-klane");
  EXPECT_EQ(tags("a16"), "aiter-interleaved aiter-klane");
  EXPECT_EQ(tags("amxfp8"), "aiter-interleaved aiter-klane");
  EXPECT_EQ(tags("amxfp4"), "aiter-separated aiter-separated");
  // The activation alone says which, whatever the session's method is.
  const Mode mode = Stated("bf16", "", "amxfp4");
  EXPECT_EQ(Select(Facts(kDown, "ct-mxfp4"), mode, kRows).layout, "aiter-separated");
  EXPECT_EQ(Select(Facts(kDown, "ct-int4-g32"), mode, kRows).layout, "row");
  // A tag that weaves gate and up is another one where there is no up.
  const Mode woven = Stated("quark-mxfp4", "aiter-interleaved");
  EXPECT_EQ(Select(Facts(kQ, "quark-mxfp4"), woven, kRows).layout, "aiter-klane");
}

TEST(Select, MlaIsAbsorbedWhereItIsWhole) {
  const Mode mode = Stated("f16", "mla-absorb");
  EXPECT_EQ(Select(Facts("L0.attn.kv_b", "f16"), mode, kRows).layout, "mla-absorb");
  EXPECT_EQ(Select(Facts("L0.attn.q", "f16"), mode, kRows).layout, "row");
}

// What is placed on the accelerator lies in Marlin's tiles, where the method has them.
TEST(Select, ByItsPlace) {
  ParameterFacts facts = Facts(kExpert, "ct-int4-g32");
  facts.placement = Placement::kGpu;
  const Choice choice = Select(facts, Stated("bf16"), kRows);
  EXPECT_EQ(choice.layout, "marlin");
  EXPECT_EQ(choice.kernel, "int4_marlin");
  EXPECT_EQ(choice.Print(),
            "L1.moe.e5.gate: ct-int4-g32 by ct-int:group, layout marlin, kernel int4_marlin "
            "(placed on gpu)");
  facts.method = "bf16";
  EXPECT_EQ(Select(facts, Stated("bf16"), kRows).layout, "row");
}

TEST(Select, VectorsAndTablesHaveNoKernel) {
  ParameterFacts norm = Facts("L0.input_norm", "bf16");
  norm.kind = KindOf(norm.name, 1);
  EXPECT_EQ(Select(norm, Stated("bf16"), kRows).path, "vector");
  EXPECT_EQ(Select(norm, Stated("bf16"), kRows).kernel, "");
  EXPECT_EQ(Select(Facts("embed", "gguf-q8_0"), Stated("bf16"), kRows).path, "table");
  EXPECT_EQ(Select(Facts("logits", "gguf-q8_0"), Stated("bf16"), kRows).kernel, "q8");
  EXPECT_EQ(Select(Facts("L0.attn.q_conv", "bf16"), Stated("bf16"), kRows).kernel, "");
}

TEST(Select, KindsAreReadOffTheName) {
  EXPECT_EQ(KindOf("L0.attn.kv_a", 64), ModuleKind::kAttention);
  EXPECT_EQ(KindOf("L0.attn.q_a_norm", 1), ModuleKind::kVector);
  EXPECT_EQ(KindOf("L0.router.logits", 64), ModuleKind::kRouter);
  EXPECT_EQ(KindOf("L0.router.scores", 1), ModuleKind::kVector);
  EXPECT_EQ(KindOf("L0.shared.down", 64), ModuleKind::kDense);
  EXPECT_EQ(KindOf("L0.moe.latent_norm", 1), ModuleKind::kVector);
  EXPECT_EQ(KindOf("L0.attn_hc.fn", 64), ModuleKind::kOther);
  EXPECT_EQ(NameOf(ModuleKind::kKvBHalf), "kv_b half");
}

TEST(CheckMode, WhatNobodyHas) {
  const auto message = [](const Mode& mode) {
    const Status status = CheckMode(mode, kRows);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_EQ(message(Stated("bf16")), "");
  EXPECT_EQ(message(Stated("gptq-int4-g64", "marlin")), "");
  EXPECT_EQ(message(Stated("quark-mxfp4", "aiter")), "");
  EXPECT_NE(message(Stated("bf16", "aiter")), "");
  EXPECT_NE(message(Stated("gguf-q4_k", "marlin")), "");
  EXPECT_NE(message(Stated("int4")), "");
  EXPECT_NE(message(Stated("bf16", "", "a8g32")), "");
  EXPECT_NE(message(Stated("gguf-q8_0", "", "a8row")), "");
  EXPECT_NE(message(Stated("bf16", "", "", "nothing")), "");
  EXPECT_NE(message(Stated("ct-int4-g32", "marlin", "", "int4")), "");
}

}  // namespace
}  // namespace assay::kernels
