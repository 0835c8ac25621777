// Models in GGUF files: names, the order of q's and k's rows, blocks in every place where a matrix
// may stand, and what each mistake would cost.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "harness/checkpoint/gguf_writer.h"
#include "reference/golden.h"
#include "reference/golden_bound.h"
#include "reference/test_support.h"
#include "reference/tiny_gguf.h"

namespace assay::reference {
namespace {

namespace fs = std::filesystem;
using testing_support::Opened;
using testing_support::OpenModel;
using testing_support::Overlay;
using testing_support::TinyGguf;

const Contract kExact = Contract::Exact();
// The mildest mistake stands this far above what is allowed.
constexpr double kAboveBound = 1e3;

// A shipped model as a GGUF file of the same numbers, opened again.
class AsGguf {
 public:
  explicit AsGguf(const std::string& name) {
    const Opened model = OpenModel(name);
    GgufConversion conversion;
    conversion.exact_eps = true;
    const auto writer = ConvertToGguf(*model.checkpoint, conversion);
    path_ = fs::path(testing::TempDir()) / (name + std::to_string(getpid()) + ".gguf");
    if (!writer) {
      ADD_FAILURE() << writer.error().message;
      std::abort();
    }
    std::ofstream(path_, std::ios::binary) << writer->Bytes();
    auto opened = Checkpoint::Open(path_.string());
    if (!opened) {
      ADD_FAILURE() << opened.error().message;
      std::abort();
    }
    checkpoint = std::move(*opened);
  }
  ~AsGguf() { fs::remove(path_); }
  std::unique_ptr<Checkpoint> checkpoint;

