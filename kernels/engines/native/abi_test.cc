// What the engine says of itself, and what it will not do.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "harness/abi/contract.h"
#include "harness/abi/describe.h"
#include "kernels/engines/native/native.h"
#include "kernels/engines/native/test_driver.h"
#include "kernels/faults/interceptor.h"
#include "kernels/registry.h"

namespace assay::kernels::native {
namespace {

constexpr const char* kInt4 = "goldens/quantised/k2-mini-int4-g32";

TEST(Describe, IsReadBackWhole) {
  const auto facts = abi::ParseDescribe(NativeEngine()->describe());
  ASSERT_TRUE(facts.ok()) << facts.error().message;
  EXPECT_TRUE(facts->unknown_keys.empty());
  for (const LinearKernel& row : LinearKernels()) {
    const abi::DescribedKernel* kernel = facts->FindKernel(row.name);
    ASSERT_NE(kernel, nullptr) << row.name;
    EXPECT_EQ(kernel->op, "linear");
    EXPECT_EQ(kernel->method, row.method);
    EXPECT_EQ(kernel->layout, row.layout);
    EXPECT_EQ(kernel->lanes, row.lanes);
    EXPECT_EQ(kernel->extra, row.extra);
    EXPECT_EQ(kernel->arithmetic_class, row.arithmetic_class);
    EXPECT_TRUE(abi::MayHave(facts->methods, row.method));
    EXPECT_TRUE(abi::MayHave(facts->layouts, row.layout));
  }
  for (const char* name : {"rms_norm_scalar", "scores_scalar", "axpy_scalar"}) {
    EXPECT_NE(facts->FindKernel(name), nullptr) << name;
  }
  EXPECT_FALSE(abi::MayHave(facts->tiers, "amx_int8"));
  for (const char* scope : {"op", "attn", "route", "mlp", "moe", "experts", "layer", "model"}) {
    EXPECT_TRUE(abi::MayHave(facts->scopes, scope));
  }
}

TEST(Describe, TheContractSaysWhereItRounds) {
  const auto facts = abi::ParseDescribe(NativeEngine()->describe());
  ASSERT_TRUE(facts.ok() && facts->contract.has_value());
  const Contract& contract = *facts->contract;
  EXPECT_EQ(contract.RoundingOf("moe.down", "partial"), DType::kBF16);
  EXPECT_EQ(contract.RoundingOf("mlp.down", "partial"), DType::kF32);
  EXPECT_EQ(contract.RoundingOf("attn.q", "linear"), DType::kBF16);
  EXPECT_EQ(contract.RoundingOf("moe.out", "reduce"), DType::kBF16);
  EXPECT_EQ(contract.RoundingOf("router.scores", "router"), DType::kF32);
  EXPECT_EQ(contract.RoundingOf("logits", "logits"), DType::kF32);
  EXPECT_EQ(contract.dequant, DType::kF64);
  EXPECT_EQ(contract.reduce_order, "sequential");
  // The tiers' worst, since the contract speaks for all.
  for (Tier tier : {Tier::kScalar, Tier::kAvx2, Tier::kAvx512}) {
    for (How how : {How::kHardware, How::kPortable}) {
      const ElementwiseKernels* table = Elementwise(tier, how);
      if (table == nullptr) continue;
      EXPECT_GE(contract.exp_ulp, table->exp_ulp);
      EXPECT_GE(contract.sigmoid_ulp, table->sigmoid_ulp);
    }
  }
  EXPECT_EQ(contract.QuantiserOf("a8g32"), (ActQuantiser{32, CodeRule::kDivide}));
  EXPECT_EQ(contract.QuantiserOf("a8row"), (ActQuantiser{0, CodeRule::kDivide}));
}

TEST(Describe, SaysHowItSumsAndThatItReloads) {
  const auto facts = abi::ParseDescribe(NativeEngine()->describe());
  ASSERT_TRUE(facts.ok());
  EXPECT_TRUE(facts->reloads);
  EXPECT_EQ(facts->reduces->size(), 6u);
  for (const char* reduce : {"sequential:fp32", "ring:bf16", "tree:bf16"}) {
    EXPECT_TRUE(abi::MayHave(facts->reduces, reduce)) << reduce;
  }
  EXPECT_FALSE(abi::MayHave(facts->reduces, "ring:int8"));
  // What can be emulated is what has kernels for it, and each such tier is listed.
  ASSERT_TRUE(facts->emulates.has_value());
  EXPECT_EQ(facts->emulates->size(),
            Elementwise(Tier::kAvx512, How::kPortable) != nullptr ? 1u : 0u);
  for (const std::string& tier : *facts->emulates) EXPECT_TRUE(abi::MayHave(facts->tiers, tier));
}

class Opening : public testing::Test {
 protected:
  Opening() : checkpoint_(OpenCheckpoint(kInt4)) {}
  int Open(const Wishes& wishes) {
    driver_ = std::make_unique<Driver>(NativeEngine());
    return driver_->Open(checkpoint_->config_json(), wishes);
  }
  // Status and whether the message says `word`.
  void Expect(const Wishes& wishes, int status, const std::string& word) {
    EXPECT_EQ(Open(wishes), status);
    const std::string message = driver_->error().message;
    EXPECT_NE(message.find(word), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Driver> driver_;
};

TEST_F(Opening, WhatIsNotThereIsUnsupported) {
  Wishes w;
  w.tier = "amx_int8";
  Expect(w, ASSAY_UNSUPPORTED, "amx_int8");
  w = {};
  w.kernel = "linear_int3_magic";
  Expect(w, ASSAY_UNSUPPORTED, "linear_int3_magic");
  w = {};
  w.method = "bf16";
  w.layout = "marlin";
  Expect(w, ASSAY_UNSUPPORTED, "marlin");
  w = {};
  w.method = "ct-int4-g32";
  w.kernel = "linear_ct_int4_g32_row_scalar";
  w.layout = "rows16";
  Expect(w, ASSAY_UNSUPPORTED, "rows16");
  w = {};
  w.act = "a8g32";
  Expect(w, ASSAY_UNSUPPORTED, "a8g32");
  w = {};
  w.method = "awq-int12-g32";
  Expect(w, ASSAY_UNSUPPORTED, "awq-int12-g32");
  w = {};
  w.reduce = "ring:int8";
  Expect(w, ASSAY_UNSUPPORTED, "ring:int8");
  w = {};
  w.options = "limit=7 gamma=2";
  Expect(w, ASSAY_UNSUPPORTED, "gamma=2");
  w.options = "emulate=perhaps";
  Expect(w, ASSAY_UNSUPPORTED, "emulate=perhaps");
  w.options = "emulate=always";  // of tier scalar: there is nothing to emulate
  Expect(w, ASSAY_UNSUPPORTED, "scalar cannot be emulated");
  w = {};
  w.routing = "dice";
  Expect(w, ASSAY_UNSUPPORTED, "dice");
}

TEST_F(Opening, WhatIsIllegalIsRefused) {
  Wishes w;
  w.tp = 0;
  Expect(w, ASSAY_REFUSED, "tp is 0");
  w.tp = 4;
  w.attn_tp = 3;
  Expect(w, ASSAY_REFUSED, "attn_tp is 3");
  w = {};
  w.threads = 0;
  Expect(w, ASSAY_REFUSED, "threads is 0");
  for (const char* limit : {"", "0", "-1", "nan", "7x", "seven", "1e-60", "1e39"}) {
    w = {};
    w.options = std::string("limit=") + limit;
    Expect(w, ASSAY_REFUSED, w.options.substr(6));
  }
  driver_ = std::make_unique<Driver>(NativeEngine());
  EXPECT_EQ(driver_->Open("{", {}), ASSAY_FAILED);
  EXPECT_EQ(driver_->Open(R"({"architectures": ["Zebra"]})", {}), driver_->Open("{}", {}));
}

TEST_F(Opening, WhatIsThereIsAccepted) {
  Wishes w;
  for (const char* reduce : {"sequential:fp32", "ring", "ring:bf16", "tree:fp32", "tree:bf16"}) {
    w.reduce = reduce;
    EXPECT_EQ(Open(w), ASSAY_OK) << driver_->error().message;
  }
  w.options = " limit=7.5  emulate=auto limit=inf ";
  w.act = "a16";
  w.method = "ct-int4-g32";
  w.layout = "row";
  EXPECT_EQ(Open(w), ASSAY_OK) << driver_->error().message;
  w.kernel = "linear_bf16_row_scalar";
  EXPECT_EQ(Open(w), ASSAY_OK) << driver_->error().message;
  // What no kernel runs can be loaded, in any layout that there is for it.
  w = {};
  w.method = "gptq-int4-g64";
  w.layout = "marlin";
  EXPECT_EQ(Open(w), ASSAY_OK) << driver_->error().message;
  w = {};
  w.tier = "";  // the best that the host has
  EXPECT_EQ(Open(w), ASSAY_OK) << driver_->error().message;
}

// The host's tiers are cut; nothing slides down to a lower one.
TEST_F(Opening, ATierThatTheHostLacksIsNotReplaced) {
  ASSERT_EQ(setenv("ASSAY_FAKE_TIERS", "scalar", 1), 0);
  Wishes w;
  w.tier = "avx2";
  Expect(w, ASSAY_UNSUPPORTED, "avx2");
  w.tier = "scalar";
  EXPECT_EQ(Open(w), ASSAY_OK);
  unsetenv("ASSAY_FAKE_TIERS");
  w.tier = "avx2";
  EXPECT_EQ(Open(w), HostHas(Tier::kAvx2) ? ASSAY_OK : ASSAY_UNSUPPORTED);
}

// A demanded layout and kernel are what runs.
TEST_F(Opening, WishesAreKept) {
  Wishes w;
  w.method = "ct-int4-g32";
  w.kernel = "linear_ct_int4_g32_row_scalar";
  ASSERT_EQ(Open(w), ASSAY_OK);
  ASSERT_EQ(driver_->LoadAll(*checkpoint_), ASSAY_OK);
  driver_->Logits({1, 2}, 0, 261);
  int seen = 0;
  for (const auto& [key, ran] : driver_->ran) {
    if (key.first.find(".moe.e") == std::string::npos || ran.layout.empty()) continue;
    EXPECT_EQ(ran.kernel, w.kernel);
    EXPECT_EQ(ran.layout, "row");
    ++seen;
  }
  EXPECT_GT(seen, 0);
}

// A weight in another layout than the kernel's never reaches it.
struct OtherTag final : Interceptor {
  void BeforeLinear(LinearCall& call) const override {
    if (call.taps.front().ends_with("mlp.down")) call.weight.layout = "i4-split16";
  }
};

int OpenWithOtherTag(const assay_open* request, const assay_host* host, assay_session** session,
                     assay_error* error) {
  static const OtherTag kHooks;
  return OpenNative(request, host, &kHooks, session, error);
}

TEST_F(Opening, AnotherLayoutIsRefusedBeforeItRuns) {
  assay_engine engine = *NativeEngine();
  engine.open = OpenWithOtherTag;
  Driver driver(&engine);
  ASSERT_EQ(driver.Open(checkpoint_->config_json(), {}), ASSAY_OK);
  ASSERT_EQ(driver.LoadAll(*checkpoint_), ASSAY_OK);
  std::vector<float> out;
  EXPECT_EQ(driver.Run("model", -1, {1}, 0, {}, &out, {1, 261}), ASSAY_REFUSED);
  const std::string message = driver.error().message;
  EXPECT_NE(message.find("takes layout row, the weight lies in i4-split16"), std::string::npos)
      << message;
  EXPECT_EQ(driver.ran.count({"L0.mlp.down", 0}), 0u);
  EXPECT_EQ(driver.ran.count({"L0.mlp.gate", 0}), 1u);
}

// A caller that was compiled against a shorter header, or passes nothing.
TEST(Abi, SizesAreObeyed) {
  const assay_engine& engine = *NativeEngine();
  assay_session* session = nullptr;
  assay_error error{};
  error.size = offsetof(assay_error, tensor);
  std::memset(error.tensor, 'x', sizeof error.tensor);
  EXPECT_EQ(engine.open(nullptr, nullptr, &session, &error), ASSAY_FAILED);
  EXPECT_STREQ(error.message, "the request is NULL");
  EXPECT_EQ(error.tensor[0], 'x');
  EXPECT_EQ(error.size, offsetof(assay_error, tensor));
  EXPECT_EQ(engine.open(nullptr, nullptr, &session, nullptr), ASSAY_FAILED);
  EXPECT_EQ(engine.reset(nullptr, nullptr), ASSAY_FAILED);
  engine.close(nullptr);

  const auto checkpoint = OpenCheckpoint(kInt4);
  assay_open open{};
  open.size = offsetof(assay_open, kernel);  // what follows is not there
  open.config_json = checkpoint->config_json().c_str();
  open.tp = open.attn_tp = open.pools = open.threads = 1;
  open.tier = "scalar";
  open.kernel = reinterpret_cast<const char*>(uintptr_t{1});
  ASSERT_EQ(engine.open(&open, nullptr, &session, &error), ASSAY_OK);
  EXPECT_EQ(engine.export_shard(session, 0, "embed.weight", nullptr, &error), ASSAY_FAILED);
  EXPECT_EQ(engine.load(session, nullptr, &error), ASSAY_FAILED);
  EXPECT_EQ(engine.run_op(session, nullptr, &error), ASSAY_FAILED);
  EXPECT_EQ(engine.run(session, nullptr, &error), ASSAY_FAILED);
  EXPECT_EQ(engine.reduce(session, nullptr, &error), ASSAY_FAILED);
  engine.close(session);
}

}  // namespace
}  // namespace assay::kernels::native
