// CellSpec -> what the child process asks of the engine.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <thread>

#include "harness/run/cell.h"
#include "harness/run/resolve_steps.h"

namespace assay::run {
namespace {

using reference::Node;

abi::HostTensor Hand(const std::string& name, int rank, const TapValue& value) {
  abi::HostTensor tensor;
  tensor.name = name;
  tensor.rank = rank;
  tensor.dtype = value.dtype;
  tensor.shape = value.shape;
  tensor.data = value.bytes.data();
  tensor.bytes = value.bytes.size();
  return tensor;
}

abi::HostTensor Hand(const TensorView& view) {
  abi::HostTensor tensor;
  tensor.name = view.name;
  tensor.dtype = view.dtype;
  tensor.shape = view.shape;
  tensor.data = view.bytes.data();
  tensor.bytes = view.bytes.size();
  return tensor;
}

void AddTensors(const CellSpec& spec, const std::vector<shard::Component>& components,
                abi::Script* script) {
  std::set<std::string> added;
  const auto add = [&](const std::string& name) {
    const TensorView* view = spec.weights->Find(name);
    if (view != nullptr && added.insert(name).second) script->tensors.push_back(Hand(*view));
  };
  constexpr std::string_view kPacked = "weight_packed";
  for (const shard::Component& component : components) {
    add(component.source);
    if (component.source.ends_with(kPacked)) {
      add(component.source.substr(0, component.source.size() - kPacked.size()) + "weight_shape");
    }
  }
}

// The op's output, with the type that the contract promises; its memory is made in the child.
Result<abi::HostTensor> OutputOf(const CellSpec& spec, const Node& node, int rank) {
  const DType dtype = node.op == reference::Op::kRouterIds
                          ? DType::kI32
                          : spec.facts.contract->RoundingOf(node.path, node.op_class);
  auto columns = spec.oracle->TapColumns(node, spec.where(rank));
  if (!columns) return columns.error();
  abi::HostTensor output;
  output.name = node.tap;
  output.rank = rank;
  output.dtype = dtype == DType::kF64 ? DType::kF32 : dtype;
  const auto rows = static_cast<int64_t>(spec.steps[0].tokens.size());
  output.shape = {rows, static_cast<int64_t>(columns->size())};
  output.bytes = static_cast<uint64_t>(rows) * columns->size() *
                 static_cast<uint64_t>(SizeOf(output.dtype).count());
  return output;
}

const TapValue* Given(const CellSpec& spec, const std::string& tap, int rank, int step,
                      int* found_rank) {
  for (const int candidate : {rank, -1}) {
    const auto found = spec.given.find({step, tap, candidate});
    if (found != spec.given.end()) {
      *found_rank = candidate;
      return &found->second;
    }
  }
  return nullptr;
}

// Rows of an expert's op: the tokens that the given ids send to it, or as many as its given input
// has; 0: nothing is given for it.
int64_t RowsOf(const CellSpec& spec, const Node& node) {
  if (node.expert < 0) return static_cast<int64_t>(spec.steps[0].tokens.size());
  const std::string ids = fmt::format("L{}.router.ids", node.layer);
  int given_rank = -1;
  if (std::find(node.inputs.begin(), node.inputs.end(), ids) != node.inputs.end()) {
    const TapValue* value = Given(spec, ids, -1, 0, &given_rank);
    return value == nullptr ? 0 : TokensOf(*value, node.expert);
  }
  const TapValue* input = Given(spec, node.inputs.at(0), 0, 0, &given_rank);
  return input == nullptr ? 0 : input->shape.at(0);
}

Status AddOps(const CellSpec& spec, abi::Script* script) {
  for (const Node* node : spec.nodes) {
    const int64_t rows = RowsOf(spec, *node);
    if (rows == 0) continue;
    for (int rank = 0; rank < spec.degrees.tp; ++rank) {
      abi::OpCall call;
      call.rank = rank;
      call.tap = node->tap;
      for (const std::string& tap : node->inputs) {
        int given_rank = -1;
        const TapValue* value = Given(spec, tap, rank, 0, &given_rank);
        if (value != nullptr) call.inputs.push_back(Hand(tap, given_rank, *value));
      }
      auto output = OutputOf(spec, *node, rank);
      if (!output) return output.error();
      const int64_t row_bytes = static_cast<int64_t>(output->bytes) / output->shape[0];
      output->shape[0] = rows;
      output->bytes = static_cast<uint64_t>(rows * row_bytes);
      call.output = std::move(*output);
      script->ops.push_back(std::move(call));
    }
  }
  return Ok();
}

void AddRuns(const CellSpec& spec, abi::Script* script) {
  for (int step = 0; step < static_cast<int>(spec.steps.size()); ++step) {
    abi::RunCall call;
    call.scope = spec.scope;
    call.layer = spec.layer;
    call.tokens = spec.steps[static_cast<size_t>(step)].tokens;
    call.first_position = spec.steps[static_cast<size_t>(step)].first_position;
    for (const auto& [key, value] : spec.given) {
      if (key.step == step) call.inputs.push_back(Hand(key.tap, key.rank, value));
    }
    script->runs.push_back(std::move(call));
  }
}

// One output a rank: its chunk of the flat sum, the last ones shorter or empty.
std::vector<abi::HostTensor> ChunksOf(const abi::HostTensor& whole, int64_t ranks) {
  int64_t count = 1;
  for (const int64_t extent : whole.shape) count *= extent;
  const int64_t length = (count + ranks - 1) / ranks;
  std::vector<abi::HostTensor> chunks;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    abi::HostTensor chunk = whole;
    const int64_t begin = std::min(rank * length, count);
    chunk.rank = static_cast<int>(rank);
    chunk.shape = {std::min(begin + length, count) - begin};
    chunk.bytes = static_cast<uint64_t>(chunk.shape[0] * SizeOf(chunk.dtype).count());
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

Status AddReduces(const CellSpec& spec, abi::Script* script) {
  const std::string kind = spec.problem.Get("collective");
  for (const Node* node : spec.nodes) {
    abi::ReduceCall call;
    call.tap = node->tap;
    call.kind = kind;
    const std::string& part = kind == "gather" ? node->tap : node->inputs[0];
    const bool attention = node->domain == reference::Domain::kAttention;
    const int parts = attention ? spec.degrees.attention() : spec.degrees.tp;
    for (int rank = 0; rank < parts; ++rank) {
      int given_rank = -1;
      const TapValue* value = Given(spec, part, rank, 0, &given_rank);
      if (value == nullptr) return Error{fmt::format("{}: no part of rank {}", node->tap, rank)};
      call.inputs.push_back(Hand(part, rank, *value));
    }
    auto output = OutputOf(spec, *node, -1);
    if (!output) return output.error();
    if (kind == "reduce_scatter") {
      call.outputs = ChunksOf(*output, parts);
    } else {
      call.output = std::move(*output);
    }
    script->reduces.push_back(std::move(call));
  }
  return Ok();
}

// Key=value pairs beside assay_open's members, those that this cell and engine have a use for: an
// engine that knows none of them is not asked to.
std::string OptionsOf(const CellSpec& spec, const CellLimits& limits) {
  std::vector<std::string> options = DegreeOptions(spec.problem);
  if (spec.problem.Has("limit")) options.push_back("limit=" + spec.problem.Get("limit"));
  if (Emulates(spec)) options.push_back("emulate=" + limits.emulate);
  return fmt::format("{}", fmt::join(options, " "));
}

// Single ops are judged with their own parameters alone, whatever else was loaded beside them.
bool Judged(const CellSpec& spec, const std::string& component) {
  if (spec.mode != Mode::kOps) return true;
  const std::string parameter = ParameterOf(component);
  return std::any_of(spec.nodes.begin(), spec.nodes.end(),
                     [&](const Node* node) { return node->weight == parameter; });
}

}  // namespace

Result<abi::Script> MakeScript(const CellSpec& spec, const shard::ModelPlan* plan,
                               const std::vector<shard::Component>& components,
                               const CellLimits& limits) {
  abi::Script script;
  script.engine = spec.engine.table;
  script.library = spec.engine.library;
  script.config_json = spec.config_json;
  script.tier = spec.problem.Get("tier");
  script.kernel = spec.problem.Get("kernel");
  script.method = spec.problem.Get("method");
  script.layout = spec.problem.Get("layout");
  script.act = spec.problem.Get("act");
  script.reduce = spec.problem.Get("reduce");
  script.routing = spec.problem.Get("routing");
  script.options = OptionsOf(spec, limits);
  script.tp = spec.degrees.tp;
  script.attn_tp = spec.degrees.attention();
  script.threads = spec.problem.Get("threads").empty()
                       ? static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))
                       : spec.problem.GetInt("threads");
  script.time_limit_ms = TimeLimitMs(MultiplyAdds(spec), limits);
  script.memory_limit_bytes = limits.memory_bytes;
  script.load_layer = spec.layer;
  AddTensors(spec, components, &script);
  if (spec.decoys != nullptr) {
    for (const abi::HostTensor& tensor : script.tensors) {
      script.decoys.push_back(Hand(*spec.decoys->Find(tensor.name)));
    }
  }
  if (plan == nullptr) {
    // Illegal: the engine is only asked to load, and what it made of that.
    for (const shard::Component& component : components)
      script.exports.push_back({component.name, 0});
    return script;
  }
  script.plan = plan->Print();
  for (const shard::ComponentPlan& component : plan->components) {
    if (!Judged(spec, component.component.name)) continue;
    for (int rank = 0; rank < spec.degrees.tp; ++rank) {
      script.exports.push_back({component.component.name, rank});
    }
  }
  Status added = Ok();
  if (spec.mode == Mode::kOps) added = AddOps(spec, &script);
  if (spec.mode == Mode::kScope) AddRuns(spec, &script);
  if (spec.mode == Mode::kCollective) added = AddReduces(spec, &script);
  if (!added) return added.error();
  return script;
}

}  // namespace assay::run
