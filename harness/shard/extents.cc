// The config's extents and their products, before anything is sized by them.
#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "harness/shard/graph.h"

namespace assay::shard {
namespace {

// Larger than any real extent, and small enough that sums of a few do not overflow.
constexpr int64_t kMaxExtent = int64_t{1} << 40;
// One layer's specs are in memory at a time.
constexpr int64_t kMaxExperts = 65536;

struct Key {
  std::string_view name;
  int64_t value;
  int64_t least = 1;
  int64_t most = kMaxExtent;
};

Status CheckKeys(const std::vector<Key>& keys) {
  for (const Key& key : keys) {
    if (key.value < key.least || key.value > key.most) {
      return Error{fmt::format("config: {} is {}; allowed is {} to {}", key.name, key.value,
                               key.least, key.most)};
    }
  }
  return Ok();
}

// a·b, or an error that names what it would have been.
Status Multiply(int64_t a, int64_t b, std::string_view what, int64_t* product) {
  if (__builtin_mul_overflow(a, b, product) || *product > kMaxExtent) {
    return Error{fmt::format("config: {} is {} times {}, more than {}", what, a, b, kMaxExtent)};
  }
  return Ok();
}

void AddAttentionKeys(const ModelConfig& c, std::vector<Key>* keys) {
  if (c.family == Family::kDeepseekV4) return;  // its attention is not planned
  keys->push_back({"num_attention_heads", c.heads});
  if (c.is_mla()) {
    keys->insert(keys->end(), {{"q_lora_rank", c.q_lora, 0},
                               {"kv_lora_rank", c.kv_lora},
                               {"qk_nope_head_dim", c.qk_nope},
                               {"qk_rope_head_dim", c.qk_rope},
                               {"v_head_dim", c.v_dim}});
  } else {
    keys->insert(keys->end(), {{"num_key_value_heads", c.kv_heads}, {"head_dim", c.head_dim}});
  }
  if (!c.kda_layers.empty()) {
    keys->insert(keys->end(), {{"linear_attn_config.num_heads", c.kda_heads},
                               {"linear_attn_config.head_dim", c.kda_head_dim},
                               {"linear_attn_config.short_conv_kernel_size", c.kda_conv}});
  }
}

bool AnyDense(const ModelConfig& c) {
  if (c.experts == 0) return true;
  if (c.moe_layers.empty()) return c.first_dense > 0 || c.moe_layer_freq > 1;
  for (const bool moe : c.moe_layers) {
    if (!moe) return true;
  }
  return false;
}

std::vector<Key> KeysOf(const ModelConfig& c) {
  std::vector<Key> keys = {{"hidden_size", c.hidden}, {"num_hidden_layers", c.layers}};
  AddAttentionKeys(c, &keys);
  keys.push_back({"vocab_size", c.vocab});
  if (c.experts != 0) {
    keys.insert(keys.end(), {{"n_routed_experts", c.experts, 1, kMaxExperts},
                             {"moe_intermediate_size", c.moe_intermediate},
                             {"n_shared_experts", c.shared_experts, 0},
                             {"shared_intermediate_size", c.shared_intermediate, 0},
                             {"routed_expert_hidden_size", c.latent, 0},
                             {"first_k_dense_replace", c.first_dense, 0},
                             {"moe_layer_freq", c.moe_layer_freq}});
  }
  if (c.hash_layers > 0) keys.push_back({"num_experts_per_tok", c.top_k});
  if (AnyDense(c)) keys.push_back({"intermediate_size", c.intermediate});
  return keys;
}

// Lists that say something of every layer have an entry for each.
Status CheckLists(const ModelConfig& c) {
  for (const auto& [name, list] :
       {std::pair{"moe_layers", &c.moe_layers}, std::pair{"kda_layers", &c.kda_layers}}) {
    if (!list->empty() && static_cast<int64_t>(list->size()) != c.layers) {
      return Error{
          fmt::format("config: {} has {} entries for {} layers", name, list->size(), c.layers)};
    }
  }
  return Ok();
}

// GGUF's names are known of these.
bool KnownInGguf(const ModelConfig& c) {
  if (c.family == Family::kKimiK3 || c.family == Family::kMinimaxM3) return true;
  return !c.is_mla() && c.experts == 0;
}

}  // namespace

Result<Widths> CheckWidths(const ModelConfig& c) {
  if (c.family == Family::kUnknown) {
    return Error{fmt::format("the planner does not know the architecture '{}'", c.architecture),
                 ErrorKind::kUnsupported};
  }
  if (c.container == Container::kGguf && !KnownInGguf(c)) {
    return Error{
        fmt::format("the planner does not know how a GGUF file stores '{}'", c.architecture),
        ErrorKind::kUnsupported};
  }
  if (Status keys = CheckKeys(KeysOf(c)); !keys) return keys.error();
  if (Status lists = CheckLists(c); !lists) return lists.error();
  const bool v4 = c.family == Family::kDeepseekV4;
  if (!v4 && !c.is_mla() && c.heads % c.kv_heads != 0) {
    return Error{
        fmt::format("config: num_attention_heads is {}, no multiple of "
                    "num_key_value_heads {}",
                    c.heads, c.kv_heads)};
  }
  Widths w;
  struct Product {
    int64_t a, b;
    std::string_view what;
    int64_t* into;
  };
  std::vector<Product> products;
  if (c.shared_intermediate > 0) {
    w.shared = c.shared_experts > 0 ? c.shared_intermediate : 0;
  } else {
    products.push_back(
        {c.moe_intermediate, c.shared_experts, "the shared experts' width", &w.shared});
  }
  if (c.is_mla()) {
    w.kv_a = c.kv_lora + c.qk_rope;
    products.push_back({c.heads, c.qk_nope + c.qk_rope, "q_b_proj's extent n", &w.q});
    products.push_back({c.heads, c.qk_nope + c.v_dim, "kv_b_proj's extent n", &w.kv_b});
    products.push_back({c.heads, c.kv_lora, "k_b's rows", &w.k_b});
    products.push_back({c.heads, c.v_dim, "o_proj's extent k", &w.out});
    products.push_back({c.heads, c.v_dim, "v_b's rows", &w.v_b});
  } else if (!v4) {
    products.push_back({c.heads, c.head_dim, "q_proj's extent n", &w.q});
    products.push_back({c.kv_heads, c.head_dim, "k_proj's extent n", &w.kv});
    products.push_back({c.heads, c.head_dim, "o_proj's extent k", &w.out});
  }
  if (!c.kda_layers.empty()) {
    products.push_back({c.kda_heads, c.kda_head_dim, "KDA's q_proj's extent n", &w.kda});
  }
  if (v4) products.push_back({kStreams, c.hidden, "hc_attn_fn's extent k", &w.streams});
  for (const Product& p : products) {
    if (Status s = Multiply(p.a, p.b, p.what, p.into); !s) return s.error();
  }
  return w;
}

Status CheckSelection(const ModelConfig& config, const Selection& selection) {
  if (selection.layer < -1 || selection.layer >= config.layers) {
    return Error{
        fmt::format("layer {} of a model with layers 0 to {}", selection.layer, config.layers - 1)};
  }
  for (int64_t expert : selection.experts) {
    if (expert < 0 || expert >= config.experts) {
      return Error{fmt::format("expert {} of a model with {} experts", expert, config.experts)};
    }
  }
  return Ok();
}

}  // namespace assay::shard
