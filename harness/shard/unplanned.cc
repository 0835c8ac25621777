#include "harness/shard/unplanned.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "harness/shard/names.h"

namespace assay::shard {
namespace {

struct Verdict {
  std::string_view reason;
  bool unplanned = false;
};

// "attn.wq_a.weight" of "layers.3.attn.wq_a.weight"; the layer, or −1 where it is of none.
std::pair<int64_t, std::string_view> BelowLayer(const ModelConfig& config, std::string_view name) {
  const std::string start = ModelNamesOf(config).layers;
  if (!name.starts_with(start)) return {-1, {}};
  name.remove_prefix(start.size());
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const auto digits = static_cast<size_t>(end - name.data());
  if (error != std::errc() || layer < 0 || digits >= name.size() || name[digits] != '.') {
    return {-1, {}};
  }
  return {layer, name.substr(digits + 1)};
}

// Whether the config implies the bias of a projection.
bool HasBias(const ModelConfig& config, std::string_view rest) {
  const LayerNames& names = LayerNamesOf(config);
  const std::string_view module = rest.substr(0, rest.rfind('.'));
  if (module == names.out) return config.o_bias;
  if (module == names.q || module == names.k || module == names.v || module == names.q_a ||
      module == names.kv_a) {
    return config.qkv_bias;
  }
  return config.mlp_bias || config.expert_bias;
}

Verdict OfLayer(const ModelConfig& config, int64_t layer, std::string_view rest) {
  if (layer >= config.layers) return {"a layer beyond num_hidden_layers, of a draft model"};
  if (config.family == Family::kDeepseekV4 && rest.starts_with("attn.")) {
    return {"DeepSeek-V4's attention is not planned", true};
  }
  const bool m3 = config.family == Family::kMinimaxM3;
  if (m3 && (rest.starts_with("self_attn.index_") || rest.starts_with("indexer."))) {
    return {"the index of MiniMax-M3's sparse attention is not planned", true};
  }
  constexpr std::array<std::string_view, 4> kCache = {".k_scale", ".v_scale", ".kv_cache_scale",
                                                      ".kv_cache_offset"};
  for (const std::string_view suffix : kCache) {
    if (rest.ends_with(suffix)) return {"a scale of the KV cache, no parameter"};
  }
  if (config.quant.method == "gptq" && !HasBias(config, rest) && rest.ends_with("_proj.bias")) {
    return {"zeros, which GPTQ's library writes where a model has no bias"};
  }
  return {};
}

Verdict Of(const ModelConfig& config, std::string_view name) {
  if (name.ends_with("rotary_emb.inv_freq")) return {"computed from the config"};
  if (name.ends_with(".weight_shape")) return {"a statement about a shape, which is checked"};
  const auto [layer, rest] = BelowLayer(config, name);
  if (layer >= 0) return OfLayer(config, layer, rest);
  if (config.container == Container::kGguf) {
    if (name == "rope_freqs.weight") return {"computed from the config"};
    return {};
  }
  if (config.tied && name.ends_with("lm_head.weight")) {
    return {"the embedding's matrix again, as the config says"};
  }
  const bool v4 = config.family == Family::kDeepseekV4;
  if (v4 && name.starts_with(config.prefix + "mtp.")) return {"a layer of a draft model"};
  // Closed: a misspelt name is no neighbour.
  constexpr std::array<std::string_view, 12> kNeighbours = {
      "vision_tower.", "vision_model.", "visual.",          "vision_encoder.",
      "audio_tower.",  "audio.",        "mm_projector.",    "multi_modal_projector.",
      "image_newline", "vit.",          "patch_merge_mlp.", "vision."};
  const bool neighbour =
      std::any_of(kNeighbours.begin(), kNeighbours.end(), [&](std::string_view start) {
        return name.starts_with(start) || name.find("." + std::string(start)) != name.npos;
      });
  const std::string head = config.lm_head.substr(0, config.lm_head.rfind('.') + 1);
  const bool of_head = !head.empty() && name.starts_with(head);
  if (neighbour && !config.prefix.empty() && !name.starts_with(config.prefix) && !of_head) {
    return {"another model beside the decoder"};
  }
  return {};
}

}  // namespace

std::string WhyPassed(const ModelConfig& config, std::string_view name) {
  return std::string(Of(config, name).reason);
}

std::vector<Passed> Unplanned(const ModelConfig& config, const TensorSource& source) {
  std::vector<Passed> passed;
  for (std::string& name : source.Names()) {
    const Verdict verdict = Of(config, name);
    if (verdict.reason.empty()) continue;
    passed.push_back({std::move(name), std::string(verdict.reason), verdict.unplanned});
  }
  return passed;
}

}  // namespace assay::shard
