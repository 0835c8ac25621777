#include "harness/shard/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "harness/shard/methods/parts.h"
#include "harness/shard/names.h"

namespace assay::shard {
namespace {

struct LayerSpecMaker {
  const ModelConfig& c;
  const Widths& w;
  const LayerNames& names;
  std::string ours;    // "L3."
  std::string theirs;  // "model.layers.3.", "blk.3."
  std::vector<Spec> specs = {};

  // The new spec, for what few of them have.
  Spec& Push(std::string_view name, std::string_view source, Storage storage, int64_t n, int64_t k,
             Cut cut) {
    Spec spec;
    spec.name = ours + std::string(name);
    spec.source = theirs + std::string(source);
    spec.storage = storage;
    spec.n = n;
    spec.k = k;
    spec.cut = cut;
    specs.push_back(std::move(spec));
    return specs.back();
  }
  Spec& Linear(std::string_view name, std::string_view source, int64_t n, int64_t k, Cut cut,
               std::string_view segment = "", bool bias = false) {
    Spec& spec = Push(name, source, Storage::kLinear, n, k, cut);
    if (!segment.empty()) spec.segment = ours + std::string(segment);
    spec.bias = bias;
    return spec;
  }
  // A tensor without a module: `source` is its whole name.
  Spec& Tensor(std::string_view name, std::string_view source, int64_t n, int64_t k, Cut cut) {
    return Push(fmt::format("{}.weight", name), source, k == 1 ? Storage::kVector : Storage::kDense,
                n, k, cut);
  }
  void Norm(std::string_view name, std::string_view source, int64_t length) {
    Tensor(name, fmt::format("{}.weight", source), length, 1, Cut::kWhole).shift = true;
  }

  void Gqa() {
    Linear("attn.q", names.q, w.q, c.hidden, Cut::kQueryHeads, "attn.qkv", c.qkv_bias);
    Linear("attn.k", names.k, w.kv, c.hidden, Cut::kKvHeads, "attn.qkv", c.qkv_bias);
    Linear("attn.v", names.v, w.kv, c.hidden, Cut::kKvHeads, "attn.qkv", c.qkv_bias);
    if (c.qk_norm) {
      Norm("attn.q_norm", names.q_norm, c.head_dim);
      Norm("attn.k_norm", names.k_norm, c.head_dim);
    }
    if (c.attn_sinks) Tensor("attn.sinks", names.sinks, c.heads, 1, Cut::kQueryHeads);
    Linear("attn.out", names.out, c.hidden, w.out, Cut::kHeadColumns, "", c.o_bias);
  }

  // kv_b in two halves, the keys' transposed: whole on every rank (formats.md §7).
  void SplitKvB() {
    Push("attn.k_b.weight", fmt::format("{}.weight", names.k_b), Storage::kTable, w.k_b, c.qk_nope,
         Cut::kWhole)
        .lead = c.heads;
    Push("attn.v_b.weight", fmt::format("{}.weight", names.v_b), Storage::kTable, w.v_b, c.kv_lora,
         Cut::kWhole)
        .lead = c.heads;
  }

  // q_a and kv_a are joined into one parameter only where there is a q_a.
  void Mla(const TensorSource& source) {
    if (c.q_lora > 0) {
      Linear("attn.q_a", names.q_a, c.q_lora, c.hidden, Cut::kWhole, "attn.qkv_a", c.qkv_bias);
      Norm("attn.q_a_norm", names.q_a_norm, c.q_lora);
      Linear("attn.q", names.q_b, w.q, c.q_lora, Cut::kQueryHeads);
    } else {
      Linear("attn.q", names.q, w.q, c.hidden, Cut::kQueryHeads);
    }
    Linear("attn.kv_a", names.kv_a, w.kv_a, c.hidden, Cut::kWhole, c.q_lora > 0 ? "attn.qkv_a" : "",
           c.qkv_bias);
    Norm("attn.kv_a_norm", names.kv_a_norm, c.kv_lora);
    const bool split = !names.k_b.empty() &&
                       source.Find(fmt::format("{}{}.weight", theirs, names.kv_b)) == nullptr;
    if (split) {
      SplitKvB();
    } else {
      Linear("attn.kv_b", names.kv_b, w.kv_b, c.kv_lora, Cut::kQueryHeads);
    }
    if (c.mla_gate) Linear("attn.gate", names.gate, w.out, c.hidden, Cut::kQueryHeads);
    Linear("attn.out", names.out, c.hidden, w.out, Cut::kHeadColumns, "", c.o_bias);
  }

