#include "reference/golden.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "harness/checkpoint/safetensors.h"
#include "reference/golden_bound.h"
#include "reference/golden_names.h"
#include "reference/test_support.h"

namespace assay::reference {
namespace {

// How closely the makers of the goldens say that a float64 reference agrees with their logits, and
// with taps that are stored in float32. Our derived bounds must lie below.
constexpr double kStatedOfFloat64 = 1e-12;
constexpr double kStatedOfFloat32Taps = 1e-7;

namespace fs = std::filesystem;
using testing_support::Opened;
using testing_support::OpenModel;
using testing_support::Overlay;

const std::set<std::string> kKnown = {"dsv3-mini",  "k2-mini",    "k2-mini-int4-g32",
                                      "llama-mini", "qwen2-mini", "qwen3-mini"};

TEST(Golden, EveryKnownModelPassesAndOthersAreNotLeftOut) {
  const auto rows = VerifyGoldens("goldens", "no/such/folder");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  int passed = 0, with_taps = 0;
  std::map<std::string, int> prompts;
  for (const GoldenRow& row : *rows) {
    ++prompts[row.name];
    if (!kKnown.contains(row.name)) {
      EXPECT_EQ(row.verdict, GoldenVerdict::kNotExecuted) << row.name;
      EXPECT_FALSE(row.reason.empty());
      EXPECT_FALSE(row.logits_max_rel.has_value());
      continue;
    }
    EXPECT_EQ(row.verdict, GoldenVerdict::kPass)
        << row.name << " " << row.prompt << ": " << row.reason;
    ++passed;
    with_taps += row.taps_max_rel.has_value() ? 1 : 0;
    EXPECT_LT(row.logits_bound, kStatedOfFloat64) << row.name;
    EXPECT_LE(row.taps_bound, kStatedOfFloat32Taps) << row.name;
    EXPECT_LE(*row.logits_max_rel, row.logits_bound);
    EXPECT_LE(*row.decode_max_rel, row.logits_bound);
    EXPECT_NE(row.derivation.find("2^-53"), std::string::npos);
  }
  EXPECT_EQ(passed, 18);
  EXPECT_EQ(with_taps, 16);
  for (const auto& entry : fs::directory_iterator("goldens/goldens")) {
    EXPECT_EQ(prompts[entry.path().filename().string()], 3) << entry.path();
  }
}

// What is planted, and the verdict with it.
GoldenRow Planted(const std::string& name, const ModelConfig& config, const TensorSource& source,
                  const std::string& prompt = "t33") {
  const std::string folder = "goldens/goldens/" + name;
  const auto info = ReadGoldenInfo(folder);
  const auto oracle = Oracle::Create(config, source);
  if (!info.ok() || !oracle.ok()) {
    ADD_FAILURE() << (info.ok() ? oracle.error().message : info.error().message);
    return {};
  }
  return VerifyPrompt(**oracle, config, *info, {folder, name, prompt, nullptr});
}

// The weakest of the listed mistakes must stand far above the bound.
constexpr double kAboveBound = 1e3;

void ExpectSeen(const GoldenRow& row, const std::string& what) {
  EXPECT_EQ(row.verdict, GoldenVerdict::kFail) << what;
  EXPECT_FALSE(row.reason.empty()) << what;
  ASSERT_TRUE(row.logits_max_rel.has_value()) << what << ": " << row.reason;
  EXPECT_GT(*row.logits_max_rel, kAboveBound * row.logits_bound) << what;
}

TEST(GoldenControls, PlantedMistakesInLatentAttentionModelsAreSeen) {
  const Opened k2 = OpenModel("k2-mini");
  const Opened ds = OpenModel("dsv3-mini");
  const auto seen = [](const Opened& model, const std::string& name, auto change,
                       const std::string& what) {
    ModelConfig config = model.config();
    change(&config);
    ExpectSeen(Planted(name, config, *model.checkpoint), what);
  };
  seen(
      k2, "k2-mini", [](ModelConfig* c) { c->rms_norm_eps = 1e-5; }, "eps 1e-5 for 1e-6");
  seen(
      k2, "k2-mini", [](ModelConfig* c) { c->rope_interleave = false; }, "RoPE half");
  seen(
      k2, "k2-mini", [](ModelConfig* c) { c->rope.mscale_all_dim.reset(); }, "scale without m²");
  seen(
      k2, "k2-mini", [](ModelConfig* c) { c->rope.factor = 2; }, "YaRN factor");
  seen(
      k2, "k2-mini", [](ModelConfig* c) { c->rope.truncate = false; }, "YaRN truncate");
  seen(
      k2, "k2-mini", [](ModelConfig* c) { c->routed_scaling = 1; }, "routed scaling");
  seen(
      k2, "k2-mini", [](ModelConfig* c) { c->norm_topk = false; }, "no renormalisation");
  seen(
      ds, "dsv3-mini", [](ModelConfig* c) { c->topk_group = 3; }, "all groups allowed");
  seen(
      ds, "dsv3-mini",
      [](ModelConfig* c) {
        c->top_k = 2;
        c->routed_scaling = 2.5;
      },
      "top 2");
  Overlay no_bias(*k2.checkpoint);
  no_bias.Zero("model.layers.1.mlp.gate.e_score_correction_bias");
  no_bias.Zero("model.layers.2.mlp.gate.e_score_correction_bias");
  ExpectSeen(Planted("k2-mini", k2.config(), no_bias), "correction bias ignored");
}

TEST(GoldenControls, PlantedMistakesInDenseModelsAreSeen) {
  const Opened llama = OpenModel("llama-mini");
  ModelConfig config = llama.config();
  config.rms_norm_eps = 1e-6;
  ExpectSeen(Planted("llama-mini", config, *llama.checkpoint), "eps");
  config = llama.config();
  config.rope.theta = 1e4;
  ExpectSeen(Planted("llama-mini", config, *llama.checkpoint), "theta");
  const Opened qwen2 = OpenModel("qwen2-mini");
  Overlay no_bias(*qwen2.checkpoint);
  for (const char* module : {"q_proj", "k_proj", "v_proj"}) {
    no_bias.Zero(std::string("model.layers.1.self_attn.") + module + ".bias");
  }
  ExpectSeen(Planted("qwen2-mini", qwen2.config(), no_bias), "QKV bias ignored");
  const Opened int4 = OpenModel("k2-mini-int4-g32", "quantised");
  Overlay scales(*int4.checkpoint);
  const std::string down = "model.layers.2.mlp.experts.0.";
  const TensorView* other = int4.checkpoint->Find(down + "up_proj.weight_scale");
  scales.changed.Put(down + "gate_proj.weight_scale", other->dtype, other->shape,
                     {other->bytes.begin(), other->bytes.end()});
  ExpectSeen(Planted("k2-mini-int4-g32", int4.config(), scales), "scales of up in gate");
}

// Every op's result moved by one part in 2^bits, up or down.
GoldenRow Moved(int bits) {
  const Opened model = OpenModel("k2-mini");
  const std::string folder = "goldens/goldens/k2-mini";
  const auto info = ReadGoldenInfo(folder);
  GoldenPrompt prompt{folder, "k2-mini", "t5", nullptr};
  prompt.observe = [bits](const Node& node, int step, Evaluation* e) {
    if (node.op == Op::kRouterIds || node.op == Op::kEmbed || node.op == Op::kReduce) return;
    for (size_t i = 0; i < e->value.data.size(); ++i) {
      const uint64_t sign = testing_support::Mix(std::hash<std::string>()(node.tap) + i +
                                                 static_cast<uint64_t>(step)) &
                            1;
      e->value.data[i] *= 1 + std::ldexp(sign != 0 ? 1.0 : -1.0, -bits);
    }
  };
  return VerifyPrompt(*model.oracle, model.config(), *info, prompt);
}

TEST(GoldenControls, DoubleRoundingPassesAndSingleRoundingDoesNot) {
  EXPECT_EQ(Moved(53).verdict, GoldenVerdict::kPass) << Moved(53).reason;
  EXPECT_EQ(Moved(24).verdict, GoldenVerdict::kFail);
  EXPECT_EQ(Moved(36).verdict, GoldenVerdict::kFail);
}

TEST(GoldenBound, IsTheStoredTypesRoundingAndTheDeviation) {
  EXPECT_EQ(GoldenBound(DType::kF64, 0, 5), 0);
  EXPECT_EQ(GoldenBound(DType::kF32, 0, 5), 0x1p-24);
  EXPECT_EQ(GoldenBound(DType::kF64, 0x1p-40, 4), 0x1p-41);
  EXPECT_EQ(GoldenBound(DType::kI32, 1, 1), 0);
}

TEST(GoldenNames, FollowTheTableAndNothingElse) {
  EXPECT_EQ(TapOfGoldenName("layers.0.input", 3), "embed");
  EXPECT_EQ(TapOfGoldenName("layers.2.input", 3), "L1.residual_mlp");
  EXPECT_EQ(TapOfGoldenName("layers.2.output", 3), "L2.residual_mlp");
  EXPECT_EQ(TapOfGoldenName("layers.1.self_attn.o_proj.input", 3), "L1.attn.ctx");
  for (const char* bad : {"layers.3.input", "layers.-1.input", "layers.1", "layers.1.", "layers.x",
                          "layers.1.attn", "logits", "", "layers.99999999999999999999.input"}) {
    EXPECT_FALSE(TapOfGoldenName(bad, 3).has_value()) << bad;
  }
}

// A copy of one golden that a test may damage; the models are linked to.
class Damaged : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("golden" + std::to_string(getpid()));
    fs::remove_all(root_);
    fs::create_directories(folder());
    fs::copy("goldens/goldens/dsv3-mini", folder(), fs::copy_options::recursive);
    for (const auto& entry : fs::directory_iterator(folder())) {
      fs::permissions(entry.path(), fs::perms::owner_write, fs::perm_options::add);
    }
    fs::create_directory_symlink(fs::absolute("goldens/checkpoints"), root_ / "checkpoints");
  }
  void TearDown() override { fs::remove_all(root_); }
  fs::path folder() const { return root_ / "goldens" / "dsv3-mini"; }

