#include "kernels/loaders/inventory.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "kernels/loaders/engine_error.h"

namespace assay::kernels {
namespace {

// What GGUF calls a module of a layer. Families whose files have experts or MLA are not known
// there.
constexpr std::pair<std::string_view, std::string_view> kGgufNames[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.o_proj", "attn_output"}, {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

bool IsGguf(const ModelConfig& config) { return config.container == Container::kGguf; }

std::string LayersPrefix(const ModelConfig& config) {
  return IsGguf(config) ? "blk." : config.prefix + "layers.";
}

std::string_view InFile(const ModelConfig& config, std::string_view module) {
  if (!IsGguf(config)) return module;
  for (const auto& [ours, theirs] : kGgufNames) {
    if (ours == module) return theirs;
  }
  throw EngineError(ASSAY_UNSUPPORTED, fmt::format("{}: no name in a GGUF file", module));
}

class LayerMaker {
 public:
  LayerMaker(const ModelConfig& config, int64_t layer)
      : c_(config),
        layer_(layer),
        ours_(fmt::format("L{}.", layer)),
        theirs_(fmt::format("{}{}.", LayersPrefix(config), layer)) {}

  std::vector<Expected> Make() && {
    block_ = Block::kAttention;
    Norm("input_norm", "input_layernorm", c_.hidden);
    c_.is_mla() ? Mla() : Gqa();
    block_ = Block::kMlp;
    Norm("post_norm", "post_attention_layernorm", c_.hidden);
    if (c_.is_moe(layer_)) {
      Moe();
    } else {
      Gated("mlp", "mlp", c_.intermediate, c_.mlp_bias);
    }
    return std::move(made_);
  }

 private:
  Expected& Put(Expected::Kind kind, std::string_view op, std::string_view source, int64_t n,
                int64_t k) {
    Expected e;
    e.op = ours_ + std::string(op);
    e.source = theirs_ + std::string(source);
    e.kind = kind;
    e.n = n;
    e.k = k;
    e.layer = layer_;
    e.block = block_;
    e.expert = expert_;
    made_.push_back(std::move(e));
    return made_.back();
  }
  void Norm(std::string_view op, std::string_view source, int64_t n) {
    Put(Expected::Kind::kVector, op, std::string(InFile(c_, source)) + ".weight", n, 1);
  }
  void Linear(std::string_view op, std::string_view source, int64_t n, int64_t k,
              bool bias = false) {
    Put(Expected::Kind::kLinear, op, InFile(c_, source), n, k).bias = bias;
  }

  void Gqa() {
    const int64_t q = c_.heads * c_.head_dim;
    const int64_t kv = c_.kv_heads * c_.head_dim;
    Linear("attn.q", "self_attn.q_proj", q, c_.hidden, c_.qkv_bias);
    Linear("attn.k", "self_attn.k_proj", kv, c_.hidden, c_.qkv_bias);
    Linear("attn.v", "self_attn.v_proj", kv, c_.hidden, c_.qkv_bias);
    if (c_.qk_norm) {
      Norm("attn.q_norm", "self_attn.q_norm", c_.head_dim);
      Norm("attn.k_norm", "self_attn.k_norm", c_.head_dim);
    }
    Linear("attn.out", "self_attn.o_proj", c_.hidden, q, c_.o_bias);
  }

  void Mla() {
    const int64_t q = c_.heads * (c_.qk_nope + c_.qk_rope);
    if (c_.q_lora > 0) {
      Linear("attn.q_a", "self_attn.q_a_proj", c_.q_lora, c_.hidden, c_.qkv_bias);
      Norm("attn.q_a_norm", "self_attn.q_a_layernorm", c_.q_lora);
      Linear("attn.q", "self_attn.q_b_proj", q, c_.q_lora);
    } else {
      Linear("attn.q", "self_attn.q_proj", q, c_.hidden);
    }
    Linear("attn.kv_a", "self_attn.kv_a_proj_with_mqa", c_.kv_lora + c_.qk_rope, c_.hidden,
           c_.qkv_bias);
    Norm("attn.kv_a_norm", "self_attn.kv_a_layernorm", c_.kv_lora);
    Linear("attn.kv_b", "self_attn.kv_b_proj", c_.heads * (c_.qk_nope + c_.v_dim), c_.kv_lora);
    Linear("attn.out", "self_attn.o_proj", c_.hidden, c_.heads * c_.v_dim, c_.o_bias);
  }

  void Gated(std::string_view op, std::string_view source, int64_t width, bool bias) {
    Linear(fmt::format("{}.gate", op), fmt::format("{}.gate_proj", source), width, c_.hidden, bias);
    Linear(fmt::format("{}.up", op), fmt::format("{}.up_proj", source), width, c_.hidden, bias);
    Linear(fmt::format("{}.down", op), fmt::format("{}.down_proj", source), c_.hidden, width, bias);
  }

  void Moe() {
    Linear("router.logits", "mlp.gate", c_.experts, c_.hidden);
    Expected& bias = Put(Expected::Kind::kVector, "router.scores",
                         "mlp.gate.e_score_correction_bias", c_.experts, 1);
    bias.part = "bias";
    bias.optional = c_.topk_method != "noaux_tc";
    for (expert_ = 0; expert_ < c_.experts; ++expert_) {
      Gated(fmt::format("moe.e{}", expert_), fmt::format("mlp.experts.{}", expert_),
            c_.moe_intermediate, false);
    }
    expert_ = -1;
    if (c_.shared_experts > 0) {
      Gated("shared", "mlp.shared_experts", c_.moe_intermediate * c_.shared_experts, false);
    }
  }

  const ModelConfig& c_;
  int64_t layer_, expert_ = -1;
  Block block_ = Block::kTop;
  std::string ours_, theirs_;
  std::vector<Expected> made_;
};

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kGgufEmbedding = "token_embd.weight";
constexpr std::string_view kGgufNorm = "output_norm.weight";
constexpr std::string_view kGgufHead = "output.weight";

void FindGguf(const std::set<std::string, std::less<>>& names, ModelConfig* config) {
  config->prefix.clear();
  config->lm_head = config->tied ? kGgufEmbedding : kGgufHead;
  for (const std::string& name : names) {
    if (name.starts_with("blk.") || name == kGgufEmbedding || name == kGgufNorm ||
        name == kGgufHead) {
      return;
    }
  }
  throw EngineError(ASSAY_REFUSED,
                    "none of the tensors is of a decoder: no name is blk.N, token_embd, "
                    "output_norm or output");
}

}  // namespace

void FindPrefix(const std::set<std::string, std::less<>>& names, ModelConfig* config) {
  if (IsGguf(*config)) return FindGguf(names, config);
  std::string prefix, head;
  bool found = false;
  for (const std::string& name : names) {
    if (name.ends_with("lm_head.weight")) head = name;
    for (std::string_view mark : {"layers.", "embed_tokens.weight", "norm.weight"}) {
      const size_t at = name.find(mark);
      if (found || at == std::string::npos) continue;
      // The mark is a whole part of the dotted name, and other towers have other names.
      if (at != 0 && name[at - 1] != '.') continue;
      if (name.find("vision") != std::string::npos) continue;
      prefix = name.substr(0, at);
      found = true;
    }
  }
  if (!found && head.empty()) {
    throw EngineError(ASSAY_REFUSED,
                      "none of the tensors is of a decoder: no name has layers.N, "
                      "embed_tokens, norm or lm_head");
  }
  if (!found) prefix = "model.";
  config->prefix = prefix;
  if (head.empty()) {
    head =
        prefix.starts_with("language_model.") ? "language_model.lm_head.weight" : "lm_head.weight";
  }
  config->lm_head = config->tied ? prefix + "embed_tokens.weight" : head;
}

std::vector<Expected> LayerInventory(const ModelConfig& config, int64_t layer) {
  return LayerMaker(config, layer).Make();
}

std::vector<Expected> TopInventory(const ModelConfig& config) {
  Expected embed;
  embed.op = "embed";
  const bool gguf = IsGguf(config);
  embed.source = gguf ? std::string(kGgufEmbedding) : config.prefix + "embed_tokens.weight";
  embed.kind = Expected::Kind::kTable;
  embed.n = config.vocab;
  embed.k = config.hidden;
  Expected norm;
  norm.op = "final_norm";
  norm.source = gguf ? std::string(kGgufNorm) : config.prefix + "norm.weight";
  norm.kind = Expected::Kind::kVector;
  norm.n = config.hidden;
  Expected logits;
  logits.op = "logits";
  logits.source = config.lm_head.ends_with(kWeight)
                      ? config.lm_head.substr(0, config.lm_head.size() - kWeight.size())
                      : config.lm_head;
  logits.n = config.vocab;
  logits.k = config.hidden;
  return {embed, norm, logits};
}

int64_t LayerOf(const ModelConfig& config, std::string_view name) {
  const std::string start = LayersPrefix(config);
  if (!name.starts_with(start)) return -1;
  const char* first = name.data() + start.size();
  const char* last = name.data() + name.size();
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(first, last, layer);
  return error == std::errc() && end != last && *end == '.' && layer >= 0 ? layer : -1;
}

bool MayBeIgnored(const ModelConfig& config, std::string_view name) {
  if (IsGguf(config)) return false;
  if (name.ends_with("rotary_emb.inv_freq")) return true;
  if (config.tied && name.ends_with("lm_head.weight")) return true;
  if (LayerOf(config, name) >= config.layers) return true;
  return !config.prefix.empty() && !name.starts_with(config.prefix) && name != config.lm_head;
}

}  // namespace assay::kernels
