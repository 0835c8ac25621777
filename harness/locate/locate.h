// From failed judgements and shards to divergences: the first wrong op with its coordinates, what
// substitution cleared, and what kind of mistake the error field shows (numerics.md §4).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/judge/floor.h"
#include "harness/judge/judge.h"
#include "harness/store/result.h"
#include "harness/store/trace.h"
#include "reference/oracle.h"

namespace assay::locate {

// Layout bytes -> row major bytes of the stored values: rows·columns of the shard's dtype. An
// unknown tag is an Error. Given by harness/run, which sees kernels/layouts.
using UnpackFn = std::function<Result<std::vector<std::byte>>(
    const ShardKey& key, const std::string& tag, const ExportedShard& shard)>;
// Tags that the component's bytes could also be read under.
using TagsFn = std::function<std::vector<std::string>(const std::string& component)>;

// One component on one rank that is not what the checkpoint and the plan say.
struct ShardFinding {
  std::string component;
  int rank = 0;
  std::string cls = "loader";               // "layout" if another known tag gives the right bytes
  std::string unit;                         // "element", "word", "group"
  int64_t wrong = 0, total = 0;             // stored values
  std::vector<int64_t> index, local_index;  // first wrong value: [row, column], global and local
  double expected = 0, got = 0;             // as numbers (words: the word's value)
  std::string expected_bits, got_bits;      // hex
  Signature signature;
  std::optional<ErrorMap> map;       // share of wrong values, rows x groups
  std::vector<std::byte> row_major;  // the engine's shard, unpacked
};

struct ShardReport {
  std::vector<ShardFinding> findings;  // data-flow order, then rank
  int64_t compared = 0;                // (component, rank) pairs
  int64_t bytes = 0;
  std::vector<std::string> missing;  // "component@rank" that the engine did not give back
  // Rows or columns of a component that the ranks together do not hold (all ranks were asked).
  std::vector<std::string> uncovered;
};

// The loader verdict: every exported shard, unpacked, against the oracle's own slice, bit for bit;
// and all ranks' shards together cover the whole tensor. `decoy`: the oracle over what was loaded
// before, whose values are stale now.
Result<ShardReport> CompareShards(const reference::Oracle& oracle, const EngineTrace& trace,
                                  const std::vector<ShardKey>& expected,
                                  const reference::Parallel& degrees, const UnpackFn& unpack,
                                  const TagsFn& tags, const reference::Oracle* decoy = nullptr);

// Layer, expert and op of a divergence, by the name of a component ("L1.moe.e5.down.scale").
void SetPlace(std::string_view component, Divergence* divergence);

struct LocateRequest {
  judge::JudgeRequest judge;  // as it was judged
  const std::vector<judge::OpJudgement>* judgements = nullptr;
  const ShardReport* shards = nullptr;
};

// Ordered: data flow, then rank, then step. Independent faults are separate entries; an op that is
// locally right on wrong inputs is not a fault, but listed as propagated. Shard findings and the
// ops that they explain are one entry, class loader (or layout), with the op's tap.
Result<std::vector<Divergence>> Locate(const LocateRequest& request);

// All ops are right on their inputs, and the chain is not: no first op, class kernel, signature
// `accumulation`. `beyond`: not empty, from judge::JudgeAccumulated.
Divergence AccumulationOnly(const std::vector<judge::BeyondFloor>& beyond,
                            const judge::Floor& floor);

// A refusal or shape error of an engine on a legal cell, explained: which component, axis, unit
// and both representations. From the structured error where the engine gave one, else from two
// extents in its message ("2048 must match 4096") that fit exactly one component under two
// representations.
struct ShapeError {
  std::string message, tensor, axis, got_unit, expected_unit;
  int64_t got = 0, expected = 0;
};
Result<Divergence> ExplainRefusal(const reference::Oracle& oracle, const ShapeError& error,
                                  const std::vector<std::string>& components);

}  // namespace assay::locate
