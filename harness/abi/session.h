// One pass of a script through an engine: open, load, exports, ops, runs, reduces, close. Used in
// the child process.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "harness/abi/assay_engine.h"
#include "harness/abi/child.h"
#include "harness/abi/guarded.h"
#include "harness/abi/host.h"
#include "harness/abi/recorder.h"
#include "harness/abi/tensors.h"

namespace assay::abi {

// Where and why a pass stopped; kFinished: it did not.
struct Stop {
  Ending ending = Ending::kFinished;
  Phase phase = Phase::kDone;
  std::string message;
  bool stopped() const { return ending != Ending::kFinished; }
};

class Session {
 public:
  Session(const assay_engine& engine, const Script& script, Poison poison, Recorder* recorder);
  Stop Run();
  // As the engine filled it, with its strings ended.
  assay_error error() const;

 private:
  Stop Open();
  Stop Load();
  Stop LoadAll(std::string_view which, const std::vector<HostTensor>& sources,
               std::unique_ptr<InputSet>* tensors);
  Stop Export();
  Stop Ops();
  Stop Runs();
  Stop Reduces();
  Stop ReduceOne(const ReduceCall& reduce);
  Stop ExportOne(const ShardKey& key);
  void RecordShard(const ShardKey& key, const assay_shard& shard);

  // Calls the engine with everything watched. What the status means is left to Judge.
  int Call(Phase phase, std::string_view what, const std::function<int()>& call);
  Stop Judge(int status, Phase phase, std::string_view what) const;
  Stop NoMemory(Phase phase, std::string_view what) const;
  // The number of earlier calls with this tap and rank.
  int NextStep(const std::string& tap, int rank) { return steps_[{tap, rank}]++; }
  assay_error* raw_error() const { return reinterpret_cast<assay_error*>(error_->data()); }

  const assay_engine& engine_;
  const Script& script_;
  Poison poison_;
  Recorder* recorder_;
  Host host_;
  std::unique_ptr<GuardedBuffer> error_;
  // Overwritten after load, kept until the end.
  std::unique_ptr<InputSet> decoys_, tensors_;
  assay_session* session_ = nullptr;
  bool threw_bad_alloc_ = false;
  int call_errno_ = 0;
  int calls_ = 0;      // ops and reduces that were asked for
  int supported_ = 0;  // and answered
  std::map<std::pair<std::string, int>, int> steps_;
};

}  // namespace assay::abi
