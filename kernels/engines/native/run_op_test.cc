// Single ops and scopes give the bits that the whole model gives, from the same inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "kernels/engines/native/native.h"
#include "kernels/engines/native/test_driver.h"
#include "kernels/registry.h"

namespace assay::kernels::native {
namespace {

const std::vector<int32_t> kTokens = {256, 102, 111, 114, 32, 105};

const char* BestTier() { return HostHas(Tier::kAvx2) ? "avx2" : "scalar"; }

struct Case {
  const char* path;
  int tp, attn_tp;
  const char* tier;
};

// A model that ran whole, and its taps to replay.
class Replay : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    checkpoint_ = OpenCheckpoint(GetParam().path);
    Open(&model_, "model");
    model_.Logits(kTokens, 0, 261);
  }
  void Open(Driver* driver, const char* routing) {
    Wishes wishes;
    wishes.tp = GetParam().tp;
    wishes.attn_tp = GetParam().attn_tp;
    wishes.tier = std::string(GetParam().tier) == "best" ? BestTier() : GetParam().tier;
    wishes.routing = routing;
    ASSERT_EQ(driver->Open(checkpoint_->config_json(), wishes), ASSAY_OK);
    ASSERT_EQ(driver->LoadAll(*checkpoint_), ASSAY_OK);
  }
  const ModelConfig& config() const { return checkpoint_->config(); }

  In Given(const std::string& tap, int rank) {
    const auto found = model_.taps.find({tap, rank});
    In in;
    in.name = tap;
    in.rank = rank;
    if (found == model_.taps.end()) {
      ADD_FAILURE() << tap;
      return in;
    }
    in.shape = found->second.shape;
    for (double value : found->second.Values()) {
      if (found->second.dtype == ASSAY_I32) {
        in.ids.push_back(static_cast<int32_t>(value));
      } else {
        in.values.push_back(static_cast<float>(value));
      }
    }
    return in;
  }

  // Inputs of a tap's op on one rank, as the graph says.
  std::vector<In> InputsOf(const std::string& tap, int rank);
  std::vector<In> MoeInputs(const std::string& layer, const std::string& rest, int rank);
  std::vector<In> AttentionInputs(const std::string& layer, const std::string& op, int rank);

  std::unique_ptr<Checkpoint> checkpoint_;
  Driver model_{NativeEngine()};
};

std::vector<In> Replay::AttentionInputs(const std::string& layer, const std::string& op, int rank) {
  const auto in = [&](const std::string& name) { return Given(layer + name, rank); };
  const bool mla = config().is_mla(), lora = config().q_lora > 0, norm = config().qk_norm;
  if (op == "q_a" || op == "kv_a" || op == "k" || op == "v" || (op == "q" && !lora)) {
    return {in("input_norm")};
  }
  if (op == "q") return {in("attn.q_a_norm")};
  if (op == "q_a_norm") return {in("attn.q_a")};
  if (op == "kv_a_norm") return {in("attn.kv_a")};
  if (op == "kv_b") return {in("attn.kv_a_norm")};
  if (op == "q_norm") return {in("attn.q")};
  if (op == "k_norm") return {in("attn.k")};
  if (op == "q_rot") return {in(norm ? "attn.q_norm" : "attn.q")};
  if (op == "k_rot") return {in(mla ? "attn.kv_a" : norm ? "attn.k_norm" : "attn.k")};
  if (op == "scores" && mla) return {in("attn.q_rot"), in("attn.k_rot"), in("attn.kv_b")};
  if (op == "scores") return {in("attn.q_rot"), in("attn.k_rot")};
  if (op == "ctx") return {in("attn.scores"), in(mla ? "attn.kv_b" : "attn.v")};
  if (op == "partial") return {in("attn.ctx")};
  std::vector<In> parts;  // attn.out
  const int group = GetParam().attn_tp == 0 ? GetParam().tp : GetParam().attn_tp;
  for (int r = rank / group * group; r < (rank / group + 1) * group; ++r) {
    parts.push_back(Given(layer + "attn.partial", r));
  }
  return parts;
}

