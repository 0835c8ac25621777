// One session: a model's tensor-parallel group in this process.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/abi/assay_engine.h"
#include "harness/checkpoint/model_config.h"
#include "kernels/engines/native/dispatcher.h"
#include "kernels/engines/native/kv_cache.h"
#include "kernels/engines/native/rope_table.h"
#include "kernels/engines/native/settings.h"
#include "kernels/engines/native/values.h"
#include "kernels/faults/interceptor.h"
#include "kernels/loaders/loader.h"
#include "kernels/loaders/memory.h"
#include "kernels/loaders/parameters.h"

namespace assay::kernels::native {

struct Rank {
  RankParameters parameters;
  std::vector<KvCache> cache;  // by layer
};

class Session {
 public:
  // `hooks` may be nullptr, and must outlive the session.
  Session(const assay_open& request, const assay_host* host, const Interceptor* hooks);

  // The ABI's calls. Each throws EngineError. Of a session that only loads, RunOp and Run are
  // unsupported.
  void Load(const assay_load& request);
  void Export(int rank, std::string_view component, assay_shard* out);  // export.cc
  void RunOp(const assay_op& request);                                  // run_op.cc
  void Run(const assay_run& request);                                   // run.cc
  void Reduce(const assay_reduce& request);                             // reduce.cc
  void Reset();

  // For the blocks.
  const ModelConfig& config() const { return settings_.config; }
  int tp() const { return settings_.degrees.tp; }
  int attn_tp() const { return settings_.degrees.attention(); }
  const Reduction& reduction() const { return settings_.reduction; }
  float act_limit() const { return settings_.act_limit; }
  std::optional<SituBetas> situ() const { return settings_.situ; }
  bool routing_forced() const { return settings_.routing_forced; }
  Memory& memory() { return memory_; }
  Dispatcher& dispatcher() { return dispatcher_; }
  RopeTable& rope() { return *rope_; }
  Rank& rank(int r) { return ranks_[static_cast<size_t>(r)]; }
  const Interceptor* hooks() const { return hooks_; }
  // Whether this rank's part of the expert counts in the sum over ranks: with experts over ranks
  // the first ranks that hold it, whoever has a replica.
  bool Contributes(int64_t expert, int rank) const;

  // Gives a tap to the host, but not inside run_op, whose output is the tap. `shape` is the
  // matrix's own where it is empty.
  void Emit(const std::string& tap, int rank, const Matrix& value,
            std::vector<int64_t> shape = {}) const;
  void EmitIds(const std::string& tap, int rank, const std::vector<int32_t>& ids,
               int64_t rows) const;
  // What entered a product as 8-bit activations, beside the product's tap: `TAP.x_q` and
  // `TAP.x_scale`. Also inside run_op, where no output is asked for them.
  void EmitCodes(const std::string& tap, int rank, const QuantisedRows& x) const;
  // Rounds to the matrix's type.
  void Round(const std::string& tap, int rank, Matrix* value) const;
  // Rounds, then emits.
  Matrix Finish(const std::string& tap, int rank, Matrix value) const;

 private:
  int CheckedRank(int rank) const;
  void NeedRuns() const;
  const char* Kept(std::string_view text);
  void EmitBytes(const std::string& tap, int rank, uint32_t dtype, std::vector<int64_t> shape,
                 void* data) const;

  Settings settings_;
  Memory memory_;
  const Interceptor* hooks_;
  Dispatcher dispatcher_;
  Loader loader_;
  std::optional<RopeTable> rope_;  // of a session that runs
  std::vector<Rank> ranks_;
  std::set<std::string, std::less<>> kept_;  // texts given out by Export
  bool emits_ = false;
};

// The request's tensors, whatever their structure's size; absent members are zero.
std::vector<assay_tensor> CopyTensors(const assay_tensor* first, uint32_t count);

}  // namespace assay::kernels::native