  void Write(const std::string& file, const std::string& text) const {
    std::ofstream(folder() / file, std::ios::binary) << text;
  }
  void Truncate(const std::string& file, std::uintmax_t lost) const {
    fs::resize_file(folder() / file, fs::file_size(folder() / file) - lost);
  }
  // Rewrites a safetensors file, each tensor through `change`; false drops it.
  template <class F>
  void Rewrite(const std::string& file, F change) const {
    const auto opened = SafetensorsFile::Open((folder() / file).string());
    ASSERT_TRUE(opened.ok());
    std::vector<std::vector<std::byte>> bytes;
    std::vector<TensorView> views;
    for (const std::string& name : (*opened)->Names()) {
      TensorView view = *(*opened)->Find(name);
      bytes.emplace_back(view.bytes.begin(), view.bytes.end());
      if (!change(&view, &bytes.back())) continue;
      view.bytes = bytes.back();
      views.push_back(view);
    }
    const std::string temporary = (folder() / (file + ".new")).string();
    const auto written = WriteSafetensors(temporary, views, {});
    ASSERT_TRUE(written.ok()) << written.error().message;
    fs::rename(temporary, folder() / file);
  }
  // The row of t5, which must fail with this in its reason.
  void ExpectFail(const std::string& reason) const {
    for (const GoldenRow& row : VerifyGolden(root_.string(), "dsv3-mini")) {
      if (row.prompt != "t5" && !row.prompt.empty()) continue;
      EXPECT_EQ(row.verdict, GoldenVerdict::kFail);
      EXPECT_NE(row.reason.find(reason), std::string::npos) << row.reason;
      return;
    }
    ADD_FAILURE() << "no row";
  }

