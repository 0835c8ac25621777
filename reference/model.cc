#include "reference/model.h"

#include <fmt/format.h>

#include <cmath>

#include "reference/sharding.h"

namespace assay::reference {
namespace {

constexpr std::string_view kEmbedding = "embed_tokens.weight";

// A config that did not come from a Checkpoint has no prefix yet: where the embedding lies says it.
void FindPrefix(const TensorSource& source, ModelConfig* config) {
  if (!config->prefix.empty() || config->container == Container::kGguf) return;
  for (const std::string& name : source.Names()) {
    if (name.ends_with(kEmbedding)) {
      config->prefix = name.substr(0, name.size() - kEmbedding.size());
      return;
    }
  }
}

}  // namespace

double SoftmaxScale(const ModelConfig& c) {
  if (!c.is_mla()) return 1 / std::sqrt(static_cast<double>(c.head_dim));
  double scale = 1 / std::sqrt(static_cast<double>(c.qk_nope + c.qk_rope));
  const double all = c.rope.mscale_all_dim.value_or(0);
  if (c.rope.type != "default" && all != 0 && c.rope.factor > 1) {
    const double m = 0.1 * all * std::log(c.rope.factor) + 1;
    scale *= m * m;
  }
  return scale;
}

Result<std::unique_ptr<Model>> Model::Create(const ModelConfig& config,
                                             const TensorSource& source) {
  auto model = std::make_unique<Model>();
  model->config = config;
  FindPrefix(source, &model->config);
  auto graph = BuildGraph(model->config, source);
  if (!graph) return graph.error();
  model->graph = std::move(*graph);
  if (model->graph.runs) {
    auto rope = ops::MakeRopeTable(config.rope, config.is_mla() ? config.qk_rope : config.head_dim,
                                   config.max_position);
    if (!rope) return rope.error();
    model->rope = std::move(*rope);
    model->softmax_scale = SoftmaxScale(config);
  }
  model->weights = std::make_unique<WeightStore>(model->config, model->graph, source);
  if (const Status status = model->weights->Check(); !status) return status.error();
  return model;
}

const Node* Model::FindNode(std::string_view tap) const {
  const auto found = graph.node_index.find(std::string(tap));
  return found == graph.node_index.end() ? nullptr : &graph.nodes[found->second];
}

const NodeFacts& Model::FactsOf(const Node& node) const {
  return graph.facts[graph.node_index.find(node.tap)->second];
}

Result<std::vector<int64_t>> Model::Columns(const Node& node, const Where& where) const {
  if (FindNode(node.tap) == nullptr) {
    return Error{fmt::format("tap \"{}\" is not one of this model", node.tap)};
  }
  const Axis& axis = FactsOf(node).columns;
  // The activation has no parameter; gate's tap is named likewise.
  const bool mlp = axis.cut == Cut::kDense || axis.cut == Cut::kExpert;
  const auto unit =
      weights->SplitUnit(mlp ? node.tap.substr(0, node.tap.rfind('.')) : std::string(), where);
  if (!unit) return unit.error();
  return AxisIndices(axis, *unit, where, node.tap);
}

Status Model::CheckRuns() const {
  if (graph.runs) return Ok();
  return Error{config.architecture + ": the oracle slices its parameters, but does not run it",
               ErrorKind::kUnsupported};
}

}  // namespace assay::reference