 private:
  fs::path path_;
};

GoldenRow Verified(const std::string& name, const ModelConfig& config, const TensorSource& source,
                   const std::string& prompt) {
  const std::string folder = "goldens/goldens/" + name;
  const auto info = ReadGoldenInfo(folder);
  const auto oracle = Oracle::Create(config, source);
  if (!info.ok() || !oracle.ok()) {
    ADD_FAILURE() << (info.ok() ? oracle.error().message : info.error().message);
    return {};
  }
  return VerifyPrompt(**oracle, config, *info, {folder, name, prompt, nullptr});
}

TEST(GgufGolden, AConvertedModelGivesTheSameGoldens) {
  for (const char* name : {"llama-mini", "qwen2-mini", "qwen3-mini"}) {
    const AsGguf model(name);
    const ModelConfig& config = model.checkpoint->config();
    EXPECT_EQ(config.container, Container::kGguf);
    EXPECT_EQ(config.rope_interleave, std::string(name) == "llama-mini") << name;
    for (const char* prompt : {"t1", "t5", "t33"}) {
      const GoldenRow row = Verified(name, config, *model.checkpoint, prompt);
      EXPECT_EQ(row.verdict, GoldenVerdict::kPass) << name << " " << prompt << ": " << row.reason;
      EXPECT_TRUE(row.logits_max_rel.has_value() && row.taps_max_rel.has_value());
    }
  }
}

TEST(GgufGolden, AnUndoneOrForgottenPermutationIsSeen) {
  const AsGguf model("llama-mini");
  // RoPE of halves on rows that were permuted for neighbours.
  ModelConfig halves = model.checkpoint->config();
  halves.rope_interleave = false;
  const GoldenRow row = Verified("llama-mini", halves, *model.checkpoint, "t33");
  EXPECT_EQ(row.verdict, GoldenVerdict::kFail);
  EXPECT_GT(row.logits_max_rel.value_or(0), kAboveBound * row.logits_bound);
  // RoPE of neighbours on rows that were not.
  const Opened plain = OpenModel("llama-mini");
  ModelConfig neighbours = plain.config();
  neighbours.rope_interleave = true;
  const GoldenRow other = Verified("llama-mini", neighbours, *plain.checkpoint, "t33");
  EXPECT_EQ(other.verdict, GoldenVerdict::kFail);
  EXPECT_GT(other.logits_max_rel.value_or(0), kAboveBound * other.logits_bound);
  // k alone in Hugging Face's order.
  Overlay k(*model.checkpoint);
  for (int layer = 0; layer < static_cast<int>(plain.config().layers); ++layer) {
    const TensorView* from = plain.checkpoint->Find("model.layers." + std::to_string(layer) +
                                                    ".self_attn.k_proj.weight");
    ASSERT_NE(from, nullptr);
    k.changed.Put("blk." + std::to_string(layer) + ".attn_k.weight", from->dtype, from->shape,
                  {from->bytes.begin(), from->bytes.end()});
  }
  const GoldenRow only_k = Verified("llama-mini", model.checkpoint->config(), k, "t33");
  EXPECT_EQ(only_k.verdict, GoldenVerdict::kFail);
  EXPECT_GT(only_k.logits_max_rel.value_or(0), kAboveBound * only_k.logits_bound);
}

TEST(GgufModel, TensorsThatAreMissingOrOfAnotherShapeAreNamed) {
  const TinyGguf tiny;
  const auto error = [&](const TensorSource& source) {
    const auto oracle = Oracle::Create(tiny.config, source);
    return oracle.ok() ? std::string("none") : oracle.error().message;
  };
  EXPECT_EQ(error(tiny.source), "none");
  for (const char* name : {"token_embd.weight", "blk.0.attn_q.weight", "blk.0.attn_output.weight",
                           "blk.0.ffn_down.weight", "output_norm.weight", "blk.0.attn_norm.weight",
                           "blk.0.ffn_norm.weight"}) {
    Overlay without(tiny.source);
    without.removed.insert(name);
    const std::string module(name, std::strlen(name) - std::strlen(".weight"));
    EXPECT_NE(error(without).find(module), std::string::npos) << error(without);
  }
  Overlay narrow(tiny.source);
  narrow.changed.Put("blk.0.ffn_up.weight", DType::kQ4_1, {TinyGguf::kWidth, 3},
                     std::vector<std::byte>(TinyGguf::kWidth * 3 * 20));
  EXPECT_NE(error(narrow).find("[192, 4]"), std::string::npos) << error(narrow);
  // Not tied: the head has a name of its own.
  ModelConfig untied = tiny.config;
  untied.tied = false;
  const auto oracle = Oracle::Create(untied, tiny.source);
  ASSERT_FALSE(oracle.ok());
  EXPECT_EQ(oracle.error().message.find("output"), 0u) << oracle.error().message;
  ModelConfig deepseek = OpenModel("k2-mini").config();
  deepseek.container = Container::kGguf;
  EXPECT_EQ(Oracle::Create(deepseek, tiny.source).error().kind, ErrorKind::kUnsupported);
}

Trace SixTokens(const Oracle& oracle) {
  RunRequest request;
  request.steps = {{{3, 69, 0, 17, 17}, 0}, {{42}, 5}};
  auto trace = oracle.Run(request, kExact);
  if (!trace) {
    ADD_FAILURE() << trace.error().message;
    return Trace(2);
  }
  return std::move(*trace);
}

// The same numbers as F64 tensors under Hugging Face's names.
MemorySource Plain(const TinyGguf& tiny) {
  const std::pair<const char*, const char*> names[] = {
      {"token_embd", "model.embed_tokens"},
      {"blk.0.attn_q", "model.layers.0.self_attn.q_proj"},
      {"blk.0.attn_k", "model.layers.0.self_attn.k_proj"},
      {"blk.0.attn_v", "model.layers.0.self_attn.v_proj"},
      {"blk.0.attn_output", "model.layers.0.self_attn.o_proj"},
      {"blk.0.ffn_gate", "model.layers.0.mlp.gate_proj"},
      {"blk.0.ffn_up", "model.layers.0.mlp.up_proj"},
      {"blk.0.ffn_down", "model.layers.0.mlp.down_proj"},
      {"blk.0.attn_norm", "model.layers.0.input_layernorm"},
      {"blk.0.ffn_norm", "model.layers.0.post_attention_layernorm"},
      {"output_norm", "model.norm"}};
  MemorySource source;
  for (const auto& [gguf, hf] : names) {
    const TensorView* view = tiny.source.Find(std::string(gguf) + ".weight");
    if (!IsBlock(view->dtype)) {
      source.Put(std::string(hf) + ".weight", view->dtype, view->shape,
                 {view->bytes.begin(), view->bytes.end()});
      continue;
    }
    const Tensor values = tiny.Dequantised(view->name);
    std::vector<std::byte> bytes(values.data.size() * sizeof(double));
    std::memcpy(bytes.data(), values.data.data(), bytes.size());
    source.Put(std::string(hf) + ".weight", DType::kF64, values.shape, std::move(bytes));
  }
  return source;
}

double LogitsDifference(const Trace& a, const Trace& b) {
  double largest = 0;
  for (size_t step = 0; step < a.size(); ++step) {
    const Tensor& x = a[step].at("logits");
    const Tensor& y = b[step].at("logits");
    EXPECT_EQ(x.shape, y.shape);
    for (size_t i = 0; i < x.data.size(); ++i) {
      largest = std::max(largest, std::fabs(x.data[i] - y.data[i]));
    }
  }
  return largest;
}

TEST(GgufModel, BlocksGiveWhatTheirValuesGive) {
  const TinyGguf tiny;
  const Trace blocks = SixTokens(*tiny.MakeOracle());
  ModelConfig config = tiny.config;
  config.container = Container::kSafetensors;
  const MemorySource source = Plain(tiny);
  const auto plain = Oracle::Create(config, source);
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_EQ(LogitsDifference(blocks, SixTokens(**plain)), 0);
  // A weight of another kind in one place is seen.
  Overlay changed(source);
  const TensorView* up = source.Find("model.layers.0.mlp.up_proj.weight");
  std::vector<std::byte> bytes(up->bytes.begin(), up->bytes.end());
  double first;
  std::memcpy(&first, bytes.data(), 8);
  first *= 1 + 0x1p-20;
  std::memcpy(bytes.data(), &first, 8);
  changed.changed.Put(up->name, up->dtype, up->shape, bytes);
  const auto moved = Oracle::Create(config, changed);
  ASSERT_TRUE(moved.ok());
  EXPECT_GT(LogitsDifference(blocks, SixTokens(**moved)), 0);
}

TEST(GgufModel, MistakesInBlocksChangeTheLogits) {
  const TinyGguf tiny;
  const Trace right = SixTokens(*tiny.MakeOracle());
  const auto cost = [&](auto change) {
    Overlay changed(tiny.source);
    const TensorView* view = tiny.source.Find("blk.0.ffn_down.weight");
    std::vector<std::byte> bytes(view->bytes.begin(), view->bytes.end());
    for (size_t at = 0; at < bytes.size(); at += 20) change(bytes.data() + at, bytes, at);
    changed.changed.Put(view->name, view->dtype, view->shape, bytes);
    const auto oracle = Oracle::Create(tiny.config, changed);
    EXPECT_TRUE(oracle.ok());
    return LogitsDifference(right, SixTokens(**oracle));
  };
  using Bytes = std::vector<std::byte>;
  EXPECT_EQ(cost([](std::byte*, const Bytes&, size_t) {}), 0);
  const double swapped = cost([](std::byte* block, const Bytes&, size_t) {
    for (size_t i = 4; i < 20; ++i) block[i] = block[i] << 4 | block[i] >> 4;
  });
  const double no_minimum =
      cost([](std::byte* block, const Bytes&, size_t) { block[2] = block[3] = std::byte{0}; });
  const double neighbour = cost([](std::byte* block, const Bytes& all, size_t at) {
    std::memcpy(block, all.data() + (at + 20) % all.size(), 4);
  });
  RunRequest prefill;
  prefill.steps = {{{3, 69, 0, 17, 17}, 0}};
  const auto moved = MeasureAmplification(*tiny.MakeOracle(), prefill, right);
  ASSERT_TRUE(moved.ok());
  const double allowed = 2 * moved->deviation.at("logits");
  ASSERT_GT(allowed, 0);
  EXPECT_GT(swapped, kAboveBound * allowed);
  EXPECT_GT(no_minimum, kAboveBound * allowed);
  EXPECT_GT(neighbour, kAboveBound * allowed);
}

TEST(GgufModel, EmbeddingsAreDecodedWhereTheyLieAndTheHeadIsTheSameTensor) {
  const TinyGguf tiny;
  const auto oracle = tiny.MakeOracle();
  const Tensor table = tiny.Dequantised("token_embd.weight");
  const Step step = {{69, 1}, 0};
  const Node& embed = *oracle->FindNode("embed");
  for (int rank = -1; rank < 3; ++rank) {
    const auto e = oracle->Evaluate(embed, {}, {{3, 1}, rank}, step, kExact);
    ASSERT_TRUE(e.ok()) << e.error().message;
    for (size_t h = 0; h < TinyGguf::kHidden; ++h) {
      EXPECT_EQ(e->value.data[h], table.data[69 * TinyGguf::kHidden + h]);
      EXPECT_EQ(e->value.data[TinyGguf::kHidden + h], table.data[TinyGguf::kHidden + h]);
    }
  }
  EXPECT_EQ(*oracle->SourceName("logits.weight"), "token_embd.weight");
  EXPECT_EQ(*oracle->SourceName("embed.weight"), "token_embd.weight");
  EXPECT_EQ(*oracle->SourceName("L0.attn.out.weight"), "blk.0.attn_output.weight");
  EXPECT_EQ(*oracle->SourceName("L0.mlp.gate.weight"), "blk.0.ffn_gate.weight");
}

TEST(GgufModel, RanksHoldWholeBlocks) {
  const TinyGguf tiny;
  const auto oracle = tiny.MakeOracle();
  // 192 columns are six blocks: three ranks have two each.
  const TensorView* down = tiny.source.Find("blk.0.ffn_down.weight");
  for (int rank = 0; rank < 3; ++rank) {
    const auto slice = oracle->ExpectedSlice("L0.mlp.down.weight", {{3, 1}, rank});
    ASSERT_TRUE(slice.ok()) << slice.error().message;
    EXPECT_EQ(slice->dtype, DType::kQ4_1);
    EXPECT_EQ(slice->unit, "block");
    EXPECT_EQ(slice->elements_per_column, 32);
    EXPECT_EQ(slice->columns, (std::vector<int64_t>{2 * rank, 2 * rank + 1}));
    ASSERT_EQ(slice->bytes.size(), TinyGguf::kHidden * 2 * 20u);
    for (size_t n = 0; n < TinyGguf::kHidden; ++n) {
      const size_t from = (n * 6 + static_cast<size_t>(2 * rank)) * 20;
      EXPECT_EQ(std::memcmp(slice->bytes.data() + n * 40, down->bytes.data() + from, 40), 0);
    }
  }
  // Four ranks would have 48 elements each.
  const auto refused = oracle->ExpectedSlice("L0.mlp.down.weight", {{4, 1}, 0});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kRefused);
  for (const char* part : {"blk.0.ffn_down.weight", "axis k", "block", "tp below 4 is 3"}) {
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
  // Rows are cut like any other's; a rank's product on its shard is that on its slice.
  const auto rows = oracle->ExpectedSlice("L0.mlp.up.weight", {{4, 1}, 3});
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->rows.front(), 144);
  EXPECT_EQ(rows->columns.size(), 4u);
}

TEST(GgufModel, AShardOfBlocksIsReadInsteadOfTheFile) {
  const TinyGguf tiny;
  const auto oracle = tiny.MakeOracle();
  const Node& node = *oracle->FindNode("L0.mlp.down");
  const Where where = {{3, 1}, 1};
  const Tensor x = testing_support::RandomTensor(5, {2, TinyGguf::kWidth / 3});
  const std::vector<Input> inputs = {{&x, nullptr}};
  const auto slice = oracle->ExpectedSlice("L0.mlp.down.weight", where);
  ASSERT_TRUE(slice.ok());
  MemorySource shard;
  shard.Put("L0.mlp.down.weight", slice->dtype, {TinyGguf::kHidden, 2}, slice->bytes);
  const auto own = oracle->Evaluate(node, inputs, where, {{1, 2}, 0}, kExact);
  const auto same = oracle->Evaluate(node, inputs, where, {{1, 2}, 0}, kExact, &shard);
  ASSERT_TRUE(own.ok() && same.ok()) << (own.ok() ? same.error().message : own.error().message);
  EXPECT_EQ(own->value.data, same->value.data);
  EXPECT_EQ(own->magnitude.data, same->magnitude.data);
  std::vector<std::byte> damaged = slice->bytes;
  damaged[5] ^= std::byte{1};
  shard.Put("L0.mlp.down.weight", slice->dtype, {TinyGguf::kHidden, 2}, damaged);
  const auto other = oracle->Evaluate(node, inputs, where, {{1, 2}, 0}, kExact, &shard);
  ASSERT_TRUE(other.ok());
  EXPECT_NE(own->value.data[0], other->value.data[0]);
}

}  // namespace
}  // namespace assay::reference
