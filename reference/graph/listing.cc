#include "reference/graph/listing.h"

#include <algorithm>
#include <utility>

#include "reference/graph/gguf_names.h"

namespace assay::reference {

std::string Listing::Path(const std::string& path) const {
  return layer_ < 0 ? path : "L" + std::to_string(layer_) + "." + path;
}

std::string Listing::Full(std::string_view module) const {
  if (config_.container == Container::kGguf) {
    const std::string name(GgufModule(module));
    return layer_ < 0 ? name : "blk." + std::to_string(layer_) + "." + name;
  }
  std::string full = config_.prefix;
  if (layer_ >= 0) full += "layers." + std::to_string(layer_) + ".";
  return full + std::string(module);
}

// Of "a.b": "a.b" itself, "a.b.weight" and "a.b_scales" count, "a.bc" does not.
bool Listing::FullHas(const std::string& full) const {
  for (const char* end : {".", "_"}) {
    const std::string prefix = full + end;
    const auto found = std::lower_bound(names_.begin(), names_.end(), prefix);
    if (found != names_.end() && found->starts_with(prefix)) return true;
  }
  return std::binary_search(names_.begin(), names_.end(), full);
}

bool Listing::Has(std::string_view module) const { return FullHas(Full(module)); }

std::string Listing::Choose(const std::vector<std::string>& modules) const {
  for (const std::string& module : modules) {
    if (Has(module)) return module;
  }
  return modules.front();
}

Parameter& Listing::Push(Parameter parameter) {
  parameter.layer = layer_;
  graph_.parameter_index.emplace(parameter.name, graph_.parameters.size());
  graph_.parameters.push_back(std::move(parameter));
  return graph_.parameters.back();
}

Parameter& Listing::Matrix(const std::string& path, const std::string& module, Axis rows,
                           Axis columns, bool bias) {
  Parameter parameter;
  parameter.name = Path(path);
  parameter.source = Full(module);
  parameter.rows = rows;
  parameter.columns = columns;
  parameter.has_bias = bias;
  parameter.bias_source = parameter.source + ".bias";
  return Push(std::move(parameter));
}

Parameter& Listing::Vector(const std::string& path, const std::string& module, int64_t width) {
  Parameter& parameter = Matrix(path, module, Whole(width), Whole(1));
  parameter.vector = true;
  // ModelSlim's outlier suppression leaves a shift beside a norm.
  parameter.has_bias = source_.Find(parameter.bias_source) != nullptr;
  return parameter;
}

Parameter& Listing::Exact(const std::string& path, const std::string& name, Axis rows,
                          Axis columns) {
  Parameter& parameter = Matrix(path, name, rows, columns);
  parameter.exact = parameter.source;
  return parameter;
}

void Listing::ExactWhole(const std::string& path, const std::string& name) {
  const TensorView* view = source_.Find(Full(name));
  if (view == nullptr) return;
  int64_t columns = 1;
  for (size_t i = 1; i < view->shape.size(); ++i) columns *= view->shape[i];
  Exact(path, name, Whole(view->shape.empty() ? 1 : view->shape[0]), Whole(columns));
}

void Listing::CorrectionBias(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (source_.Find(Full(name)) == nullptr) continue;
    Parameter parameter;
    parameter.name = Path("router.scores");
    parameter.bias_source = Full(name);
    parameter.rows = Whole(config_.experts);
    parameter.columns = Whole(1);
    parameter.vector = true;
    parameter.has_weight = false;
    parameter.has_bias = true;
    Push(std::move(parameter));
    return;
  }
}

void Listing::Embed(const std::string& module) {
  Matrix("embed", module, {Cut::kVocabulary, config_.vocab, 1}, Whole(config_.hidden));
}

void Listing::Head(const std::string& module) {
  Parameter& head =
      Matrix("logits", module, {Cut::kOutput, config_.vocab, 1}, Whole(config_.hidden));
  constexpr std::string_view kSuffix = ".weight";
  std::string name = config_.lm_head;
  if (config_.tied || name.empty() || config_.container == Container::kGguf) return;
  if (name.ends_with(kSuffix)) name.resize(name.size() - kSuffix.size());
  head.source = name;
}

