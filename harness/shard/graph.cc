#include "harness/shard/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

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

std::vector<Key> KeysOf(const ModelConfig& c) {
  std::vector<Key> keys = {{"hidden_size", c.hidden},
                           {"num_hidden_layers", c.layers},
                           {"num_attention_heads", c.heads},
                           {"vocab_size", c.vocab}};
  if (c.is_mla()) {
    keys.insert(keys.end(), {{"q_lora_rank", c.q_lora, 0},
                             {"kv_lora_rank", c.kv_lora},
                             {"qk_nope_head_dim", c.qk_nope},
                             {"qk_rope_head_dim", c.qk_rope},
                             {"v_head_dim", c.v_dim}});
  } else {
    keys.insert(keys.end(), {{"num_key_value_heads", c.kv_heads}, {"head_dim", c.head_dim}});
  }
  if (c.experts != 0) {
    keys.insert(keys.end(), {{"n_routed_experts", c.experts, 1, kMaxExperts},
                             {"moe_intermediate_size", c.moe_intermediate},
                             {"n_shared_experts", c.shared_experts, 0},
                             {"first_k_dense_replace", c.first_dense, 0},
                             {"moe_layer_freq", c.moe_layer_freq}});
  }
  if (c.experts == 0 || c.first_dense > 0 || c.moe_layer_freq > 1) {
    keys.push_back({"intermediate_size", c.intermediate});
  }
  return keys;
}

// How a container calls the modules of a dense layer with grouped-query attention.
struct LayerNames {
  std::string_view input_norm, q, k, v, q_norm, k_norm, out, post_norm;
  std::string_view mlp, gate, up, down;  // the MLP's are joined by a dot, where it has a name
};
constexpr LayerNames kHuggingFace = {"input_layernorm",
                                     "self_attn.q_proj",
                                     "self_attn.k_proj",
                                     "self_attn.v_proj",
                                     "self_attn.q_norm",
                                     "self_attn.k_norm",
                                     "self_attn.o_proj",
                                     "post_attention_layernorm",
                                     "mlp",
                                     "gate_proj",
                                     "up_proj",
                                     "down_proj"};
constexpr LayerNames kGguf = {"attn_norm",   "attn_q",      "attn_k",   "attn_v", "attn_q_norm",
                              "attn_k_norm", "attn_output", "ffn_norm", "",       "ffn_gate",
                              "ffn_up",      "ffn_down"};

struct ModelNames {
  std::string embed, layers, norm;
};

ModelNames NamesOf(const ModelConfig& config) {
  if (config.container == Container::kGguf) {
    return {"token_embd.weight", "blk.", "output_norm.weight"};
  }
  return {config.prefix + "embed_tokens.weight", config.prefix + "layers.",
          config.prefix + "norm.weight"};
}

struct LayerSpecMaker {
  const ModelConfig& c;
  const Widths& w;
  const LayerNames& names;
  std::string ours;    // "L3."
  std::string theirs;  // "model.layers.3.", "blk.3."
  std::vector<Spec> specs = {};

  void Norm(std::string_view name, std::string_view source, int64_t length) {
    specs.push_back({fmt::format("{}{}.weight", ours, name),
                     fmt::format("{}{}.weight", theirs, source), Storage::kVector, length, 1,
                     Cut::kWhole, "", false, false});
  }
  void Linear(std::string_view name, std::string_view source, int64_t n, int64_t k, Cut cut,
              std::string_view segment = "", bool bias = false) {
    specs.push_back({ours + std::string(name), theirs + std::string(source), Storage::kLinear, n, k,
                     cut, segment.empty() ? "" : ours + std::string(segment), bias, false});
  }

  void Gqa() {
    Linear("attn.q", names.q, w.q, c.hidden, Cut::kQueryHeads, "attn.qkv", c.qkv_bias);
    Linear("attn.k", names.k, w.kv, c.hidden, Cut::kKvHeads, "attn.qkv", c.qkv_bias);
    Linear("attn.v", names.v, w.kv, c.hidden, Cut::kKvHeads, "attn.qkv", c.qkv_bias);
    if (c.qk_norm) {
      Norm("attn.q_norm", names.q_norm, c.head_dim);
      Norm("attn.k_norm", names.k_norm, c.head_dim);
    }
    Linear("attn.out", names.out, c.hidden, w.out, Cut::kHeadColumns, "", c.o_bias);
  }

  // q_a and kv_a are joined into one parameter only where there is a q_a.
  void Mla() {
    if (c.q_lora > 0) {
      Linear("attn.q_a", "self_attn.q_a_proj", c.q_lora, c.hidden, Cut::kWhole, "attn.qkv_a",
             c.qkv_bias);
      Norm("attn.q_a_norm", "self_attn.q_a_layernorm", c.q_lora);
      Linear("attn.q", "self_attn.q_b_proj", w.q, c.q_lora, Cut::kQueryHeads);
    } else {
      Linear("attn.q", "self_attn.q_proj", w.q, c.hidden, Cut::kQueryHeads);
    }
    Linear("attn.kv_a", "self_attn.kv_a_proj_with_mqa", w.kv_a, c.hidden, Cut::kWhole,
           c.q_lora > 0 ? "attn.qkv_a" : "", c.qkv_bias);
    Norm("attn.kv_a_norm", "self_attn.kv_a_layernorm", c.kv_lora);
    Linear("attn.kv_b", "self_attn.kv_b_proj", w.kv_b, c.kv_lora, Cut::kQueryHeads);
    Linear("attn.out", "self_attn.o_proj", c.hidden, w.out, Cut::kHeadColumns, "", c.o_bias);
  }

