// Where faults enter a load: each place is reached, with what it says, and what a hook changes is
// what the engine then does. And the engine's own check that every part was written.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernels/engines/native/native.h"
#include "kernels/engines/native/test_shards.h"

namespace assay::kernels::native {
namespace {

constexpr const char* kInt4 = "goldens/quantised/k2-mini-int4-g32";
constexpr const char* kUp = "L1.moe.e2.up.weight";

const Interceptor* hooks = nullptr;

int OpenHooked(const assay_open* request, const assay_host* host, assay_session** session,
               assay_error* error) {
  return OpenNative(request, host, hooks, session, error);
}

class Hooked : public testing::Test {
 protected:
  Hooked() : shipped_(kInt4), engine_(*NativeEngine()), driver_(&engine_) {
    engine_.open = OpenHooked;
  }
  // Opens and loads rank 0 of two.
  int Load(const Interceptor& with, const std::string& layout = "") {
    hooks = &with;
    Wishes wishes;
    wishes.tp = 2;
    wishes.method = "ct-int4-g32";
    wishes.layout = layout;
    driver_.Close();
    EXPECT_EQ(driver_.Open(shipped_.source.config_json, wishes), ASSAY_OK) << message();
    return driver_.Load(0, *shipped_.checkpoint, shipped_.checkpoint->Names());
  }
  std::vector<std::byte> Bytes(const std::string& component) {
    assay_shard shard;
    EXPECT_EQ(driver_.Export(0, component, &shard), ASSAY_OK) << message();
    const auto* data = static_cast<const std::byte*>(shard.data);
    const auto row = static_cast<int64_t>(shard.bytes) / std::max<int64_t>(shard.total_rows, 1);
    return {data + row * shard.first_row, data + row * (shard.first_row + shard.rows)};
  }
  std::string message() const { return driver_.error().message; }

