// What a child's outcome comes to: verdict, metrics, divergences.
#pragma once

#include "harness/abi/child.h"
#include "harness/run/spec.h"
#include "harness/store/result.h"

namespace assay::run {

// An outcome without results: refusal, crash, time-out, failure, unsupported.
void ReadEnding(const CellSpec& spec, const abi::Outcome& outcome,
                const std::vector<shard::Component>& components, CellResult* result);

// An outcome with results: loader verdict, ops, collectives, metrics; locates what failed.
// `emulate` as in CellLimits.
void JudgeOutcome(const CellSpec& spec, const abi::Outcome& outcome,
                  const std::vector<ShardKey>& expected, const std::string& emulate,
                  CellResult* result);

}  // namespace assay::run