  fs::path root_;
};

TEST_F(Damaged, AnIntactCopyPasses) {
  const auto rows = VerifyGoldens(root_.string());
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(rows->size(), 3u);
  for (const GoldenRow& row : *rows) EXPECT_EQ(row.verdict, GoldenVerdict::kPass) << row.reason;
}

TEST_F(Damaged, MissingAndTruncatedFilesAreNamed) {
  Truncate("taps-t5.safetensors", 8);
  ExpectFail("taps-t5.safetensors");
  Truncate("logits.safetensors", 1000);
  ExpectFail("logits.safetensors");
  fs::remove(folder() / "logits.safetensors");
  ExpectFail("logits.safetensors");
  fs::remove(folder() / "golden.json");
  ExpectFail("golden.json");
}

TEST_F(Damaged, GoldenJsonIsNotTrusted) {
  for (const char* text :
       {"", "[]", "{\"model\": 3}", "{\"model\": \"../x\", \"prompts\": {\"t5\": [1]}}",
        "{\"model\": \"dsv3-mini\"}", "{\"model\": \"dsv3-mini\", \"prompts\": {}}",
        "{\"model\": \"dsv3-mini\", \"prompts\": {\"t5\": [-1]}}",
        "{\"model\": \"dsv3-mini\", \"prompts\": {\"t5\": [1.5]}}",
        "{\"model\": \"dsv3-mini\", \"prompts\": {\"t5\": [99999999999]}}",
        "{\"model\": \"dsv3-mini\", \"prompts\": {\"../t5\": [1]}}",
        "{\"model\": \"dsv3-mini\", \"prompts\": {\"t5\": []}}"}) {
    Write("golden.json", text);
    ExpectFail("golden.json");
  }
  // Other tokens than the file's, and tokens beyond the vocabulary.
  Write("golden.json", "{\"model\": \"dsv3-mini\", \"prompts\": {\"t5\": [1, 2, 3, 4, 5]}}");
  ExpectFail("tokens.t5");
  Write("golden.json", "{\"model\": \"no-such\", \"prompts\": {\"t5\": [1]}}");
  EXPECT_EQ(VerifyGolden(root_.string(), "dsv3-mini")[0].verdict, GoldenVerdict::kNotExecuted);
}

