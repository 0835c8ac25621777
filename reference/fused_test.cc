// Experts that lie in one tensor, and llama.cpp's names: the same slices from other files, and what
// each layout of experts means, element by element.
#include <gtest/gtest.h>

#include <map>

#include "harness/checkpoint/gguf.h"
#include "reference/finders.h"
#include "reference/test_support.h"

namespace assay::reference {
namespace {

using testing_support::Opened;
using testing_support::OpenModel;
using testing_support::Overlay;

std::vector<std::byte> BytesOf(const Oracle& oracle, const std::string& component,
                               const Where& where) {
  auto slice = oracle.ExpectedSlice(component, where);
  if (!slice) {
    ADD_FAILURE() << component << ": " << slice.error().message;
    return {};
  }
  return std::move(slice->bytes);
}

// A parameter in a tensor of two experts whose values are their own places.
struct Places {
  MemorySource source;
  Parameter parameter;
  Places(const char* name, std::vector<int64_t> shape) {
    int64_t n = 1;
    for (const int64_t extent : shape) n *= extent;
    std::vector<std::byte> bytes;
    for (int64_t i = 0; i < n; ++i) bytes.push_back(static_cast<std::byte>(i));
    source.Put(name, DType::kU8, std::move(shape), std::move(bytes));
    parameter.source = parameter.fused.stem = "x.both";
    parameter.fused.experts = 2;
  }
  // Rows of the view that a decoder is given.
  std::vector<std::vector<int>> Rows(const char* suffix, bool headers = false) const {
    const ParameterFinder finder(source, parameter, headers);
    const TensorView* view = finder.Find(suffix);
    if (view == nullptr) return {};
    std::vector<std::vector<int>> rows(static_cast<size_t>(view->shape[0]));
    const size_t columns = view->shape.size() > 1 ? static_cast<size_t>(view->shape[1]) : 1;
    for (size_t i = 0; i < view->bytes.size(); ++i) {
      rows[i / columns].push_back(std::to_integer<int>(view->bytes[i]));
    }
    return rows;
  }
};
using Grid2 = std::vector<std::vector<int>>;

TEST(Fused, EveryLayoutOfExpertsIsReadWhereItLies) {
  Places plain("x.both", {2, 4, 3});  // gate's rows before up's
  plain.parameter.fused.expert = 1;
  EXPECT_EQ(plain.Rows("weight"), (Grid2{{12, 13, 14}, {15, 16, 17}, {18, 19, 20}, {21, 22, 23}}));
  plain.parameter.fused.half = 1;
  EXPECT_EQ(plain.Rows("weight"), (Grid2{{18, 19, 20}, {21, 22, 23}}));
  plain.parameter.fused.interleaved = true;
  EXPECT_EQ(plain.Rows("weight"), (Grid2{{15, 16, 17}, {21, 22, 23}}));

  Places turned("x.both", {2, 3, 4});  // [E, K, N]
  turned.parameter.fused.expert = 1;
  turned.parameter.fused.transposed = true;
  turned.parameter.fused.half = 0;
  EXPECT_EQ(turned.Rows("weight"), (Grid2{{12, 16, 20}, {13, 17, 21}}));
  turned.parameter.fused.interleaved = true;
  EXPECT_EQ(turned.Rows("weight"), (Grid2{{12, 16, 20}, {14, 18, 22}}));
  // A header has no bytes where the values do not lie together.
  EXPECT_EQ(turned.Rows("weight", true), (Grid2{{}, {}}));

  // Blocks of a group have an axis of their own, biases none; neither is turned.
  Places blocks("x.both_blocks", {2, 2, 3, 2});
  blocks.parameter.fused.transposed = blocks.parameter.fused.interleaved = true;
  blocks.parameter.fused.half = 1;
  EXPECT_EQ(blocks.Rows("blocks"), (Grid2{{6, 7, 8, 9, 10, 11}}));
  Places bias("x.both_bias", {2, 4});
  bias.parameter.fused.half = 1;
  EXPECT_EQ(bias.Rows("bias"), (Grid2{{2}, {3}}));
  Places dotted("x.both.weight", {2, 2, 2});
  EXPECT_EQ(dotted.Rows("weight"), (Grid2{{0, 1}, {2, 3}}));

  Places odd("x.both", {2, 3, 2});
  odd.parameter.fused.half = 0;
  const ParameterFinder finder(odd.source, odd.parameter, true);
  EXPECT_EQ(finder.Find("weight"), nullptr);
  EXPECT_NE(finder.problem().find("not two halves"), std::string::npos) << finder.problem();
  Places three("x.both", {3, 2, 2});
  const ParameterFinder others(three.source, three.parameter, true);
  EXPECT_EQ(others.Find("weight"), nullptr);
  EXPECT_NE(others.problem().find("2 experts"), std::string::npos) << others.problem();
}

// The same experts in one tensor, gate's rows before up's: the same slices.
TEST(Fused, ExpertsInOneTensorAreTheSameExperts) {
  const Opened model = OpenModel("qwen3moe-mini");
  Overlay fused(*model.checkpoint);
  const int64_t experts = model.config().experts, inner = model.config().moe_intermediate;
  const int64_t hidden = model.config().hidden;
  for (const int64_t layer : {0, 1, 2}) {
    const std::string base = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    std::vector<std::byte> both, down;
    for (int64_t e = 0; e < experts; ++e) {
      for (const char* module : {"gate_proj", "up_proj", "down_proj"}) {
        const std::string name = base + std::to_string(e) + "." + module + ".weight";
        const TensorView* view = model.checkpoint->Find(name);
        auto& to = std::string_view(module) == "down_proj" ? down : both;
        to.insert(to.end(), view->bytes.begin(), view->bytes.end());
        fused.removed.insert(name);
      }
    }
    fused.changed.Put(base + "gate_up_proj", DType::kBF16, {experts, 2 * inner, hidden}, both);
    fused.changed.Put(base + "down_proj", DType::kBF16, {experts, hidden, inner}, down);
  }
  const auto oracle = Oracle::Create(model.config(), fused);
  ASSERT_TRUE(oracle.ok()) << oracle.error().message;
  EXPECT_EQ((*oracle)->Components(), model.oracle->Components());
  EXPECT_TRUE((*oracle)->Unused().empty());
  for (const char* component :
       {"L0.moe.e0.gate.weight", "L1.moe.e6.up.weight", "L2.moe.e3.down.weight"}) {
    for (const int rank : {0, 1, 3}) {
      const Where where = {{4, 4}, rank};
      EXPECT_EQ(BytesOf(**oracle, component, where), BytesOf(*model.oracle, component, where));
    }
  }
  EXPECT_NE(BytesOf(**oracle, "L1.moe.e6.up.weight", Where{}),
            BytesOf(**oracle, "L1.moe.e6.gate.weight", Where{}));
  // A tensor that holds other numbers of experts is named.
  fused.changed.Put("model.layers.1.mlp.experts.down_proj", DType::kBF16, {1, 80, 192},
                    std::vector<std::byte>(2 * 80 * 192));
  const auto wrong = Oracle::Create(model.config(), fused);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("layers.1.mlp.experts.down_proj"), std::string::npos);
  EXPECT_NE(wrong.error().message.find("7 experts"), std::string::npos) << wrong.error().message;
}

// ModelSlim's W4A8 in one tensor: two rows of a weight in a byte, a scale a row.
TEST(Fused, ModelSlimPacksRowsOfAllExperts) {
  const Opened model = OpenModel("qwen3moe-mini");
  Overlay fused(*model.checkpoint);
  ModelConfig config = model.config();
  config.quant.method = "modelslim";
  const int64_t experts = config.experts, inner = config.moe_intermediate, hidden = config.hidden;
  const auto bytes = [](int64_t n) {
    std::vector<std::byte> made;
    for (int64_t i = 0; i < n; ++i) made.push_back(static_cast<std::byte>(i * 7 + i / 251));
    return made;
  };
  for (const std::string& name : model.checkpoint->Names()) {
    if (name.find(".experts.") != std::string::npos) fused.removed.insert(name);
  }
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string base = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    const auto put = [&](const std::string& stem, int64_t n, int64_t k) {
      fused.changed.Put(base + stem + "_weight", DType::kI8, {experts, n / 2, k},
                        bytes(experts * n / 2 * k));
      for (const char* suffix : {"_weight_scale", "_weight_offset"}) {
        fused.changed.Put(base + stem + suffix, DType::kF32, {experts, n, 1},
                          std::vector<std::byte>(static_cast<size_t>(experts * n * 4)));
      }
      for (const char* suffix : {"_weight", "_weight_scale", "_weight_offset"}) {
        config.quant.description[base + stem + suffix] = "W4A8_DYNAMIC";
      }
    };
    put("w13", 2 * inner, hidden);
    put("w2", hidden, inner);
  }
  const auto oracle = Oracle::Create(config, fused);
  ASSERT_TRUE(oracle.ok()) << oracle.error().message;
  EXPECT_EQ(*(*oracle)->MethodOf("L0.moe.e0.up"), "modelslim-w4a8");
  // What a flag says of other tensors does not decide: attention is dense in the file.
  EXPECT_EQ(*(*oracle)->MethodOf("L0.attn.q"), "bf16");
  EXPECT_TRUE((*oracle)->Unused().empty());
  const auto up = (*oracle)->ExpectedSlice("L1.moe.e2.up.weight", {{2, 2}, 1});
  ASSERT_TRUE(up.ok()) << up.error().message;
  EXPECT_EQ(up->elements_per_row, 2);
  EXPECT_EQ(up->row_unit, "word");
  EXPECT_EQ(up->rows.front(), inner / 4);
  EXPECT_EQ(up->rows.size(), static_cast<size_t>(inner / 4));
  const auto first = static_cast<size_t>((2 * inner + inner / 2 + inner / 4) * hidden);
  const std::vector<std::byte> all = bytes(experts * inner * hidden);
  EXPECT_TRUE(std::equal(up->bytes.begin(), up->bytes.end(), all.begin() + first));
  // 192 / 64 = 3 rows: one and a half bytes.
  const auto odd = (*oracle)->ExpectedSlice("L1.moe.e2.up.scale", {{64, 1}, 0});
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().kind, ErrorKind::kRefused);
}

