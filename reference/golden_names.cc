#include "reference/golden_names.h"

#include <fmt/format.h>

#include <charconv>

namespace assay::reference {
namespace {

struct NameRow {
  std::string_view golden;
  std::string_view tap;
};
constexpr NameRow kNames[] = {
    {"attn_norm", "input_norm"},
    {"mlp_norm", "post_norm"},
    {"output", "residual_mlp"},
    {"attn_out", "attn.out"},
    {"router_logits", "router.logits"},
    {"topk_ids", "router.ids"},
    {"topk_weights", "router.weights"},
    {"routed_out", "moe.out"},
    {"shared_out", "shared.out"},
    {"mlp_out", "mlp.out"},
    {"self_attn.q_proj", "attn.q"},
    {"self_attn.q_b_proj", "attn.q"},
    {"self_attn.k_proj", "attn.k"},
    {"self_attn.v_proj", "attn.v"},
    {"self_attn.q_norm", "attn.q_norm"},
    {"self_attn.k_norm", "attn.k_norm"},
    {"self_attn.q_a_proj", "attn.q_a"},
    {"self_attn.q_a_layernorm", "attn.q_a_norm"},
    {"self_attn.kv_a_proj_with_mqa", "attn.kv_a"},
    {"self_attn.kv_a_layernorm", "attn.kv_a_norm"},
    {"self_attn.kv_b_proj", "attn.kv_b"},
    {"self_attn.o_proj.input", "attn.ctx"},
};

}  // namespace

std::optional<std::string> TapOfGoldenName(std::string_view name, int64_t layers) {
  if (name == "embed" || name == "final_norm") return std::string(name);
  constexpr std::string_view kPrefix = "layers.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.' || layer < 0 ||
      layer >= layers) {
    return std::nullopt;
  }
  name.remove_prefix(static_cast<size_t>(end - name.data()) + 1);
  if (name == "input") return layer == 0 ? "embed" : fmt::format("L{}.residual_mlp", layer - 1);
  for (const NameRow& row : kNames) {
    if (row.golden == name) return fmt::format("L{}.{}", layer, row.tap);
  }
  return std::nullopt;
}

std::vector<std::string> MainGoldenNames(int64_t layers, const std::vector<bool>& is_moe) {
  std::vector<std::string> names = {"final_norm"};
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (const char* path : {"input", "attn_out", "mlp_out"}) {
      names.push_back(fmt::format("layers.{}.{}", layer, path));
    }
    if (!is_moe[static_cast<size_t>(layer)]) continue;
    for (const char* path : {"router_logits", "topk_ids", "topk_weights"}) {
      names.push_back(fmt::format("layers.{}.{}", layer, path));
    }
  }
  return names;
}

}  // namespace assay::reference