  Shipped shipped_;
  assay_engine engine_;
  Driver driver_;
};

struct Recorder final : Interceptor {
  mutable std::set<std::string> seen;
  mutable int64_t tensors = 0, written = 0;
  void OnConfig(ModelConfig& config) const override {
    seen.insert("config " + config.architecture);
  }
  void OnTensors(TensorList& list) const override {
    tensors = static_cast<int64_t>(list.tensors.size());
    seen.insert(list.again ? "tensors again" : "tensors");
  }
  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    seen.insert("plan " + plan.component.name + "@" + std::to_string(rank));
  }
  void OnParameter(ParameterSpec& spec) const override { seen.insert("part " + spec.component); }
  void OnSelect(Choice& choice) const override { seen.insert("select " + choice.parameter); }
  void BeforeSlice(SliceRequest& request) const override {
    seen.insert("slice " + request.plan.component.name);
  }
  void AfterPart(const WrittenPart& part) const override {
    seen.insert("after " + std::string(part.component));
    written += static_cast<int64_t>(part.bytes.size());
    EXPECT_EQ(part.bytes.size(), static_cast<size_t>(part.rows * part.columns *
                                                     SizeOf(part.plan.component.dtype).count()));
  }
  void AfterPack(const PackedView& packed) const override {
    seen.insert("packed " + std::string(packed.parameter) + " " + std::string(packed.part) + " " +
                std::string(packed.layout));
  }
};

TEST_F(Hooked, EveryPlaceIsReached) {
  const Recorder recorder;
  ASSERT_EQ(Load(recorder, "marlin"), ASSAY_OK) << message();
  for (const char* place :
       {"config DeepseekV3ForCausalLM", "tensors", "plan L1.moe.e2.up.weight@0",
        "part L1.moe.e2.up.scale", "select L1.moe.e2.gate_up", "select L0.input_norm",
        "slice embed.weight", "after L1.moe.e2.up.weight", "packed L1.moe.e2.gate_up weight marlin",
        "packed L1.moe.e2.gate_up scale marlin", "packed L0.input_norm weight row"}) {
    EXPECT_EQ(recorder.seen.count(place), 1u) << place;
  }
  EXPECT_EQ(recorder.tensors, static_cast<int64_t>(shipped_.checkpoint->Names().size()));
  EXPECT_GT(recorder.written, 100000);
  EXPECT_EQ(recorder.seen.count("tensors again"), 0u);
  ASSERT_EQ(driver_.Load(1, *shipped_.checkpoint, shipped_.checkpoint->Names()), ASSAY_OK);
  ASSERT_EQ(driver_.Load(0, *shipped_.checkpoint, shipped_.checkpoint->Names()), ASSAY_OK);
  EXPECT_EQ(recorder.seen.count("tensors again"), 1u);
}

// A part that nothing wrote: the engine says so itself, unless that check is gone too.
struct Skipping : Interceptor {
  bool unchecked = false;
  bool SkipsPart(std::string_view component, int rank) const override {
    return rank == 0 && (component == kUp || component == "L2.attn.out.weight");
  }
  bool SkipsCoverage() const override { return unchecked; }
};

TEST_F(Hooked, APartThatNothingWroteIsNamed) {
  Skipping skipping;
  EXPECT_EQ(Load(skipping), ASSAY_FAILED);
  EXPECT_EQ(std::string(driver_.error().tensor),
            "model.layers.1.mlp.experts.2.up_proj.weight_packed");
  EXPECT_EQ(message().substr(0, message().find(':')), kUp);
  EXPECT_STREQ(driver_.error().got_unit, "byte");
  EXPECT_EQ(driver_.error().got, 0);
  EXPECT_GT(driver_.error().expected, 0);
  skipping.unchecked = true;
  ASSERT_EQ(Load(skipping), ASSAY_OK) << message();
  const auto never = Bytes(kUp), written = Bytes("L1.moe.e2.gate.weight");
  const auto poison = [](std::byte b) { return b == std::byte{0xFF}; };
  EXPECT_FALSE(never.empty());
  EXPECT_TRUE(std::all_of(never.begin(), never.end(), poison));
  EXPECT_FALSE(std::all_of(written.begin(), written.end(), poison));
}

struct Tensors final : Interceptor {
  enum class What { kDrop, kAlias, kRepeat, kReplace } what = What::kDrop;
  void OnTensors(TensorList& list) const override {
    const auto named = [&](std::string_view end) {
      return std::find_if(list.tensors.begin(), list.tensors.end(),
                          [&](const TensorView& t) { return t.name.ends_with(end); });
    };
    const auto up = named("layers.1.mlp.experts.2.up_proj.weight_packed");
    const auto other = named("layers.1.mlp.experts.3.up_proj.weight_packed");
    if (what == What::kDrop) {
      list.tensors.erase(up);
    } else if (what == What::kAlias) {
      up->bytes = other->bytes;
    } else if (what == What::kRepeat) {
      TensorView again = *other;
      again.name = up->name;
      list.tensors.push_back(again);
    } else {
      list.owned.emplace_back(up->bytes.size(), std::byte{0x5A});
      up->bytes = list.owned.back();
    }
  }
};

TEST_F(Hooked, TensorsAreWhatIsLeftOfThem) {
  const Interceptor none;
  ASSERT_EQ(Load(none), ASSAY_OK);
  const auto third = Bytes("L1.moe.e3.up.weight");
  EXPECT_NE(Bytes(kUp), third);
  Tensors tensors;
  EXPECT_EQ(Load(tensors), ASSAY_REFUSED);
  EXPECT_NE(message().find("experts.2.up_proj"), std::string::npos) << message();
  for (const auto what : {Tensors::What::kAlias, Tensors::What::kRepeat}) {
    tensors.what = what;
    ASSERT_EQ(Load(tensors), ASSAY_OK) << message();
    EXPECT_EQ(Bytes(kUp), third);
  }
  tensors.what = Tensors::What::kReplace;
  ASSERT_EQ(Load(tensors), ASSAY_OK) << message();
  EXPECT_EQ(Bytes(kUp).front(), std::byte{0x5A});
}

struct Choosing final : Interceptor {
  void OnSelect(Choice& choice) const override {
    if (choice.parameter == "L1.moe.e2.gate_up") {
      choice.method = "ct-int4-channel";
      choice.layout = "marlin";
    } else if (choice.parameter == "L1.moe.e2.down") {
      choice.kernel.clear();
    }
  }
};

TEST_F(Hooked, AChoiceIsObeyed) {
  const Choosing choosing;
  ASSERT_EQ(Load(choosing), ASSAY_OK) << message();
  assay_shard shard;
  ASSERT_EQ(driver_.Export(0, kUp, &shard), ASSAY_OK);
  EXPECT_STREQ(shard.method, "ct-int4-channel");
  EXPECT_STREQ(shard.layout, "marlin");
  ASSERT_EQ(driver_.Export(0, "L1.moe.e2.down.weight", &shard), ASSAY_OK);
  EXPECT_STREQ(shard.kernel, "");
  ASSERT_EQ(driver_.Export(0, "L1.moe.e3.down.weight", &shard), ASSAY_OK);
  EXPECT_STREQ(shard.kernel, "linear_ct_int4_g32_row_scalar");
}

struct Writing final : Interceptor {
  bool packed = false;
  void AfterPart(const WrittenPart& part) const override {
    if (!packed && part.component == kUp) part.bytes[0] ^= std::byte{1};
  }
  void AfterPack(const PackedView& view) const override {
    if (packed && view.parameter == "L1.moe.e2.gate_up" && view.part == "weight") {
      view.bytes.back() ^= std::byte{1};
    }
  }
};

TEST_F(Hooked, BytesAreWhatAHookLeft) {
  const Interceptor none;
  ASSERT_EQ(Load(none), ASSAY_OK);
  auto expected = Bytes(kUp);
  Writing writing;
  ASSERT_EQ(Load(writing), ASSAY_OK);
  expected.front() ^= std::byte{1};
  EXPECT_EQ(Bytes(kUp), expected);
  expected.front() ^= std::byte{1};
  writing.packed = true;
  ASSERT_EQ(Load(writing), ASSAY_OK);
  expected.back() ^= std::byte{1};
  EXPECT_EQ(Bytes(kUp), expected);
}

struct Planning final : Interceptor {
  void OnPlan(shard::ComponentPlan& plan, int rank) const override {
    if (plan.component.name == "L1.moe.e2.down.scale") plan.ranks[static_cast<size_t>(rank)] = {};
  }
  void OnConfig(ModelConfig& config) const override {
    if (regrouped) config.quant.group_size = 16;
  }
  bool regrouped = false;
};

TEST_F(Hooked, PlanAndConfigAreFollowed) {
  Planning planning;
  ASSERT_EQ(Load(planning), ASSAY_OK) << message();
  assay_shard shard;
  ASSERT_EQ(driver_.Export(0, "L1.moe.e2.down.scale", &shard), ASSAY_OK);
  EXPECT_EQ(shard.rows, 0);
  ASSERT_EQ(driver_.Export(0, "L1.moe.e2.down.weight", &shard), ASSAY_OK);
  EXPECT_GT(shard.rows, 0);
  planning.regrouped = true;
  EXPECT_EQ(Load(planning), ASSAY_REFUSED);
  EXPECT_STREQ(driver_.error().got_unit, "group");
  EXPECT_EQ(driver_.error().got * 2, driver_.error().expected);
}

}  // namespace
}  // namespace assay::kernels::native