  void Kda() {
    const Cut heads = Cut::kKdaHeads;
    const auto channels = [&](std::string_view name, std::string_view module,
                              std::string_view convolution) {
      Linear(fmt::format("attn.{}", name), module, w.kda, c.hidden, heads);
      Tensor(fmt::format("attn.{}_conv", name), convolution, w.kda, c.kda_conv, heads).storage =
          Storage::kDense;
    };
    channels("q", names.q, names.q_conv);
    channels("k", names.k, names.k_conv);
    channels("v", names.v, names.v_conv);
    Linear("attn.f_a", names.f_a, c.kda_head_dim, c.hidden, Cut::kWhole);
    Linear("attn.f_b", names.f_b, w.kda, c.kda_head_dim, heads);
    Tensor("attn.dt_bias", names.dt_bias, w.kda, 1, heads);
    Spec& a_log = Tensor("attn.a_log", names.a_log, c.kda_heads, 1, heads);
    a_log.storage = Storage::kDense;
    a_log.longer = true;
    Linear("attn.b", names.beta, c.kda_heads, c.hidden, heads);
    if (c.kda_full_gate) {
      Linear("attn.g", names.g, w.kda, c.hidden, heads);
    } else {
      Linear("attn.g_a", names.g_a, c.kda_head_dim, c.hidden, Cut::kWhole);
      Linear("attn.g_b", names.g_b, w.kda, c.kda_head_dim, heads);
    }
    Norm("attn.o_norm", names.o_norm, c.kda_head_dim);
    Linear("attn.out", names.out, c.hidden, w.kda, Cut::kKdaColumns);
  }

  struct Mlp {
    std::string_view name, gate, up, down;
    int64_t width = 0, hidden = 0;
    Cut rows = Cut::kSharedRows, columns = Cut::kSharedColumns;
    bool bias = false;
  };

  // gate, up, down of an MLP of any kind.
  void GatedMlp(const Mlp& m) {
    const std::string segment = fmt::format("{}.gate_up", m.name);
    Linear(fmt::format("{}.gate", m.name), m.gate, m.width, m.hidden, m.rows, segment, m.bias)
        .member = Member::kGate;
    Linear(fmt::format("{}.up", m.name), m.up, m.width, m.hidden, m.rows, segment, m.bias).member =
        Member::kUp;
    Linear(fmt::format("{}.down", m.name), m.down, m.hidden, m.width, m.columns, "", m.bias)
        .member = Member::kDown;
  }

  void Expert(int64_t expert, Fusion fusion) {
    const std::string at = fmt::format("{}.{}.", names.experts, expert);
    const std::string gate = at + std::string(names.expert_gate),
                      up = at + std::string(names.expert_up),
                      down = at + std::string(names.expert_down);
    const size_t before = specs.size();
    const std::string name = fmt::format("moe.e{}", expert);
    GatedMlp({name, gate, up, down, c.moe_intermediate, c.expert_width(), Cut::kExpertRows,
              Cut::kExpertColumns, c.expert_bias});
    const std::string_view fused[] = {names.expert_gate, names.expert_up, names.expert_down};
    for (size_t i = before; i < specs.size(); ++i) {
      Spec& spec = specs[i];
      spec.expert = expert;
      if (fusion == Fusion::kNone) continue;
      spec.described = std::move(spec.source);
      spec.source =
          theirs + std::string(fusion == Fusion::kGguf ? fused[i - before] : names.experts);
      spec.fusion = fusion;
      spec.experts = c.experts;
    }
  }

  void Router(int64_t layer) {
    if (c.router_bias) {
      Linear("router.logits", names.router, c.experts, c.hidden, Cut::kWhole, "", true);
    } else {
      // No linear: DeepSeek-V4 calls the scores' correction the router's bias.
      Tensor("router.logits", fmt::format("{}.weight", names.router), c.experts, c.hidden,
             Cut::kWhole);
    }
    if (layer < c.hash_layers) {
      Push("router.table.weight", names.table, Storage::kIds, c.vocab, c.top_k, Cut::kWhole);
      return;
    }
    Push("router.scores.bias", names.correction, Storage::kVector, c.experts, 1, Cut::kWhole)
        .optional = c.topk_method != "noaux_tc";
  }

  void Moe(int64_t layer, const Selection& selection, const TensorSource& source) {
    std::vector<int64_t> selected = selection.experts;
    std::sort(selected.begin(), selected.end());
    Router(layer);
    if (c.latent > 0) {
      Linear("moe.latent_down", names.latent_down, c.latent, c.hidden, Cut::kWhole);
    }
    const int64_t end = selection.routed_experts ? c.experts : 0;
    const Fusion fusion = FusionOf(c, source, theirs + std::string(names.experts));
    for (int64_t expert = 0; expert < end; ++expert) {
      if (!selected.empty() && !std::binary_search(selected.begin(), selected.end(), expert)) {
        continue;
      }
      Expert(expert, fusion);
    }
    if (c.latent > 0) {
      if (c.latent_norm) Norm("moe.latent_norm", names.latent_norm, c.latent);
      Linear("moe.latent_up", names.latent_up, c.hidden, c.latent, Cut::kWhole);
    }
    if (w.shared > 0) {
      GatedMlp(
          {"shared", names.shared_gate, names.shared_up, names.shared_down, w.shared, c.hidden});
    }
  }

