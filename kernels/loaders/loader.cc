#include "kernels/loaders/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/shard/executor.h"
#include "kernels/loaders/check.h"
#include "kernels/loaders/engine_error.h"
#include "kernels/loaders/load_job.h"

namespace assay::kernels {
namespace {

[[noreturn]] void Missing(const std::string& tensor, const std::string& component) {
  EngineError error(ASSAY_REFUSED, fmt::format("{}: missing; {} needs it", tensor, component));
  error.tensor = tensor;
  throw error;
}

// Components by the matrix that they go into. Segments of a merged one need not stand next to each
// other in the plan, and those that are stored another way stand as a matrix of their own.
std::vector<std::vector<const shard::ComponentPlan*>> ByMatrix(
    const std::vector<shard::ComponentPlan>& plans) {
  std::map<std::string_view, std::string> methods;  // by op
  for (const shard::ComponentPlan& plan : plans) {
    const auto [op, part] = SplitComponent(plan.component.name);
    if (part == "weight" && IsLinear(plan)) methods[op] = MethodOf(plan);
  }
  std::vector<std::vector<const shard::ComponentPlan*>> groups;
  std::map<std::string, size_t> group_of;
  for (const shard::ComponentPlan& plan : plans) {
    const std::string key =
        ParameterName(plan) + " " + methods[SplitComponent(plan.component.name).first];
    const auto [at, added] = group_of.emplace(key, groups.size());
    if (added) groups.emplace_back();
    groups[at->second].push_back(&plan);
  }
  return groups;
}

// Where a component lies in what was loaded before, row major; empty: it was not.
std::vector<std::byte> OldRows(const RankParameters& old, std::string_view component) {
  const auto [op, part_name] = SplitComponent(component);
  const RankParameters::Place place = old.Find(op);
  if (place.parameter == nullptr) return {};
  const auto part = place.parameter->parts.find(part_name);
  if (part == place.parameter->parts.end()) return {};
  const Part& stored = part->second;
  const int64_t row = stored.shape.columns * SizeOf(stored.shape.dtype).count();
  std::vector<std::byte> rows(static_cast<size_t>(row * stored.shape.rows));
  if (stored.layout == "row") {
    std::copy_n(stored.bytes.data(), rows.size(), rows.begin());
  } else {
    LayoutOf(*place.parameter, part_name)->unpack(stored.shape, stored.bytes.data(), rows.data());
  }
  const auto begin = rows.begin() + row * place.segment->first_row;
  return {begin, begin + row * place.segment->rows};
}

}  // namespace

Loader::Loader(ModelConfig config, shard::Degrees degrees, Memory* memory, KernelChooser chooser,
               const Interceptor* hooks)
    : config_(std::move(config)),
      degrees_(degrees),
      memory_(memory),
      chooser_(std::move(chooser)),
      hooks_(hooks) {}

void Loader::Load(const assay_load& request, bool replaces, RankParameters* into) {
  if (request.rank < 0 || request.rank >= degrees_.tp) {
    throw EngineError(ASSAY_FAILED, fmt::format("rank {} of a session with ranks 0 to {}",
                                                request.rank, degrees_.tp - 1));
  }
  Job job;
  NameTensors(request, &job);
  FindParameters(&job);
  CheckComplete(request, job);
  CheckTensors(job);
  std::vector<Parameter> made;
  for (const auto& members : ByMatrix(Plan(job))) {
    made.push_back(MakeParameter(job, request.rank, *into, members));
  }
  for (const Parameter& parameter : made) {
    for (const Segment& segment : parameter.segments) {
      if (replaces || into->Find(segment.op).parameter == nullptr) continue;
      throw EngineError(ASSAY_FAILED, fmt::format("{} is loaded twice", segment.op));
    }
  }
  for (Parameter& parameter : made) into->Add(std::move(parameter), replaces);
}

// Views of the request's tensors by name.
void Loader::NameTensors(const assay_load& request, Job* job) const {
  if (request.tensor_count > 0 && request.tensors == nullptr) {
    throw EngineError(ASSAY_FAILED, "tensors is NULL");
  }
  for (uint32_t i = 0; i < request.tensor_count; ++i) {
    TensorView view = ViewOf(request.tensors[i]);
    const std::string name = view.name;
    job->names.insert(name);
    if (!job->tensors.Put(std::move(view))) {
      EngineError error(ASSAY_REFUSED, fmt::format("{}: named twice in one load", name));
      error.tensor = name;
      throw error;
    }
  }
  job->config = config_;
  FindPrefix(job->names, &job->config);
  job->whole = request.layer == -1;
}

// What the config implies of what is named, and whether something is named that it does not imply.
void Loader::FindParameters(Job* job) const {
  std::set<int64_t> layers;
  for (const std::string& name : job->names) {
    const int64_t layer = LayerOf(job->config, name);
    if (layer >= 0 && layer < config_.layers) layers.insert(layer);
  }
  const std::vector<Expected> top = TopInventory(job->config);
  // A whole model is one where layers hang between an embedding and a final norm.
  job->whole = job->whole && !layers.empty() && job->tensors.Find(top[0].source) != nullptr &&
               job->tensors.Find(top[1].source) != nullptr;
  Match(top[0], job);
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    if (!job->whole && layers.count(layer) == 0) continue;
    for (const Expected& expected : LayerInventory(job->config, layer)) Match(expected, job);
  }
  Match(top[1], job);
  Match(top[2], job);
  for (const std::string& name : job->names) {
    if (job->taken.count(name) == 0 && !MayBeIgnored(job->config, name)) {
      EngineError error(ASSAY_REFUSED,
                        fmt::format("{}: no parameter of this model takes it", name));
      error.tensor = name;
      throw error;
    }
  }
}

