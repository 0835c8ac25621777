// Which components become one parameter, and how large it is.
#include <algorithm>
#include <map>

#include "kernels/loaders/load_job.h"

namespace assay::kernels {
namespace {

using shard::Along;
using shard::Component;
using shard::ComponentPlan;

bool IsScalar(const Component& c) {
  return c.rows == 1 && c.columns == 1 && c.row_along == Along::kNone &&
         c.column_along == Along::kNone;
}

bool SamePart(const ComponentPlan& a, const ComponentPlan& b, int rank) {
  const Component &x = a.component, &y = b.component;
  const bool rows = x.row_along == Along::kN && y.row_along == Along::kN;
  return (rows || (IsScalar(x) && IsScalar(y))) && x.dtype == y.dtype && x.method == y.method &&
         x.column_along == y.column_along && x.column_elements == y.column_elements &&
         shard::ShapeOf(a, rank).columns == shard::ShapeOf(b, rank).columns;
}

bool CanJoin(const std::vector<Member>& members, int rank) {
  const Member& first = members.front();
  for (const Member& member : members) {
    if (member.parts.size() != first.parts.size()) return false;
    for (size_t i = 0; i < member.parts.size(); ++i) {
      const auto part = SplitComponent(member.parts[i]->component.name).second;
      if (part == "g_idx" || part != SplitComponent(first.parts[i]->component.name).second ||
          !SamePart(*member.parts[i], *first.parts[i], rank)) {
        return false;
      }
    }
  }
  return true;
}

// One logical extent of a shard, of which `local` stored values are there.
int64_t Elements(int64_t local, int64_t stored, int64_t logical, int64_t per_unit, int64_t values) {
  return local == stored ? logical : local / values * per_unit;
}

}  // namespace

const ComponentPlan* Member::Find(std::string_view part) const {
  for (const ComponentPlan* plan : parts) {
    if (SplitComponent(plan->component.name).second == part) return plan;
  }
  return nullptr;
}

bool Holds(const ComponentPlan& plan, int rank) {
  return !plan.ranks.at(static_cast<size_t>(rank)).empty();
}

int64_t ShardBytes(const ComponentPlan& plan, int rank) {
  const shard::ShardShape shape = shard::ShapeOf(plan, rank);
  return CheckedProduct(CheckedProduct(shape.rows, shape.columns),
                        SizeOf(plan.component.dtype).count());
}

Logical LogicalOf(const ComponentPlan& weight, int rank) {
  const Component& c = weight.component;
  const shard::ShardShape shape = shard::ShapeOf(weight, rank);
  const int64_t rows =
      Elements(shape.rows, c.rows, c.row_extent.count() > 0 ? c.row_extent.count() : c.rows,
               c.elements_per_row.count(), c.rows_per_unit);
  const int64_t columns = Elements(shape.columns, c.columns, c.row_elements.count(),
                                   c.column_elements.count(), c.columns_per_unit);
  if (c.row_along == Along::kK || c.column_along == Along::kN) return {columns, rows};
  return {rows, columns};
}

std::vector<std::vector<Member>> MatricesOf(const std::vector<ComponentPlan>& plan, int rank) {
  // A linear's parts follow one another; merged ones are found again by their name.
  std::vector<std::vector<Member>> matrices;
  std::map<std::string_view, size_t> at;  // by merged parameter
  for (const ComponentPlan& component : plan) {
    if (!Holds(component, rank)) continue;
    const std::string_view op = SplitComponent(component.component.name).first;
    size_t index = matrices.size();
    if (!component.segment_of.empty()) {
      index = at.emplace(component.segment_of, index).first->second;
    } else if (!matrices.empty() && matrices.back().back().op == op) {
      index = matrices.size() - 1;
    }
    if (index == matrices.size()) matrices.emplace_back();
    std::vector<Member>& members = matrices[index];
    if (members.empty() || members.back().op != op) members.push_back({op, {}});
    members.back().parts.push_back(&component);
  }
  std::vector<std::vector<Member>> made;
  for (std::vector<Member>& members : matrices) {
    if (members.size() > 1 && !CanJoin(members, rank)) {
      for (Member& member : members) made.push_back({std::move(member)});
    } else {
      made.push_back(std::move(members));
    }
  }
  return made;
}

}  // namespace assay::kernels