Listing::MlpNames Listing::NamesOf(const std::string& module) const {
  const MlpNames kNames[] = {{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}};
  const bool short_names = !Has(module + ".gate_proj") && Has(module + ".w1");
  MlpNames names = kNames[short_names ? 1 : 0];
  for (std::string* name : {&names.gate, &names.up, &names.down}) *name = module + "." + *name;
  return names;
}

void Listing::Mlp(const std::string& path, const std::string& module, int64_t intermediate,
                  bool bias) {
  const MlpNames names = NamesOf(module);
  const Axis cut = {Cut::kDense, intermediate, 1, -1, config_.experts};
  const Axis hidden = Whole(config_.hidden);
  Matrix(path + ".gate", names.gate, cut, hidden, bias).mlp = Path(path);
  Matrix(path + ".up", names.up, cut, hidden, bias).mlp = Path(path);
  Matrix(path + ".down", names.down, hidden, cut, bias).mlp = Path(path);
}

Listing::MlpNames Listing::FusedStems(const std::string& module) const {
  if (config_.container == Container::kGguf) {
    return {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
  }
  for (const auto& [both, down] : {std::pair{"gate_up_proj", "down_proj"}, {"w13", "w2"}}) {
    const std::string stem = module + "." + both;
    if (Has(stem)) return {stem, stem, module + "." + down};
  }
  return {};
}

void Listing::Experts(const std::string& module, bool bias) {
  const int64_t width = config_.expert_width();
  const MlpNames stems = FusedStems(module);
  const bool gptoss = config_.family == Family::kGptOss, halves = stems.gate == stems.up;
  for (int64_t e = 0; e < config_.experts; ++e) {
    const std::string path = "moe.e" + std::to_string(e);
    const Axis cut = {Cut::kExpert, config_.moe_intermediate, 1, e, config_.experts};
    const MlpNames names = stems.gate.empty() ? NamesOf(module + "." + std::to_string(e)) : stems;
    const auto add = [&](const char* part, const std::string& name, Axis rows, Axis columns,
                         int half) {
      Parameter& parameter = Matrix(path + part, name, rows, columns, bias);
      parameter.expert = e;
      parameter.mlp = Path(path);
      if (stems.gate.empty()) return;
      parameter.fused = {parameter.source, e, config_.experts, halves ? half : -1, gptoss, gptoss};
    };
    add(".gate", names.gate, cut, Whole(width), 0);
    add(".up", names.up, cut, Whole(width), 1);
    add(".down", names.down, Whole(width), cut, -1);
  }
}

void Listing::GroupedAttention(const std::string& module) {
  const ModelConfig& c = config_;
  const Axis heads = {Cut::kHeads, c.heads * c.head_dim, c.head_dim};
  const Axis kv_heads = {Cut::kKvHeads, c.kv_heads * c.head_dim, c.head_dim};
  const Axis hidden = Whole(c.hidden);
  Matrix("attn.q", module + ".q_proj", heads, hidden, c.qkv_bias);
  Matrix("attn.k", module + ".k_proj", kv_heads, hidden, c.qkv_bias);
  Matrix("attn.v", module + ".v_proj", kv_heads, hidden, c.qkv_bias);
  if (c.qk_norm) {
    Vector("attn.q_norm", module + ".q_norm", c.head_dim);
    Vector("attn.k_norm", module + ".k_norm", c.head_dim);
  }
  if (c.attn_sinks) Exact("attn.sinks", module + ".sinks", {Cut::kHeads, c.heads, 1}, Whole(1));
  Matrix("attn.out", module + ".o_proj", hidden, heads, c.o_bias);
}

Graph Listing::Take() {
  graph_.runs = false;
  return std::move(graph_);
}

}  // namespace assay::reference