// llama.cpp's file of the same model: other names, all experts in one tensor, kv_b split, norms and
// projections of the attention residuals multiplied.
TEST(Gguf, KimiK3sExpertsAndDeltaAttentionAreTheSame) {
  const Opened model = OpenModel("k3-mini");
  const auto file = GgufFile::Open("goldens/checkpoints/k3-mini/k3-mini.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  ModelConfig config = model.config();
  config.container = Container::kGguf;
  config.prefix = config.lm_head = "";
  const auto oracle = Oracle::Create(config, **file);
  ASSERT_TRUE(oracle.ok()) << oracle.error().message;
  EXPECT_FALSE((*oracle)->runs());
  for (const UnusedTensor& tensor : (*oracle)->Unused()) ADD_FAILURE() << tensor.tensor;
  int same = 0;
  for (const std::string& component : (*oracle)->Components()) {
    const auto theirs = (*oracle)->ExpectedSlice(component, {{2, 2}, 1});
    ASSERT_TRUE(theirs.ok()) << theirs.error().message;
    const bool split = component.ends_with("attn.k_b.weight") ||
                       component.ends_with("attn.v_b.weight") ||
                       component.find("_res.score") != std::string::npos;
    const auto ours = model.oracle->ExpectedSlice(component, {{2, 2}, 1});
    EXPECT_EQ(ours.ok(), !split) << component;
    if (!ours.ok()) continue;
    EXPECT_EQ(ours->rows, theirs->rows) << component;
    EXPECT_EQ(ours->columns, theirs->columns) << component;
    if (ours->dtype != theirs->dtype) continue;  // norms and routers are widened
    // The converter stores −exp(A_log).
    EXPECT_EQ(ours->bytes == theirs->bytes, component.find("a_log") == std::string::npos)
        << component;
    ++same;
  }
  EXPECT_GT(same, 130);
  const auto k_b = (*oracle)->ExpectedSlice("L3.attn.k_b.weight", {{2, 2}, 1});
  ASSERT_TRUE(k_b.ok());
  EXPECT_EQ(k_b->rows.size(), 6u * 24);  // whole
  EXPECT_EQ(k_b->columns.size(), 16u);
  EXPECT_EQ(*(*oracle)->MethodOf("L3.attn.v_b"), "bf16");
}

}  // namespace
}  // namespace assay::reference
