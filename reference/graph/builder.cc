#include "reference/graph/builder.h"

#include <string_view>
#include <utility>

#include "reference/graph/gguf_names.h"

namespace assay::reference {
namespace {

// "moe.e5.down" -> "moe.down": contracts are looked up without layer and expert.
std::string WithoutExpert(const std::string& path, int64_t expert) {
  if (expert < 0) return path;
  const std::string part = ".e" + std::to_string(expert) + ".";
  std::string out = path;
  const size_t at = out.find(part);
  if (at != std::string::npos) out.replace(at, part.size(), ".");
  return out;
}

Domain DomainOf(Cut cut) {
  switch (cut) {
    case Cut::kWhole:
      return Domain::kNone;
    case Cut::kHeads:
    case Cut::kKvHeads:
      return Domain::kAttention;
    case Cut::kDense:
    case Cut::kExpert:
    case Cut::kVocabulary:
    case Cut::kOutput:
      break;
  }
  return Domain::kTensor;
}

}  // namespace

std::string Builder::Tap(const std::string& path) const {
  return layer_ < 0 ? path : "L" + std::to_string(layer_) + "." + path;
}

std::string Builder::Source(const std::string& module) const {
  if (config_.container == Container::kGguf) {
    const std::string name(GgufModule(module));
    return layer_ < 0 ? name : "blk." + std::to_string(layer_) + "." + name;
  }
  return layer_ < 0 ? config_.prefix + module
                    : config_.prefix + "layers." + std::to_string(layer_) + "." + module;
}

std::string Builder::Push(Node node, NodeFacts facts) {
  node.layer = layer_;
  graph_.node_index.emplace(node.tap, graph_.nodes.size());
  graph_.nodes.push_back(std::move(node));
  graph_.facts.push_back(std::move(facts));
  return graph_.nodes.back().tap;
}

int64_t Builder::Push(Parameter parameter) {
  parameter.layer = layer_;
  const auto index = graph_.parameters.size();
  graph_.parameter_index.emplace(parameter.name, index);
  graph_.parameters.push_back(std::move(parameter));
  return static_cast<int64_t>(index);
}

std::string Builder::Embed() {
  Parameter parameter;
  parameter.name = "embed";
  parameter.source = Source("embed_tokens");
  parameter.rows = {Cut::kVocabulary, config_.vocab, 1};
  parameter.columns = {Cut::kWhole, config_.hidden, 1};
  NodeFacts facts;
  facts.parameter = Push(std::move(parameter));
  facts.columns = {Cut::kWhole, config_.hidden, 1};
  Node node;
  node.tap = node.path = node.op_class = node.weight = "embed";
  node.op = Op::kEmbed;
  node.inputs = {"tokens"};
  return Push(std::move(node), std::move(facts));
}

std::string Builder::Norm(const std::string& path, const std::string& input,
                          const std::string& module, int64_t width, double eps) {
  Parameter parameter;
  parameter.name = Tap(path);
  parameter.source = Source(module);
  parameter.rows = {Cut::kWhole, width, 1};
  parameter.columns = {Cut::kWhole, 1, 1};
  parameter.vector = true;
  NodeFacts facts;
  facts.parameter = Push(std::move(parameter));
  facts.columns = {Cut::kWhole, width, 1};
  facts.eps = eps;
  Node node;
  node.tap = node.weight = Tap(path);
  node.path = path;
  node.op_class = "norm";
  node.op = Op::kRmsNorm;
  node.inputs = {input};
  return Push(std::move(node), std::move(facts));
}

std::string Builder::HeadNorm(const std::string& path, const std::string& input,
                              const std::string& module, Axis columns, int64_t head_dim) {
  const std::string tap = Norm(path, input, module, head_dim, config_.rms_norm_eps);
  LastFacts().columns = columns;
  LastNode().op = Op::kHeadNorm;
  LastNode().spread = Spread::kColumns;
  LastNode().domain = Domain::kAttention;
  return tap;
}

std::string Builder::Linear(const std::string& path, std::vector<std::string> inputs,
                            const std::string& module, Axis rows, int64_t k, bool bias,
                            int64_t expert) {
  Parameter parameter;
  parameter.name = Tap(path);
  parameter.source = Source(module);
  parameter.rows = rows;
  parameter.columns = {Cut::kWhole, k, 1};
  parameter.has_bias = bias;
  parameter.bias_source = parameter.source + ".bias";
  parameter.expert = expert;
  NodeFacts facts;
  facts.parameter = Push(std::move(parameter));
  facts.columns = rows;
  Node node;
  node.tap = node.weight = Tap(path);
  node.path = WithoutExpert(path, expert);
  node.op_class = "linear";
  node.op = Op::kLinear;
  node.expert = expert;
  node.inputs = std::move(inputs);
  node.domain = DomainOf(rows.cut);
  node.spread = rows.cut == Cut::kWhole ? Spread::kReplicated : Spread::kColumns;
  return Push(std::move(node), std::move(facts));
}

std::string Builder::Partial(const std::string& path, const std::string& input,
                             const std::string& module, int64_t n, Axis columns, bool bias,
                             const std::string& weight, int64_t expert) {
  Parameter parameter;
  parameter.name = Tap(weight.empty() ? path : weight);
  parameter.source = Source(module);
  parameter.rows = {Cut::kWhole, n, 1};
  parameter.columns = columns;
  parameter.has_bias = bias;
  parameter.bias_source = parameter.source + ".bias";
  parameter.expert = expert;
  Node node;
  node.tap = Tap(path);
  node.weight = parameter.name;
  node.path = WithoutExpert(path, expert);
  // moe.down is looked up by its path first: engines round it per expert.
  node.op_class = "partial";
  node.op = Op::kLinear;
  node.expert = expert;
  node.inputs = {input};
  node.spread = Spread::kPartial;
  node.domain = DomainOf(columns.cut);
  node.cuts_contraction = true;
  NodeFacts facts;
  facts.parameter = Push(std::move(parameter));
  facts.columns = {Cut::kWhole, n, 1};
  return Push(std::move(node), std::move(facts));
}

std::string Builder::Plain(const std::string& path, const std::string& op_class, Op op,
                           std::vector<std::string> inputs, Axis columns, int64_t expert) {
  Node node;
  node.tap = Tap(path);
  node.path = WithoutExpert(path, expert);
  node.op_class = op_class;
  node.op = op;
  node.expert = expert;
  node.inputs = std::move(inputs);
  node.domain = DomainOf(columns.cut);
  node.spread = columns.cut == Cut::kWhole ? Spread::kReplicated : Spread::kColumns;
  NodeFacts facts;
  facts.columns = columns;
  return Push(std::move(node), std::move(facts));
}

std::string Builder::Reduce(const std::string& path, const std::string& partial) {
  const Domain domain = LastNode().domain;
  const std::string tap =
      Plain(path, "reduce", Op::kReduce, {partial}, {Cut::kWhole, config_.hidden, 1});
  LastNode().domain = domain;
  return tap;
}

std::string Builder::Add(const std::string& path, const std::string& a, const std::string& b) {
  return Plain(path, "residual", Op::kAdd, {a, b}, {Cut::kWhole, config_.hidden, 1});
}

std::string Builder::Mlp(const std::string& path, const std::string& module,
                         const std::vector<std::string>& inputs, int64_t intermediate, bool bias,
                         int64_t expert) {
  const Axis cut = {expert < 0 ? Cut::kDense : Cut::kExpert, intermediate, 1, expert,
                    config_.experts};
  const std::string gate =
      Linear(path + ".gate", inputs, module + ".gate_proj", cut, config_.hidden, bias, expert);
  LastParameter().mlp = Tap(path);
  const std::string up =
      Linear(path + ".up", inputs, module + ".up_proj", cut, config_.hidden, bias, expert);
  LastParameter().mlp = Tap(path);
  const std::string act = Plain(path + ".act", "act", Op::kActivation, {gate, up}, cut, expert);
  if (config_.hidden_act == "situ") LastNode().tanhs = config_.situ_linear_beta ? 2 : 1;
  const std::string down =
      Partial(path + ".down", act, module + ".down_proj", config_.hidden, cut, bias, "", expert);
  LastParameter().mlp = Tap(path);
  return down;
}

std::string Builder::DenseMlp(const std::string& residual) {
  const std::string norm =
      Norm("post_norm", residual, "post_attention_layernorm", config_.hidden, config_.rms_norm_eps);
  const std::string down = Mlp("mlp", "mlp", {norm}, config_.intermediate, config_.mlp_bias);
  const std::string out = Reduce("mlp.out", down);
  return Add("residual_mlp", residual, out);
}

void Builder::BiasOnly(const std::string& name, const std::string& source, int64_t width) {
  Parameter parameter;
  parameter.name = Tap(name);
  parameter.bias_source = Source(source);
  parameter.rows = {Cut::kWhole, width, 1};
  parameter.columns = {Cut::kWhole, 1, 1};
  parameter.vector = true;
  parameter.has_weight = false;
  parameter.has_bias = true;
  LastNode().weight = parameter.name;
  LastFacts().parameter = Push(std::move(parameter));
}

void Builder::Head(const std::string& residual) {
  Layer(-1);
  const std::string norm =
      Norm("final_norm", residual, "norm", config_.hidden, config_.rms_norm_eps);
  Linear("logits", {norm}, "", {Cut::kOutput, config_.vocab, 1}, config_.hidden, false);
  // The output matrix has a name of its own, outside the decoder's prefix; tied, it is the
  // embedding's.
  std::string name = Source(config_.tied ? "embed_tokens" : "lm_head");
  if (config_.container == Container::kSafetensors && !config_.tied) {
    const std::string suffix = ".weight";
    name = config_.lm_head.empty() ? "lm_head" : config_.lm_head;
    if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  }
  LastParameter().source = name;
  LastNode().op_class = "logits";
}

}  // namespace assay::reference
