// The planner's answers as the engine's errors.
#pragma once

#include "harness/shard/plan.h"
#include "harness/units/status.h"
#include "kernels/loaders/engine_error.h"

namespace assay::kernels {

// What the planner says of a tensor, in the ABI's structure: its message begins with the tensor's
// name, and names axis, extents and units where it is about those ("x: axis k has 13 words,
// expected 12 words"). A contradiction is refused; a method that is not known is unsupported.
EngineError ErrorOf(const Error& error);
EngineError ErrorOf(const shard::Refusal& refusal);

}  // namespace assay::kernels