  // An attention residual's norm and projection, or in GGUF their product.
  void Residual(std::string_view name, std::string_view source) {
    if (c.attn_res_block == 0) return;
    if (c.container == Container::kGguf) {
      Tensor(fmt::format("{}.score", name), source, c.hidden, 1, Cut::kWhole);
      return;
    }
    Norm(fmt::format("{}.norm", name), fmt::format("{}_norm", source), c.hidden);
    Tensor(fmt::format("{}.proj", name), fmt::format("{}_proj.weight", source), 1, c.hidden,
           Cut::kWhole);
  }

  // DeepSeek-V4's mixing of its residual streams: before each block, and `head` after the layers.
  void HyperConnection(std::string_view name, std::string_view source, bool head) {
    const int64_t rows = head ? kStreams : kStreams * (2 + kStreams);
    Tensor(fmt::format("{}.fn", name), fmt::format("{}_fn", source), rows, w.streams, Cut::kWhole);
    Tensor(fmt::format("{}.base", name), fmt::format("{}_base", source), rows, 1, Cut::kWhole);
    Tensor(fmt::format("{}.scale", name), fmt::format("{}_scale", source), head ? 1 : 3, 1,
           Cut::kWhole);
  }
};

}  // namespace

Spec EmbedSpec(const ModelConfig& config) {
  Spec spec;
  spec.name = "embed.weight";
  spec.source = ModelNamesOf(config).embed;
  spec.storage = Storage::kTable;
  spec.n = config.vocab;
  spec.k = config.hidden;
  spec.cut = Cut::kVocab;
  return spec;
}

std::vector<Spec> LayerSpecs(const ModelConfig& config, const Widths& widths, int64_t layer,
                             const Selection& selection, const TensorSource& source) {
  const LayerNames& names = LayerNamesOf(config);
  LayerSpecMaker maker{config, widths, names, fmt::format("L{}.", layer),
                       fmt::format("{}{}.", ModelNamesOf(config).layers, layer)};
  const bool v4 = config.family == Family::kDeepseekV4;
  if (selection.attention) {
    maker.Residual("attn_res", names.attn_res);
    if (v4) maker.HyperConnection("attn_hc", "hc_attn", false);
    maker.Norm("input_norm", names.input_norm, config.hidden);
    if (config.is_kda(layer)) {
      maker.Kda();
    } else if (config.is_mla()) {
      maker.Mla(source);
    } else if (!v4) {
      maker.Gqa();
    }
  }
  if (selection.mlp) {
    maker.Residual("mlp_res", names.mlp_res);
    if (v4) maker.HyperConnection("ffn_hc", "hc_ffn", false);
    maker.Norm("post_norm", names.post_norm, config.hidden);
    if (config.is_moe(layer)) {
      maker.Moe(layer, selection, source);
    } else {
      maker.GatedMlp({"mlp", names.mlp_gate, names.mlp_up, names.mlp_down, config.intermediate,
                      config.hidden, Cut::kSharedRows, Cut::kSharedColumns, config.mlp_bias});
    }
  }
  return std::move(maker.specs);
}

std::vector<Spec> HeadSpecs(const ModelConfig& config) {
  const ModelNames names = ModelNamesOf(config);
  Widths widths;
  widths.streams = kStreams * config.hidden;
  LayerSpecMaker maker{config, widths, LayerNamesOf(config), "", ""};
  maker.Residual("output_res", names.output_res);
  if (config.family == Family::kDeepseekV4) {
    maker.HyperConnection("hc_head", config.prefix + "hc_head", true);
  }
  constexpr std::string_view kSuffix = ".weight";
  std::string norm = names.norm;
  norm.resize(norm.size() - kSuffix.size());
  maker.Norm("final_norm", norm, config.hidden);
  const std::string head = config.tied ? names.embed : config.lm_head;
  // An output matrix of its own may be quantised as any other linear; the embedding only in blocks.
  if (!config.tied && head.size() > kSuffix.size() && head.ends_with(kSuffix)) {
    maker.Linear("logits", head.substr(0, head.size() - kSuffix.size()), config.vocab,
                 config.hidden, Cut::kVocab);
  } else {
    maker.Push("logits.weight", head, Storage::kTable, config.vocab, config.hidden, Cut::kVocab);
  }
  return std::move(maker.specs);
}

}  // namespace assay::shard
