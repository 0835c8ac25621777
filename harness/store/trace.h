// What one engine run gave back: taps, shards, and what really ran. Copied out of the child, so
// that nothing here points into an engine's memory.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/units/dtype.h"

namespace assay {

struct TapKey {
  int step = 0;     // 0 prefill, then decodes
  std::string tap;  // "L1.moe.e5.down"
  int rank = -1;    // -1: the same for every rank
  friend auto operator<=>(const TapKey&, const TapKey&) = default;
};

struct TapValue {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

struct ExportedShard {
  std::string layout;  // tag
  DType dtype = DType::kBF16;
  int64_t total_rows = 0, first_row = 0, rows = 0, columns = 0;
  std::vector<std::byte> bytes;          // as it lies in the engine's memory
  std::string method = {}, kernel = {};  // what its selector chose; "": not told
};

struct ExecutedRecord {
  std::string tap, kernel, tier, layout, act, how;  // how: "" is hardware
  int rank = -1;
  int threads = 0;
};

struct ShardKey {
  std::string component;
  int rank = 0;
  friend auto operator<=>(const ShardKey&, const ShardKey&) = default;
};

struct EngineTrace {
  std::map<TapKey, TapValue> taps;
  std::map<ShardKey, ExportedShard> shards;
  std::vector<ExecutedRecord> executed;
};

}  // namespace assay