TEST_F(Damaged, UnknownAndMissingTapsAreFailures) {
  Rewrite("taps-t5.safetensors", [](TensorView* view, std::vector<std::byte>*) {
    if (view->name == "layers.1.routed_out") view->name = "layers.1.routed_sum";
    return true;
  });
  ExpectFail("\"layers.1.routed_sum\" is not known");
  Rewrite("taps-t5.safetensors", [](TensorView* view, std::vector<std::byte>*) {
    return view->name != "layers.1.routed_sum" && view->name != "layers.1.mlp_out";
  });
  ExpectFail("\"layers.1.mlp_out\" is missing");
}

TEST_F(Damaged, ATapOfTheOtherFamilyIsNotKnown) {
  Rewrite("taps-t5.safetensors", [](TensorView* view, std::vector<std::byte>*) {
    if (view->name == "layers.1.self_attn.q_proj") view->name = "layers.1.self_attn.k_proj";
    return true;
  });
  ExpectFail("\"layers.1.self_attn.k_proj\" is not known");
}

TEST_F(Damaged, AChangedIdIsAFailure) {
  Rewrite("taps-t5.safetensors", [](TensorView* view, std::vector<std::byte>* bytes) {
    if (view->name != "layers.2.topk_ids") return true;
    int32_t id;
    std::memcpy(&id, bytes->data(), 4);
    id = (id + 1) % 9;
    std::memcpy(bytes->data(), &id, 4);
    return true;
  });
  ExpectFail("L2.router.ids");
}

TEST_F(Damaged, WrongShapesAndNonFiniteValuesAreFailures) {
  Rewrite("logits.safetensors", [](TensorView* view, std::vector<std::byte>*) {
    if (view->name == "logits.t5") view->shape = {261, 5};
    return true;
  });
  ExpectFail("261 rows of 5");
  Rewrite("logits.safetensors", [](TensorView* view, std::vector<std::byte>* bytes) {
    const double nan = NAN;
    if (view->name == "logits.t5") std::memcpy(bytes->data(), &nan, 8);
    return true;
  });
  ExpectFail("not finite");
  Rewrite("logits.safetensors",
          [](TensorView* view, std::vector<std::byte>*) { return view->name != "logits.t5"; });
  ExpectFail("logits.t5 is missing");
}

TEST_F(Damaged, TheSmallestChangeOfALogitIsSeen) {
  // 1e-11 of the largest logit: far below any mistake, far above two double evaluations.
  Rewrite("logits.safetensors", [](TensorView* view, std::vector<std::byte>* bytes) {
    if (view->name != "logits.t5") return true;
    double value;
    std::memcpy(&value, bytes->data() + 800, 8);
    value += 1e-10;
    std::memcpy(bytes->data() + 800, &value, 8);
    return true;
  });
  ExpectFail("logits, prefill");
}

TEST(Golden, AFolderWithoutGoldensIsAnError) {
  EXPECT_FALSE(VerifyGoldens("goldens/checkpoints").ok());
  EXPECT_FALSE(VerifyGoldens("no/such/folder").ok());
}

}  // namespace
}  // namespace assay::reference
