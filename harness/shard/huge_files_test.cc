// Opt in (tag "manual"): Kimi-K3's 351 files as they lie on a disk, real headers before data that
// is a hole, opened and planned as any checkpoint.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/checkpoint/checkpoint.h"
#include "harness/shard/huge_model.h"
#include "harness/shard/plan.h"

namespace assay::shard {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kFiles = 351;

std::string FileName(size_t index) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, kFiles);
}

// Header, then a hole of the tensors' size. Returns whether all of it was written.
bool WriteFile(const fs::path& path, const std::vector<const TensorView*>& views) {
  json header;
  size_t offset = 0;
  for (const TensorView* view : views) {
    const size_t end = offset + view->bytes.size();
    header[view->name] = {{"dtype", std::string(NameOf(view->dtype))},
                          {"shape", view->shape},
                          {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::ofstream out(path, std::ios::binary);
  const uint64_t length = text.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.close();
  return out.good() &&
         truncate(path.c_str(), static_cast<off_t>(sizeof length + text.size() + offset)) == 0;
}

void WriteConfig(const fs::path& path) {
  std::vector<int> kda, full;
  for (int layer = 1; layer <= 93; ++layer) {
    (layer % 4 != 0 && layer != 93 ? kda : full).push_back(layer);
  }
  const json weights = {
      {"num_bits", 4},     {"type", "float"},  {"strategy", "group"},         {"group_size", 32},
      {"symmetric", true}, {"dynamic", false}, {"scale_dtype", "torch.uint8"}};
  const json text = {
      {"architectures", {"KimiLinearForCausalLM"}},
      {"model_type", "kimi_linear"},
      {"vocab_size", 163840},
      {"hidden_size", 7168},
      {"intermediate_size", 33792},
      {"num_hidden_layers", 93},
      {"num_attention_heads", 96},
      {"num_key_value_heads", 96},
      {"head_dim", 128},
      {"q_lora_rank", 1536},
      {"kv_lora_rank", 512},
      {"qk_nope_head_dim", 128},
      {"qk_rope_head_dim", 64},
      {"v_head_dim", 128},
      {"mla_use_nope", true},
      {"mla_use_output_gate", true},
      {"rms_norm_eps", 1e-5},
      {"hidden_act", "situ"},
      {"activation_situ_beta", 4.0},
      {"activation_situ_linear_beta", 25.0},
      {"num_experts", 896},
      {"num_experts_per_token", 16},
      {"num_shared_experts", 2},
      {"moe_intermediate_size", 3072},
      {"routed_expert_hidden_size", 3584},
      {"latent_moe_use_norm", true},
      {"first_k_dense_replace", 1},
      {"moe_layer_freq", 1},
      {"moe_router_activation_func", "sigmoid"},
      {"moe_renormalize", true},
      {"routed_scaling_factor", 1.0},
      {"num_expert_group", 1},
      {"topk_group", 1},
      {"topk_method", "noaux_tc"},
      {"use_grouped_topk", true},
      {"attn_res_block_size", 12},
      {"tie_word_embeddings", false},
      {"max_position_embeddings", 262144},
      {"rope_theta", 10000.0},
      {"dtype", "bfloat16"},
      {"linear_attn_config",
       {{"kda_layers", kda},
        {"full_attn_layers", full},
        {"head_dim", 128},
        {"num_heads", 96},
        {"short_conv_kernel_size", 4},
        {"use_full_rank_gate", true},
        {"gate_lower_bound", -5.0}}},
      {"quantization_config",
       {{"quant_method", "compressed-tensors"},
        {"format", "mxfp4-pack-quantized"},
        {"ignore",
         {"language_model.lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
          "re:.*mlp\\.(gate|up|down)_proj.*", "re:.*routed_expert_.*"}},
        {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}}}};
  const json config = {{"architectures", {"KimiK3ForConditionalGeneration"}},
                       {"model_type", "kimi_k3"},
                       {"tie_word_embeddings", false},
                       {"text_config", text}};
  std::ofstream(path) << config.dump(1);
}

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "assay-k3-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(HugeFiles, OpenAndPlan) {
  HeaderSource source;
  PutHugeModel(HugeConfig(HugeMethod::kMxfp4), HugeMethod::kMxfp4, &source);
  const Folder folder;
  json map;
  const size_t each = (source.views().size() + kFiles - 1) / kFiles;
  uint64_t bytes = 0;
  for (size_t file = 0; file < kFiles; ++file) {
    const auto begin = source.views().begin() + static_cast<std::ptrdiff_t>(file * each);
    const auto left = static_cast<size_t>(source.views().end() - begin);
    const std::vector<const TensorView*> views(
        begin, begin + static_cast<std::ptrdiff_t>(std::min(left, each)));
    ASSERT_FALSE(views.empty());
    ASSERT_TRUE(WriteFile(folder.path() / FileName(file), views));
    for (const TensorView* view : views) {
      map[view->name] = FileName(file);
      bytes += view->bytes.size();
    }
  }
  std::ofstream(folder.path() / "model.safetensors.index.json")
      << json{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}}.dump();
  WriteConfig(folder.path() / "config.json");
  const auto start = std::chrono::steady_clock::now();
  const auto checkpoint = Checkpoint::Open(folder.path().string());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  Selection selection;
  selection.headers_only = true;
  Degrees degrees{48};
  degrees.dp = 4;
  for (int64_t layer = 0; layer < 93; ++layer) {
    selection.layer = layer;
    const auto result = PlanModel((*checkpoint)->config(), **checkpoint, degrees, selection);
    ASSERT_TRUE(result.ok()) << result.error().message;
    ASSERT_TRUE(result->plan) << result->refusal->Message();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  fmt::print("{} tensors, {:.1f} GB in {} files: opened and planned in {:.1f} s\n",
             source.views().size(), static_cast<double>(bytes) * 1e-9, kFiles, took.count());
  EXPECT_LE(took.count(), 60);
}

}  // namespace
}  // namespace assay::shard