// Makes the specs of one expected linear, vector or table, if any of its tensors is named; of a
// whole model in any case.
void Loader::Match(const Expected& expected, Job* job) const {
  const auto named = [&](std::string_view suffix) {
    return job->tensors.Find(expected.source + std::string(suffix)) != nullptr;
  };
  ExpectedHere here{expected, false, {}, {}};
  if (expected.kind != Expected::Kind::kLinear) {
    here.named = named("");
    here.specs = {VectorOrTableSpec(expected, job->tensors)};
  } else {
    here.storage = StorageOf(expected, job->tensors);
    const bool packed = here.storage.kind == Storage::Kind::kCtPacked;
    here.named =
        packed || here.storage.kind == Storage::Kind::kMxfp4 || named(".weight") || named(".bias");
    if (packed && named(".weight")) {
      EngineError error(
          ASSAY_REFUSED,
          fmt::format("{0}.weight: stored twice, also as {0}.weight_packed", expected.source));
      error.tensor = expected.source + ".weight";
      throw error;
    }
    here.specs = LinearSpecs(expected, here.storage, job->tensors, config_.quant);
    if (packed) job->taken.insert(expected.source + ".weight_shape");
  }
  if (!here.named && (!job->whole || expected.optional)) {
    job->absent.push_back(std::move(here));
    return;
  }
  for (ParameterSpec& spec : here.specs) {
    job->taken.insert(spec.source);
    if (hooks_ != nullptr) hooks_->OnParameter(spec);
  }
  job->present.push_back(std::move(here));
}

void Loader::CheckComplete(const assay_load& request, const Job& job) const {
  std::set<std::string, std::less<>> components;
  for (const ExpectedHere& here : job.present) {
    for (const ParameterSpec& spec : here.specs) {
      if (job.tensors.Find(spec.source) == nullptr) Missing(spec.source, spec.component);
      components.insert(spec.component);
    }
  }
  // The harness's plan names a component at the beginning of each line.
  std::string_view rest = request.plan == nullptr ? "" : request.plan;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::string_view component = line.substr(0, line.find(' '));
    const size_t arrow = line.find("<- ");
    if (component.empty() || arrow == std::string_view::npos) continue;
    if (components.count(component) == 0) {
      Missing(std::string(line.substr(arrow + 3)), std::string(component));
    }
  }
}

void Loader::CheckTensors(const Job& job) const {
  for (const ExpectedHere& here : job.present) {
    for (const ParameterSpec& spec : here.specs) {
      CheckTensor(spec, *job.tensors.Find(spec.source));
    }
    if (const TensorView* shape = job.tensors.Find(here.expected.source + ".weight_shape")) {
      CheckWeightShape(*shape, here.expected.n, here.expected.k);
    }
  }
}

