#include "kernels/loaders/loader.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/loaders/check.h"
#include "kernels/loaders/engine_error.h"
#include "kernels/loaders/load_job.h"

namespace assay::kernels {
namespace {

bool IsGateUp(const std::vector<Member>& members) {
  return members.size() == 2 && members[0].op.ends_with(".gate") && members[1].op.ends_with(".up");
}

// The part that says how large the member is.
const shard::ComponentPlan& Main(const Member& member) {
  const shard::ComponentPlan* weight = member.Find("weight");
  return weight != nullptr ? *weight : *member.parts.front();
}

}  // namespace

const TensorView* ViewSource::Find(std::string_view name) const {
  const auto found = views_.find(name);
  return found == views_.end() ? nullptr : &found->second;
}

std::vector<std::string> ViewSource::Names() const {
  std::vector<std::string> names;
  names.reserve(views_.size());
  for (const auto& entry : views_) names.push_back(entry.first);
  return names;
}

TensorView ViewOf(const assay_tensor& tensor) {
  TensorView view;
  view.name = tensor.name == nullptr ? "" : tensor.name;
  const auto refuse = [&](const std::string& why) {
    EngineError error(ASSAY_FAILED, fmt::format("{}: {}", view.name, why));
    error.tensor = view.name;
    throw error;
  };
  if (tensor.dtype > static_cast<uint32_t>(DType::kNvfp4Block)) {
    refuse(fmt::format("type {} is unknown", tensor.dtype));
  }
  view.dtype = static_cast<DType>(tensor.dtype);
  if (tensor.ndim > 4) refuse(fmt::format("{} axes; at most 4", tensor.ndim));
  view.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  const auto bytes = StoredBytes(view.dtype, view.shape);
  if (!bytes || static_cast<uint64_t>(bytes->count()) != tensor.bytes) {
    refuse(fmt::format("its shape does not fit {} bytes", tensor.bytes));
  }
  if (tensor.data == nullptr && tensor.bytes > 0) refuse("data is NULL");
  view.bytes = {static_cast<const std::byte*>(tensor.data), static_cast<size_t>(tensor.bytes)};
  return view;
}

Loader::Loader(ModelConfig config, shard::Degrees degrees, Mode mode,
               std::span<const LinearKernel> kernels, Memory* memory, const Interceptor* hooks)
    : config_(std::move(config)),
      degrees_(std::move(degrees)),
      mode_(std::move(mode)),
      kernels_(kernels),
      memory_(memory),
      hooks_(hooks) {}

void Loader::Load(const assay_load& request, bool replaces, RankParameters* into) {
  if (request.rank < 0 || request.rank >= degrees_.tp) {
    throw EngineError(ASSAY_FAILED, fmt::format("rank {} of a session with ranks 0 to {}",
                                                request.rank, degrees_.tp - 1));
  }
  Job job;
  job.rank = request.rank;
  NameTensors(request, replaces, &job);
  Plan(&job);
  CheckUnused(job);
  if (hooks_ != nullptr) Adjust(&job);
  CheckComplete(request, job);
  std::vector<Parameter> made;
  for (const auto& members : MatricesOf(*job.plan, job.rank)) {
    made.push_back(MakeParameter(&job, *into, members));
  }
  if (hooks_ == nullptr || !hooks_->SkipsCoverage()) CheckCoverage(job);
  const auto check_once = [&](std::string_view op, bool held) {
    if (replaces || !held) return;
    throw EngineError(ASSAY_FAILED, fmt::format("{} is loaded twice", op));
  };
  for (const Parameter& parameter : made) {
    for (const Segment& segment : parameter.segments) {
      check_once(segment.op, into->Find(segment.op).parameter != nullptr);
    }
  }
  for (const shard::ComponentPlan& plan : *job.plan) {
    const shard::Component& c = plan.component;
    if (Holds(plan, job.rank)) continue;
    check_once(SplitComponent(c.name).first, into->FindAbsent(c.name) != nullptr);
  }
  for (Parameter& parameter : made) into->Add(std::move(parameter), replaces);
  for (const shard::ComponentPlan& plan : *job.plan) {
    const shard::Component& c = plan.component;
    if (!Holds(plan, job.rank)) into->AddAbsent(c.name, {c.dtype, c.columns, c.method});
  }
}

// Views of the request's tensors by name.
void Loader::NameTensors(const assay_load& request, bool replaces, Job* job) const {
  if (request.tensor_count > 0 && request.tensors == nullptr) {
    throw EngineError(ASSAY_FAILED, "tensors is NULL");
  }
  job->list.rank = request.rank;
  job->list.again = replaces;
  Names seen;
  for (uint32_t i = 0; i < request.tensor_count; ++i) {
    TensorView view = ViewOf(request.tensors[i]);
    if (!seen.insert(view.name).second) {
      EngineError error(ASSAY_REFUSED, fmt::format("{}: named twice in one load", view.name));
      error.tensor = view.name;
      throw error;
    }
    job->list.tensors.push_back(std::move(view));
  }
  if (hooks_ != nullptr) hooks_->OnTensors(job->list);
  for (const TensorView& view : job->list.tensors) {
    job->names.insert(view.name);
    job->tensors.Put(view);
  }
  job->config = config_;
  FindPrefix(job->names, &job->config);
  job->whole = request.layer == -1;
}

// What a fault makes of each component, and whether its part still takes the tensor.
void Loader::Adjust(Job* job) const {
  job->adjusted = plan_;
  for (shard::ComponentPlan& plan : job->adjusted) {
    hooks_->OnPlan(plan, job->rank);
    ParameterSpec spec = SpecOf(plan.component);
    hooks_->OnParameter(spec);
    CheckTensor(spec, plan.component);
  }
  job->plan = &job->adjusted;
}

// Which rank of those that have a bias of a row-parallel layer adds it: the plan says which part.
bool Loader::AddsBias(const shard::ComponentPlan& bias, int rank) const {
  if (!bias.owner.has_value()) return true;
  const std::string_view name = bias.component.name;
  int parts = degrees_.tp;
  if (name.find(".attn.") != std::string_view::npos) {
    parts = degrees_.attention();
  } else if (ExpertOf(name) >= 0) {
    parts = degrees_.tp / degrees_.ep;
  } else if (degrees_.dp > 1) {
    parts = degrees_.attention();
  }
  return rank % parts == *bias.owner;
}

ParameterFacts Loader::FactsOf(const Parameter& parameter,
                               const std::vector<Member>& members) const {
  const shard::ComponentPlan& main = Main(members.front());
  const shard::Component& c = main.component;
  ParameterFacts facts;
  facts.name = parameter.name;
  facts.method = c.method;
  facts.kind = KindOf(members.front().op, c.columns);
  for (const shard::ComponentPlan* part : members.front().parts) {
    facts.parts.emplace_back(SplitComponent(part->component.name).second);
  }
  facts.n = parameter.n;
  facts.k = parameter.k;
  facts.group = parameter.group;
  const bool rows = c.row_along == shard::Along::kK;
  facts.whole_k = rows ? c.row_extent.count() : c.row_elements.count();
  facts.gate_up = IsGateUp(members);
  facts.hidden_act = config_.hidden_act;
  const int64_t expert = ExpertOf(members.front().op);
  if (expert >= 0 && expert < degrees_.hybrid) facts.placement = Placement::kGpu;
  return facts;
}

// One parameter of one rank: its segments stacked, packed to its kernel's layout.
Parameter Loader::MakeParameter(Job* job, const RankParameters& old,
                                const std::vector<Member>& members) const {
  Parameter parameter;
  const shard::ComponentPlan& main = Main(members.front());
  parameter.name = members.size() > 1 ? main.segment_of : std::string(members.front().op);
  parameter.group = main.component.group.count();
  for (const Member& member : members) {
    const Logical logical = LogicalOf(Main(member), job->rank);
    parameter.segments.push_back({std::string(member.op), parameter.n, logical.n, {}});
    parameter.n += logical.n;
    parameter.k = logical.k;
    if (const shard::ComponentPlan* bias = member.Find("bias")) {
      parameter.adds_bias = AddsBias(*bias, job->rank);
    }
  }
  const ParameterFacts facts = FactsOf(parameter, members);
  parameter.choice = Select(facts, mode_, kernels_);
  if (hooks_ != nullptr) hooks_->OnSelect(parameter.choice);
  const bool codes = members.front().Find("weight") != nullptr;
  if (codes && !parameter.choice.kernel.empty()) {
    parameter.kernel = FindKernel(kernels_, parameter.choice.kernel, mode_);
  }
  // The order of inputs first: codes may have to be repacked in it.
  if (members.front().Find("g_idx") != nullptr) FillPart(job, old, "g_idx", members, &parameter);
  for (const std::string& part : facts.parts) {
    if (part != "g_idx") FillPart(job, old, part, members, &parameter);
  }
  return parameter;
}

}  // namespace assay::kernels
