// Runs an engine in a child process: time-out, memory limit, crash and output captured, guard
// pages, poison, inputs checked. What comes back is data, or a reason why not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/abi/assay_engine.h"
#include "harness/store/trace.h"
#include "harness/units/status.h"

namespace assay::abi {

// A tensor to hand to an engine; the bytes are copied into guarded memory in the child.
struct HostTensor {
  std::string name;
  int rank = -1;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
};

struct OpCall {
  int rank = 0;
  std::string tap;
  std::vector<HostTensor> inputs;
  HostTensor output;  // data and bytes unused: memory is made in the child
};
struct RunCall {
  std::string scope;
  int64_t layer = -1;
  std::vector<int32_t> tokens;
  int64_t first_position = 0;
  std::vector<HostTensor> inputs;
};
struct ReduceCall {
  std::string tap;
  std::vector<HostTensor> inputs;
  HostTensor output;
  std::string kind = "all_reduce";  // "reduce_scatter": outputs instead of output; "gather"
  std::vector<HostTensor> outputs = {};  // of each rank; step and rank in the trace as theirs
};

// All that one cell asks of an engine, in this order. What of it becomes which tap of the trace:
// the output of an op has its tap and rank and, as step, how many calls of the same tap and rank
// came before it; that of a reduce likewise, with its output's rank; what the engine gives during
// run number i has step i. A key that is given twice must have the same values. An op or a reduce
// that the engine answers with ASSAY_UNSUPPORTED is left out of the trace and named in `notes`;
// only if it supports none of them the cell is unsupported.
struct Script {
  // nullptr: `library` is opened in the child and asked.
  const assay_engine* engine = nullptr;
  std::string library;

  // assay_open's members.
  std::string config_json, tier, kernel, method, layout, act, reduce, routing, options, plan;
  int tp = 1, attn_tp = 1, pools = 1, threads = 1;

  int64_t load_layer = -1;
  // The checkpoint's, whole, for every rank's load. Up to kCopiedTensorBytes together they are
  // copied into guarded memory, checked and overwritten after the call; beyond, the engine gets
  // this memory itself, unchecked, and the outcome's notes say so.
  std::vector<HostTensor> tensors;
  // Other values under the same names, loaded for every rank before `tensors` are: an engine that
  // keeps one of them is found. Empty: one load.
  std::vector<HostTensor> decoys;
  // Which components to read back, by rank; empty: none.
  std::vector<ShardKey> exports;
  std::vector<OpCall> ops;
  std::vector<RunCall> runs;  // one a step
  std::vector<ReduceCall> reduces;

  int64_t time_limit_ms = 20000;   // for both passes together
  int64_t memory_limit_bytes = 0;  // address space beyond what the parent has; 0: none
};

enum class Phase { kStart, kOpen, kLoad, kExport, kRun, kDone };
std::string_view NameOf(Phase phase);  // "start", "open", ... "done"

enum class Ending {
  kFinished,     // every call answered ASSAY_OK
  kUnsupported,  // a call answered ASSAY_UNSUPPORTED; error says what
  kRefused,      // ASSAY_REFUSED
  kFailed,       // ASSAY_FAILED or an unknown status
  kCrashed,      // died of a signal or called exit
  kTimedOut,
  kOutOfMemory,  // an allocation of the harness in the child failed, or the limit was hit
  kDirty,        // it answered, but broke a rule: wrote beside a buffer, changed an input, left
                 // output unwritten, gave other outputs under another poison
  kInfra,        // fork or memory for the transfer failed, or the script contradicts itself
};

std::string_view NameOf(Ending ending);  // "finished", "unsupported", ...

struct Outcome {
  Ending ending = Ending::kInfra;
  Phase phase = Phase::kStart;
  int signal = 0;
  std::string message;  // one line
  assay_error error{};  // as the engine filled it
  std::string output;   // what it wrote to stdout and stderr, the first 64 KiB
  std::string engine_name, engine_revision, describe_json;
  EngineTrace trace;  // of the first pass (poison NaN); complete where kFinished or kDirty
  double ms = 0;
  // What did not decide but should be known: rules broken after the first, checks that were left
  // out and why, ops that the engine does not support, processes that it left behind.
  std::vector<std::string> notes;
};

inline constexpr uint64_t kCopiedTensorBytes = uint64_t{64} << 20;
// Beyond this a child's taps and shards are not taken: kOutOfMemory.
inline constexpr uint64_t kTransferBytes = uint64_t{16} << 30;

// Forks, runs the script twice (scratch and outputs poisoned with NaN, then with 1e4) and compares
// the passes bit for bit. Memory that load() was given is overwritten with another pattern in each
// pass, so that an engine that keeps a pointer to it is found. Every process that the engine
// started is dead when this returns. The parent must be single-threaded.
Outcome RunInChild(const Script& script);

}  // namespace assay::abi
