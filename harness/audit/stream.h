// One pass over the bytes of many tensors in many files: read into small buffers that stay in the
// cache, by several threads, each byte once. Reading, not mapping: a file that is truncated
// meanwhile is a finding, not a signal.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/audit/values.h"

namespace assay::audit {

struct StreamItem {
  uint32_t file = 0;  // index into the paths
  uint64_t offset = 0, bytes = 0;
  Lens lens;
  // Handed over as a whole too (`on_whole`): small tensors whose values are compared.
  bool whole = false;
};

struct StreamError {
  uint32_t file = 0;
  size_t item = 0;     // the first one that could not be read
  std::string reason;  // one line
  size_t more = 0;     // further items of the same file
};

struct StreamProgress {
  uint64_t done = 0, total = 0;  // bytes
  double seconds = 0;
};

struct StreamOptions {
  int threads = 2;
  // Called now and then from the caller's thread, and once at the end.
  std::function<void(const StreamProgress&)> on_progress;
  // Called from a worker's thread, at most once an item, with all its bytes.
  std::function<void(size_t item, std::span<const std::byte> bytes)> on_whole;
};

struct StreamResult {
  std::vector<Tally> tallies;  // [items]
  std::vector<StreamError> errors;
  uint64_t bytes = 0;  // read
  double seconds = 0;
};

// Items are best in the order of the files. A whole item of more than kMaxWhole bytes is only
// looked at, not handed over.
inline constexpr uint64_t kMaxWhole = 64 << 20;
StreamResult Stream(const std::vector<std::string>& paths, const std::vector<StreamItem>& items,
                    const StreamOptions& options);

}  // namespace assay::audit