std::vector<In> Replay::MoeInputs(const std::string& layer, const std::string& rest, int rank) {
  const auto in = [&](const std::string& name) { return Given(layer + name, rank); };
  if (rest == "partial") {
    std::vector<In> inputs = {in("router.ids"), in("router.weights")};
    for (int64_t e = 0; e < config().experts; ++e) {
      const std::string down = layer + "moe.e" + std::to_string(e) + ".down";
      if (model_.taps.count({down, rank}) != 0) inputs.push_back(Given(down, rank));
    }
    return inputs;
  }
  if (rest == "out") {
    std::vector<In> parts;
    for (int r = 0; r < GetParam().tp; ++r) parts.push_back(Given(layer + "moe.partial", r));
    return parts;
  }
  const std::string expert = "moe." + rest.substr(0, rest.find('.'));
  if (rest.ends_with(".act")) return {in(expert + ".gate"), in(expert + ".up")};
  if (rest.ends_with(".down")) return {in(expert + ".act")};
  return {in("post_norm"), in("router.ids")};
}

std::vector<In> Replay::InputsOf(const std::string& tap, int rank) {
  if (tap == "embed") return {{"tokens", {static_cast<int64_t>(kTokens.size())}, {}, kTokens}};
  if (tap == "logits") return {Given("final_norm", rank)};
  const std::string last = "L" + std::to_string(config().layers - 1) + ".residual_mlp";
  if (tap == "final_norm") return {Given(last, rank)};
  const size_t dot = tap.find('.');
  const std::string layer = tap.substr(0, dot + 1), path = tap.substr(dot + 1);
  const int64_t n = std::stoll(tap.substr(1, dot - 1));
  const std::string before = n == 0 ? "embed" : "L" + std::to_string(n - 1) + ".residual_mlp";
  const auto in = [&](const std::string& name) { return Given(layer + name, rank); };
  if (path == "input_norm") return {Given(before, rank)};
  if (path == "post_norm") return {in("residual_attn")};
  if (path == "residual_attn") return {Given(before, rank), in("attn.out")};
  if (path == "residual_mlp") return {in("residual_attn"), in("mlp.out")};
  if (path.starts_with("attn.")) return AttentionInputs(layer, path.substr(5), rank);
  if (path == "router.logits") return {in("post_norm")};
  if (path == "router.scores") return {in("router.logits")};
  if (path == "router.ids") return {in("router.scores")};
  if (path == "router.weights") return {in("router.scores"), in("router.ids")};
  if (path.starts_with("moe.")) return MoeInputs(layer, path.substr(4), rank);
  const std::string block = path.substr(0, path.find('.'));  // "mlp" or "shared"
  if (path.ends_with(".act")) return {in(block + ".gate"), in(block + ".up")};
  if (path.ends_with(".down")) return {in(block + ".act")};
  if (path == "mlp.out" && config().is_moe(n)) return {in("moe.out"), in("shared.out")};
  if (!path.ends_with(".out")) return {in("post_norm")};
  std::vector<In> parts;
  for (int r = 0; r < GetParam().tp; ++r) parts.push_back(Given(layer + block + ".down", r));
  return parts;
}

TEST_P(Replay, EveryOpAloneGivesTheSameBits) {
  Driver ops(NativeEngine());
  Open(&ops, "model");
  std::set<std::string> replayed;
  for (const auto& [key, tap] : model_.taps) {
    const auto& [name, rank] = key;
    if (rank < 0) continue;  // gathered
    if (tap.dtype == ASSAY_I32) {
      std::vector<int32_t> ids;
      ASSERT_EQ(ops.Ids(rank, name, InputsOf(name, rank), tap.shape, &ids), ASSAY_OK)
          << name << ": " << ops.error().message;
      const std::vector<double> expected = tap.Values();
      EXPECT_TRUE(std::equal(ids.begin(), ids.end(), expected.begin(), expected.end())) << name;
    } else {
      std::vector<float> values;
      ASSERT_EQ(ops.Op(rank, name, InputsOf(name, rank), tap.shape, &values), ASSAY_OK)
          << name << ": " << ops.error().message;
      const std::vector<double> expected = tap.Values();
      EXPECT_TRUE(std::equal(values.begin(), values.end(), expected.begin(), expected.end()))
          << name << "@r" << rank;
    }
    EXPECT_EQ(ops.ran.count(key), 1u) << name;
    replayed.insert(name);
  }
  EXPECT_GT(replayed.size(), 50u);
}

