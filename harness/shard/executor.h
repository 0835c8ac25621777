// Follows a plan: copies what a rank holds of a component, and puts shards together again.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "harness/shard/plan.h"

namespace assay::shard {

struct ShardShape {
  int64_t rows = 0;     // local, padding included
  int64_t columns = 0;  // local, in the component's stored unit
};
ShardShape ShapeOf(const ComponentPlan& plan, int rank);

// Copies the rank's shard, row major, into `out` (rows × columns × size of dtype, checked).
// Padding is zero-filled. `tensor` is the source tensor, of which the component may be a part
// (Component::first, row_step, column_step).
Status CopyShard(const ComponentPlan& plan, int rank, const TensorView& tensor,
                 std::span<std::byte> out);

// Puts the ranks' shards together to the whole component, row major. Replicas must be bit-equal and
// padding zero: the first difference is the error.
Status Reassemble(const ComponentPlan& plan, const std::vector<std::span<const std::byte>>& shards,
                  std::span<std::byte> whole);

}  // namespace assay::shard