  // gate, up, down of an MLP of any kind.
  void GatedMlp(std::string_view name, std::string_view source, int64_t width, bool bias) {
    const std::string segment = fmt::format("{}.gate_up", name);
    const std::string start = source.empty() ? "" : fmt::format("{}.", source);
    Linear(fmt::format("{}.gate", name), fmt::format("{}{}", start, names.gate), width, c.hidden,
           Cut::kRows, segment, bias);
    Linear(fmt::format("{}.up", name), fmt::format("{}{}", start, names.up), width, c.hidden,
           Cut::kRows, segment, bias);
    Linear(fmt::format("{}.down", name), fmt::format("{}{}", start, names.down), c.hidden, width,
           Cut::kColumns, "", bias);
  }

  void Moe(const Selection& selection) {
    std::vector<int64_t> selected = selection.experts;
    std::sort(selected.begin(), selected.end());
    specs.push_back({ours + "router.logits.weight", theirs + "mlp.gate.weight", Storage::kDense,
                     c.experts, c.hidden, Cut::kWhole, "", false, false});
    specs.push_back({ours + "router.scores.bias", theirs + "mlp.gate.e_score_correction_bias",
                     Storage::kVector, c.experts, 1, Cut::kWhole, "", false,
                     c.topk_method != "noaux_tc"});
    const int64_t end = selection.routed_experts ? c.experts : 0;
    for (int64_t expert = 0; expert < end; ++expert) {
      if (!selected.empty() && !std::binary_search(selected.begin(), selected.end(), expert)) {
        continue;
      }
      GatedMlp(fmt::format("moe.e{}", expert), fmt::format("mlp.experts.{}", expert),
               c.moe_intermediate, false);
    }
    if (c.shared_experts > 0) GatedMlp("shared", "mlp.shared_experts", w.shared, false);
  }
};

}  // namespace

Result<Widths> CheckWidths(const ModelConfig& c) {
  if (c.family == Family::kUnknown) {
    return Error{fmt::format("the planner does not know the architecture '{}'", c.architecture),
                 ErrorKind::kUnsupported};
  }
  if (c.container == Container::kGguf && (c.is_mla() || c.experts > 0)) {
    return Error{
        fmt::format("the planner does not know how a GGUF file stores '{}'", c.architecture),
        ErrorKind::kUnsupported};
  }
  if (Status keys = CheckKeys(KeysOf(c)); !keys) return keys.error();
  if (!c.is_mla() && c.heads % c.kv_heads != 0) {
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
  std::vector<Product> products = {
      {c.moe_intermediate, c.shared_experts, "the shared experts' width", &w.shared}};
  if (c.is_mla()) {
    w.kv_a = c.kv_lora + c.qk_rope;
    products.push_back({c.heads, c.qk_nope + c.qk_rope, "q_b_proj's extent n", &w.q});
    products.push_back({c.heads, c.qk_nope + c.v_dim, "kv_b_proj's extent n", &w.kv_b});
    products.push_back({c.heads, c.v_dim, "o_proj's extent k", &w.out});
  } else {
    products.push_back({c.heads, c.head_dim, "q_proj's extent n", &w.q});
    products.push_back({c.kv_heads, c.head_dim, "k_proj's extent n", &w.kv});
    products.push_back({c.heads, c.head_dim, "o_proj's extent k", &w.out});
  }
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

Spec EmbedSpec(const ModelConfig& config) {
  return {"embed.weight",
          NamesOf(config).embed,
          Storage::kTable,
          config.vocab,
          config.hidden,
          Cut::kVocab,
          "",
          false,
          false};
}

std::vector<Spec> LayerSpecs(const ModelConfig& config, const Widths& widths, int64_t layer,
                             const Selection& selection) {
  const LayerNames& names = config.container == Container::kGguf ? kGguf : kHuggingFace;
  LayerSpecMaker maker{config, widths, names, fmt::format("L{}.", layer),
                       fmt::format("{}{}.", NamesOf(config).layers, layer)};
  if (selection.attention) {
    maker.Norm("input_norm", names.input_norm, config.hidden);
    config.is_mla() ? maker.Mla() : maker.Gqa();
  }
  if (selection.mlp) {
    maker.Norm("post_norm", names.post_norm, config.hidden);
    if (config.is_moe(layer)) {
      maker.Moe(selection);
    } else {
      maker.GatedMlp("mlp", names.mlp, config.intermediate, config.mlp_bias);
    }
  }
  return std::move(maker.specs);
}

std::vector<Spec> HeadSpecs(const ModelConfig& config) {
  const ModelNames names = NamesOf(config);
  const std::string head = config.tied ? names.embed : config.lm_head;
  constexpr std::string_view kSuffix = ".weight";
  // An output matrix of its own may be quantised as any other linear; the embedding only in blocks.
  const bool linear = !config.tied && head.size() > kSuffix.size() && head.ends_with(kSuffix);
  return {{"final_norm.weight", names.norm, Storage::kVector, config.hidden, 1, Cut::kWhole, "",
           false, false},
          {linear ? "logits" : "logits.weight",
           linear ? head.substr(0, head.size() - kSuffix.size()) : head,
           linear ? Storage::kLinear : Storage::kTable, config.vocab, config.hidden, Cut::kVocab,
           "", false, false}};
}

}  // namespace assay::shard