TEST_P(Replay, EveryScopeGivesTheSameBits) {
  Driver scopes(NativeEngine()), forced(NativeEngine());
  Open(&scopes, "model");
  Open(&forced, "forced");
  const auto check = [&](Driver& driver, const std::string& scope, int64_t layer,
                         const std::vector<std::string>& inputs, const std::string& last) {
    const std::string at = "L" + std::to_string(layer) + ".";
    std::vector<In> given;
    for (const std::string& input : inputs) {
      for (int rank = 0; rank < GetParam().tp; ++rank) {
        given.push_back(Given(input.starts_with("@") ? input.substr(1) : at + input, rank));
      }
    }
    const Tap& expected = model_.taps[{at + last, 0}];
    driver.taps.clear();
    std::vector<float> out;
    ASSERT_EQ(driver.Run(scope, layer, {}, 0, given, &out, expected.shape), ASSAY_OK)
        << scope << ": " << driver.error().message;
    const std::vector<double> values = expected.Values();
    EXPECT_TRUE(std::equal(out.begin(), out.end(), values.begin(), values.end())) << scope;
    EXPECT_FALSE(driver.taps.empty() && scope != "route");
    for (const auto& [key, tap] : driver.taps) EXPECT_EQ(tap, model_.taps[key]) << key.first;
  };
  for (int64_t layer = 0; layer < config().layers; ++layer) {
    const std::string before =
        layer == 0 ? "@embed" : "@L" + std::to_string(layer - 1) + ".residual_mlp";
    check(scopes, "attn", layer, {"input_norm"}, "attn.out");
    ASSERT_EQ(scopes.Reset(), ASSAY_OK);
    check(scopes, "layer", layer, {before}, "residual_mlp");
    ASSERT_EQ(scopes.Reset(), ASSAY_OK);
    if (!config().is_moe(layer)) {
      check(scopes, "mlp", layer, {"post_norm"}, "mlp.out");
      continue;
    }
    check(scopes, "route", layer, {"post_norm"}, "router.weights");
    check(scopes, "moe", layer, {"post_norm"}, "mlp.out");
    check(scopes, "experts", layer, {"post_norm", "router.ids", "router.weights"}, "moe.out");
    check(forced, "moe", layer, {"post_norm", "router.ids", "router.weights"}, "mlp.out");
    // What was given is not given back as if it had been chosen.
    EXPECT_EQ(forced.taps.count({"L" + std::to_string(layer) + ".router.ids", 0}), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Replay,
                         testing::Values(Case{"goldens/quantised/k2-mini-int4-g32", 4, 2, "best"},
                                         Case{"goldens/quantised/k2-mini-int4-g32", 2, 0, "scalar"},
                                         Case{"goldens/checkpoints/dsv3-mini", 2, 0, "best"},
                                         Case{"goldens/checkpoints/llama-mini", 3, 0, "scalar"},
                                         Case{"goldens/checkpoints/qwen2-mini", 1, 0, "best"},
                                         Case{"goldens/checkpoints/qwen3-mini", 2, 0, "best"}),
                         [](const auto& info) { return "case" + std::to_string(info.index); });

// A model of one rank and one of several, from the same fp32 inputs.
class Ops : public testing::Test {
 protected:
  void Open(const char* path, Wishes wishes) {
    checkpoint_ = OpenCheckpoint(path);
    ASSERT_EQ(driver_.Open(checkpoint_->config_json(), wishes), ASSAY_OK);
    ASSERT_EQ(driver_.LoadAll(*checkpoint_), ASSAY_OK);
  }
  std::unique_ptr<Checkpoint> checkpoint_;
  Driver driver_{NativeEngine()};
};

// One-hot inputs give columns of the weight, and these are exact: a sum over ranks of row-parallel
// parts is then the same bits at every degree, and equal to the checkpoint's own bf16 column.
TEST(Exact, OneHotColumnsAreTheSameAtEveryDegree) {
  const auto checkpoint = OpenCheckpoint("goldens/checkpoints/k2-mini");
  const TensorView& down = *checkpoint->Find("model.layers.0.mlp.down_proj.weight");
  for (int tp : {1, 2, 4, 8}) {
    Driver driver(NativeEngine());
    Wishes wishes;
    wishes.tp = tp;
    wishes.tier = BestTier();
    ASSERT_EQ(driver.Open(checkpoint->config_json(), wishes), ASSAY_OK);
    ASSERT_EQ(driver.LoadAll(*checkpoint), ASSAY_OK);
    const int64_t local = 160 / tp;
    for (int64_t column = 0; column < 160; column += 13) {
      std::vector<In> parts;
      for (int rank = 0; rank < tp; ++rank) {
        In act{"L0.mlp.act", {1, local}, std::vector<float>(static_cast<size_t>(local)), {}, rank};
        if (column / local == rank) act.values[static_cast<size_t>(column % local)] = 1;
        In part{"L0.mlp.down", {1, 96}, {}, {}, rank};
        ASSERT_EQ(driver.Op(rank, "L0.mlp.down", {act}, {1, 96}, &part.values), ASSAY_OK);
        parts.push_back(part);
      }
      std::vector<float> sum;
      ASSERT_EQ(driver.Reduce("L0.mlp.out", parts, &sum), ASSAY_OK);
      Tap stored{ASSAY_BF16, {96, 160}, {down.bytes.begin(), down.bytes.end()}};
      const std::vector<double> weights = stored.Values();
      for (size_t n = 0; n < 96; ++n) {
        EXPECT_EQ(sum[n], weights[n * 160 + static_cast<size_t>(column)]);
      }
    }
  }
}

TEST_F(Ops, NonFiniteInputsDoNoHarm) {
  Wishes wishes;
  wishes.tp = 2;
  wishes.tier = BestTier();
  Open("goldens/quantised/k2-mini-int4-g32", wishes);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  In x{"L1.post_norm", {3, 96}, std::vector<float>(3 * 96, 1.0f), {}, -1};
  std::fill_n(x.values.begin(), 96, nan);
  x.values[96] = inf;
  std::vector<float> out;
  ASSERT_EQ(driver_.Run("moe", 1, {}, 0, {x}, &out, {3, 96}), ASSAY_OK) << driver_.error().message;
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_TRUE(std::isfinite(out[2 * 96]));
  // Ids are two different experts all the same.
  const std::vector<double> ids = driver_.taps[{"L1.router.ids", 1}].Values();
  EXPECT_EQ(ids[0], 0);
  EXPECT_EQ(ids[1], 1);
  In attn{"L0.input_norm", {3, 96}, x.values, {}, -1};
  EXPECT_EQ(driver_.Run("attn", 0, {}, 0, {attn}, &out, {3, 96}), ASSAY_OK);
}

// With a limit the activation gives what it gives for inputs that were clamped before: gate from
// above, up on both sides. It comes from the options, or else from the config.
TEST_F(Ops, TheLimitClampsGateAndUp) {
  const In gate{"L0.mlp.gate", {1, 160}, {}, {}, -1}, up{"L0.mlp.up", {1, 160}, {}, {}, -1};
  const auto act = [&](const char* key, const char* options, float clamp) {
    checkpoint_ = OpenCheckpoint("goldens/checkpoints/k2-mini");
    std::string config = checkpoint_->config_json();
    config.replace(config.find('{'), 1, std::string("{") + key);
    driver_.Close();
    Wishes wishes;
    wishes.options = options;
    EXPECT_EQ(driver_.Open(config, wishes), ASSAY_OK) << driver_.error().message;
    In g = gate, u = up;
    for (int i = 0; i < 160; ++i) {
      g.values.push_back(std::min(static_cast<float>(i - 80) / 8, clamp));
      u.values.push_back(std::clamp(static_cast<float>((37 * i) % 160 - 80) / 8, -clamp, clamp));
    }
    std::vector<float> out;
    EXPECT_EQ(driver_.Op(0, "L0.mlp.act", {g, u}, {1, 160}, &out), ASSAY_OK);
    return out;
  };
  const float inf = std::numeric_limits<float>::infinity();
  const auto clamped = act("", "", 2.5f);
  EXPECT_EQ(act("", "limit=2.5", inf), clamped);
  EXPECT_EQ(act("\"swiglu_limit\": 2.5,", "", inf), clamped);
  EXPECT_NE(act("", "", inf), clamped);
  // What the cell says is stronger than the config.
  EXPECT_EQ(act("\"swiglu_limit\": 2.5,", "limit=inf", inf), act("", "", inf));
  EXPECT_EQ(act("\"swiglu_limit\": 2.5,", "limit=4", inf), act("", "limit=4", inf));
}

TEST_F(Ops, WrongRequestsGetOneLine) {
  Open("goldens/quantised/k2-mini-int4-g32", {});
  std::vector<float> out;
  const In x{"x", {2, 96}, std::vector<float>(2 * 96, 1.0f), {}, -1};
  EXPECT_EQ(driver_.Op(0, "L1.moe.e0.tilt", {x}, {2, 256}, &out), ASSAY_UNSUPPORTED);
  EXPECT_EQ(driver_.Op(1, "L1.shared.gate", {x}, {2, 256}, &out), ASSAY_FAILED);
  EXPECT_EQ(driver_.Op(0, "L1.shared.gate", {x}, {2, 255}, &out), ASSAY_FAILED);
  EXPECT_EQ(driver_.Op(0, "L1.shared.down", {x}, {2, 96}, &out), ASSAY_FAILED);
  EXPECT_EQ(driver_.Op(0, "L9.shared.gate", {x}, {2, 256}, &out), ASSAY_FAILED);
  EXPECT_EQ(driver_.Op(0, "L1.shared.gate", {}, {2, 256}, &out), ASSAY_FAILED);
  const In ids{"L1.router.ids", {2, 2}, {}, {4, 1, 0, 3}, -1};  // not ascending
  EXPECT_EQ(driver_.Op(0, "L1.moe.e1.gate", {x, ids}, {1, 256}, &out), ASSAY_FAILED);
  const In far{"L1.router.ids", {2, 2}, {}, {1, 6, 0, 3}, -1};  // no expert 6
  EXPECT_EQ(driver_.Op(0, "L1.moe.e1.gate", {x, far}, {1, 256}, &out), ASSAY_FAILED);
  EXPECT_EQ(driver_.Run("galaxy", 1, {}, 0, {}, &out, {1}), ASSAY_UNSUPPORTED);
  EXPECT_EQ(driver_.Run("moe", 7, {}, 0, {}, &out, {1}), ASSAY_FAILED);
  EXPECT_EQ(driver_.Run("moe", 1, {}, 0, {}, &out, {1}), ASSAY_FAILED);
  EXPECT_EQ(driver_.Run("mlp", 1, {}, 0, {{"L1.post_norm", {2, 96}, x.values, {}, -1}}, &out, {1}),
            ASSAY_UNSUPPORTED);
  EXPECT_EQ(std::string_view(driver_.error().message).find('\n'), std::string_view::npos);
  EXPECT_NE(std::string_view(driver_.error().message), "");
}

}  // namespace
}  // namespace assay::kernels::native