// One parameter of one rank: its segments stacked, packed to its kernel's layout.
Parameter Loader::MakeParameter(const Job& job, int rank, const RankParameters& old,
                                const std::vector<const shard::ComponentPlan*>& members) const {
  Parameter parameter;
  parameter.name = ParameterName(*members.front());
  for (const shard::ComponentPlan* plan : members) {
    const auto [op, part] = SplitComponent(plan->component.name);
    const shard::ShardShape shape = shard::ShapeOf(*plan, rank);
    if (part == "weight" || parameter.segments.empty()) {
      if (parameter.segments.empty() || parameter.segments.back().op != op) {
        parameter.segments.push_back({std::string(op), parameter.n, shape.rows, {}});
        parameter.n += shape.rows;
      }
    }
    for (Segment& segment : parameter.segments) {
      if (segment.op == op) segment.sources.emplace(part, plan->component.source);
    }
    if (part == "weight" && IsLinear(*plan)) {
      parameter.method = MethodOf(*plan);
      parameter.k = shape.columns * plan->component.column_elements.count();
      parameter.group = plan->component.group.count();
    }
    if (part == "bias" && plan->owner.has_value()) {
      const int domain =
          op.find(".attn.") != std::string_view::npos ? degrees_.attention() : degrees_.tp;
      parameter.adds_bias = rank % domain == *plan->owner;
    }
  }
  if (!parameter.method.empty()) parameter.kernel = chooser_(parameter.method);
  for (std::string_view part : {"weight", "scale", "bias"}) {
    FillPart(job, rank, old, part, members, &parameter);
  }
  const bool table = parameter.kernel == nullptr && parameter.name == "embed";
  const auto vector = parameter.parts.find(
      parameter.kernel != nullptr || parameter.parts.count("weight") == 0 ? "bias" : "weight");
  if (!table && vector != parameter.parts.end()) {
    parameter.floats = FloatsOf(*memory_, vector->second);
  }
  return parameter;
}

void Loader::FillPart(const Job& job, int rank, const RankParameters& old,
                      std::string_view part_name,
                      const std::vector<const shard::ComponentPlan*>& members,
                      Parameter* parameter) const {
  Part part;
  std::vector<std::pair<const shard::ComponentPlan*, int64_t>> pieces;  // and bytes
  for (const shard::ComponentPlan* plan : members) {
    if (SplitComponent(plan->component.name).second != part_name) continue;
    const shard::ShardShape shape = shard::ShapeOf(*plan, rank);
    part.shape.dtype = plan->component.dtype;
    part.shape.rows += shape.rows;
    part.shape.columns = shape.columns;
    pieces.emplace_back(plan, CheckedProduct(CheckedProduct(shape.rows, shape.columns),
                                             SizeOf(plan->component.dtype).count()));
  }
  if (pieces.empty()) return;
  const Layout* layout = LayoutOf(*parameter, part_name);
  int64_t row_bytes = 0;
  for (const auto& piece : pieces) row_bytes += piece.second;
  const int64_t bytes = layout == nullptr ? row_bytes : layout->bytes(part.shape);
  if (bytes < 0) {
    throw EngineError(
        ASSAY_UNSUPPORTED,
        fmt::format("{}.{}: layout {} does not take {} [{}, {}]", parameter->name, part_name,
                    layout->tag, NameOf(part.shape.dtype), part.shape.rows, part.shape.columns));
  }
  part.bytes = Poisoned(*memory_, bytes);
  Array<std::byte> staging;
  std::byte* rows = part.bytes.data();
  if (layout != nullptr && layout->tag != "row") {
    part.layout = layout->tag;
    staging = Poisoned(*memory_, row_bytes);
    rows = staging.data();
  }
  int64_t at = 0;
  for (const auto& [plan, size] : pieces) {
    CopyRows(job, rank, old, *plan, {rows + at, static_cast<size_t>(size)});
    at += size;
  }
  if (staging.data() != nullptr) layout->pack(part.shape, staging.data(), part.bytes.data());
  parameter->parts.emplace(part_name, std::move(part));
}

void Loader::CopyRows(const Job& job, int rank, const RankParameters& old,
                      const shard::ComponentPlan& plan, std::span<std::byte> out) const {
  const TensorView* tensor = job.tensors.Find(plan.component.source);
  Status status = Ok();
  if (hooks_ == nullptr) {
    status = shard::CopyShard(plan, rank, *tensor, out);
  } else {
    SliceRequest request{rank, plan, *tensor, &job.tensors, {}};
    hooks_->BeforeSlice(request);
    status = shard::CopyShard(request.plan, request.rank, request.tensor, out);
    if (status && hooks_->KeepsOld(plan.component.name, rank)) {
      const std::vector<std::byte> kept = OldRows(old, plan.component.name);
      if (kept.size() == out.size()) std::copy(kept.begin(), kept.end(), out.begin());
    }
  }
  if (!status) throw EngineError(status.error());
}

}  // namespace assay::kernels
