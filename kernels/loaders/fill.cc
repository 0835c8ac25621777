// Copies a rank's rows of each part to where they stay, or through a repack.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/layouts/marlin.h"
#include "kernels/loaders/engine_error.h"
#include "kernels/loaders/load_job.h"

namespace assay::kernels {
namespace {

// NaN in every floating type, and no code that a loader would write everywhere.
constexpr int kPoison = 0xFF;
constexpr int64_t kWeightAlignment = 64;

// Where a component lies in what was loaded before, row major; empty: it was not.
std::vector<std::byte> OldRows(const RankParameters& old, std::string_view component) {
  const auto [op, part_name] = SplitComponent(component);
  const RankParameters::Place place = old.Find(op);
  if (place.parameter == nullptr) return {};
  const auto part = place.parameter->parts.find(part_name);
  const auto piece = place.segment->parts.find(part_name);
  if (part == place.parameter->parts.end() || piece == place.segment->parts.end()) return {};
  const Part& stored = part->second;
  const int64_t row = stored.shape.columns * SizeOf(stored.shape.dtype).count();
  std::vector<std::byte> rows(static_cast<size_t>(row * stored.shape.rows));
  if (stored.layout == "row") {
    std::copy_n(stored.bytes.data(), rows.size(), rows.begin());
  } else {
    LayoutOf(place.parameter->choice, part_name)
        ->unpack(stored.shape, stored.bytes.data(), rows.data());
  }
  const auto begin = rows.begin() + row * piece->second.first_row;
  return {begin, begin + row * piece->second.rows};
}

// What a layout must know beside the extents.
void SetFacts(const ModelConfig& config, std::string_view part, const std::vector<Member>& members,
              const Parameter& parameter, StoredShape* shape) {
  shape->k = parameter.k;
  shape->group = parameter.group;
  if (part == "weight") shape->order = parameter.order;
  if (members.front().op.ends_with(".kv_b")) {
    shape->nope = config.qk_nope;
    shape->v = config.v_dim;
  }
}

std::vector<int32_t> OrderOf(const std::byte* g_idx, int64_t bytes) {
  std::vector<int32_t> groups(static_cast<size_t>(bytes) / sizeof(int32_t));
  if (groups.empty()) return groups;
  std::memcpy(groups.data(), g_idx, groups.size() * sizeof(int32_t));
  return marlin::SortedOrder(groups);
}

// The part that ops use as fp32: a vector, or a linear's bias.
bool IsUsedAsFloats(const Parameter& parameter, std::string_view part, ModuleKind kind) {
  if (kind == ModuleKind::kTable) return false;
  if (part == "bias") return kind != ModuleKind::kVector || parameter.floats.data() == nullptr;
  return part == "weight" && kind == ModuleKind::kVector;
}

}  // namespace

bool IsFloating(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

Array<std::byte> Poisoned(Memory& memory, int64_t bytes) {
  Array<std::byte> array(memory, bytes, kWeightAlignment);
  std::memset(array.data(), kPoison, static_cast<size_t>(bytes));
  return array;
}

const Layout* LayoutOf(const Choice& choice, std::string_view part) {
  if (choice.layout == "row") return nullptr;
  const Layout* layout = LayoutOfPart(choice.layout, choice.method, part);
  if (layout == nullptr) {
    throw EngineError(ASSAY_UNSUPPORTED, fmt::format("{}: no layout {} of {}", choice.parameter,
                                                     choice.layout, choice.method));
  }
  return layout->tag == "row" ? nullptr : layout;
}

void Loader::FillPart(Job* job, const RankParameters& old, std::string_view part_name,
                      const std::vector<Member>& members, Parameter* parameter) const {
  Part part;
  std::vector<std::pair<const shard::ComponentPlan*, int64_t>> pieces;  // and bytes
  int64_t row_bytes = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const shard::ComponentPlan* plan = members[i].Find(part_name);
    if (plan == nullptr) continue;
    const shard::ShardShape shape = shard::ShapeOf(*plan, job->rank);
    Piece& piece = parameter->segments[i].parts[std::string(part_name)];
    piece = {part.shape.rows, shape.rows, plan->component.source};
    part.shape.dtype = plan->component.dtype;
    part.shape.rows += shape.rows;
    part.shape.columns = shape.columns;
    pieces.emplace_back(plan, ShardBytes(*plan, job->rank));
    row_bytes += pieces.back().second;
  }
  if (pieces.empty()) return;
  SetFacts(config_, part_name, members, *parameter, &part.shape);
  const Layout* layout = LayoutOf(parameter->choice, part_name);
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
  if (layout != nullptr) {
    part.layout = layout->tag;
    staging = Poisoned(*memory_, row_bytes);
    rows = staging.data();
  }
  int64_t at = 0;
  for (const auto& [plan, size] : pieces) {
    CopyRows(job, old, *plan, {rows + at, static_cast<size_t>(size)});
    at += size;
  }
  const ModuleKind kind =
      KindOf(members.front().op, members.front().parts.front()->component.columns);
  if (IsUsedAsFloats(*parameter, part_name, kind) && IsFloating(part.shape.dtype)) {
    parameter->floats = Array<float>(*memory_, CheckedProduct(part.shape.rows, part.shape.columns));
    ToFloats(part.shape.dtype, rows, parameter->floats.count(), parameter->floats.data());
  }
  if (layout != nullptr) {
    if (part_name == "g_idx") parameter->order = OrderOf(rows, row_bytes);
    const char* why = layout->objection == nullptr ? nullptr : layout->objection(part.shape, rows);
    if (why != nullptr) {
      throw EngineError(ASSAY_UNSUPPORTED, fmt::format("{}.{}: layout {}: {}", parameter->name,
                                                       part_name, layout->tag, why));
    }
    layout->pack(part.shape, rows, part.bytes.data());
  }
  if (hooks_ != nullptr) {
    hooks_->AfterPack({parameter->name,
                       part_name,
                       job->rank,
                       part.layout,
                       parameter->choice,
                       part.shape,
                       {part.bytes.data(), static_cast<size_t>(bytes)}});
  }
  parameter->parts.emplace(part_name, std::move(part));
}

void Loader::CopyRows(Job* job, const RankParameters& old, const shard::ComponentPlan& plan,
                      std::span<std::byte> out) const {
  const std::string& name = plan.component.name;
  const TensorView* tensor = job->tensors.Find(plan.component.source);
  if (tensor == nullptr) {
    throw EngineError(ASSAY_FAILED, fmt::format("{}: {} is gone", name, plan.component.source));
  }
  Status status = Ok();
  if (hooks_ == nullptr) {
    status = shard::CopyShard(plan, job->rank, *tensor, out);
  } else {
    if (hooks_->SkipsPart(name, job->rank)) return;
    SliceRequest request{job->rank, plan, *tensor, &job->tensors, {}};
    hooks_->BeforeSlice(request);
    status = shard::CopyShard(request.plan, request.rank, request.tensor, out);
    if (status && hooks_->KeepsOld(name, job->rank)) {
      const std::vector<std::byte> kept = OldRows(old, name);
      if (kept.size() == out.size()) std::copy(kept.begin(), kept.end(), out.begin());
    }
    if (status) {
      const shard::ShardShape shape = shard::ShapeOf(request.plan, request.rank);
      hooks_->AfterPart({name, job->rank, request.plan, shape.rows, shape.columns, out});
    }
  }
  if (!status) throw EngineError(status.error());
  job->written[name] += static_cast<int64_t>(out.size());
}

// A parameter that was made and that nothing wrote to would compute with whatever memory had.
void Loader::CheckCoverage(const Job& job) const {
  for (const shard::ComponentPlan& plan : *job.plan) {
    if (!Holds(plan, job.rank)) continue;
    const auto written = job.written.find(plan.component.name);
    const int64_t due = ShardBytes(plan, job.rank);
    if (written != job.written.end() && written->second == due) continue;
    EngineError error(ASSAY_FAILED,
                      fmt::format("{}: rank {} was due {} bytes of {}, and {}", plan.component.name,
                                  job.rank, due, plan.component.source,
                                  written == job.written.end()
                                      ? "nothing wrote them"
                                      : fmt::format("{} were written", written->second)));
    error.tensor = plan.component.source;
    error.got = written == job.written.end() ? 0 : written->second;
    error.expected = due;
    error.got_unit = error.expected_unit = "byte";
    throw error;
  }
}

}  // namespace assay::kernels
