// What an engine gives, on its way to the parent. In the first pass it is written down; in the
// second, under other poison, it is compared with what was written. Used in the child process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/abi/child.h"
#include "harness/abi/transfer.h"
#include "harness/store/trace.h"

namespace assay::abi {

class Recorder {
 public:
  explicit Recorder(RecordWriter* writer) : writer_(writer) {}

  void BeginPass(int pass) { pass_ = pass; }
  int pass() const { return pass_; }
  // After the second pass: what it did not give again is a violation.
  void CompareKeys();

  // Says what is called next: after a crash it is the last that is known.
  void Mark(Phase phase, std::string_view what);
  void Tap(const TapKey& key, DType dtype, const std::vector<int64_t>& shape,
           std::span<const std::byte> values);
  // `shard.bytes` is not used.
  void Shard(const ShardKey& key, const ExportedShard& shard, std::span<const std::byte> bytes);
  void Executed(const ExecutedRecord& record);
  void Note(std::string_view text);
  // A broken rule. The first is the outcome's message.
  void Violation(std::string_view text);
  void End(Ending ending, Phase phase, std::string_view message, const assay_error& error);

  const std::string& first_violation() const { return first_violation_; }
  // A record was not written for want of room.
  bool full() const { return full_; }

 private:
  // What is compared: "tap L1.moe.out of rank 0 in step 0", and the type of its values.
  struct Given {
    std::string name;
    DType dtype;
  };
  void Give(const Given& given, RecordType type, const MetaWriter& meta,
            std::span<const std::byte> data);
  void Compare(const Given& given, RecordPlace first, std::span<const std::byte> second);
  void Write(RecordType type, const MetaWriter& meta, std::span<const std::byte> data,
             RecordPlace* place = nullptr);

  RecordWriter* writer_;
  int pass_ = 0;
  bool full_ = false;
  int notes_ = 0;
  std::string first_violation_;
  std::map<std::string, RecordPlace, std::less<>> places_;  // of the first pass
  std::set<std::string, std::less<>> again_;                // in the second
};

}  // namespace assay::abi
