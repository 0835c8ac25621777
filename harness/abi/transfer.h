// What a child tells its parent: a sequence of records in a memory file. The child appends each as
// it comes, so that what came before a crash is kept. The parent reads it when the child is gone
// and believes nothing: the engine shared the child's memory and its descriptors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/units/status.h"

namespace assay::abi {

enum class RecordType : uint32_t {
  kMark = 1,      // phase; what is being called
  kHello = 2,     // name, revision, describe
  kTap = 3,       // step, tap, rank, dtype, shape | values
  kShard = 4,     // component, rank, layout, dtype, rows ... | bytes
  kExecuted = 5,  // tap, rank, kernel, tier, layout, act, threads
  kNote = 6,      // text
  kFault = 7,     // a guard page was touched: distance, label. Written by a signal handler
  kEnd = 8,       // ending, phase, message | assay_error
};

// The small part of a record: numbers and strings, in order.
class MetaWriter {
 public:
  void Put(int64_t number) { Append(&number, sizeof number); }
  void Put(std::string_view text) {
    Put(static_cast<int64_t>(text.size()));
    Append(text.data(), text.size());
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void Append(const void* data, size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }
  std::vector<std::byte> bytes_;
};

// Reads what MetaWriter wrote; after anything out of range `ok` is false and all else is 0 or "".
class MetaReader {
 public:
  explicit MetaReader(std::span<const std::byte> bytes) : left_(bytes) {}
  int64_t Number();
  std::string Text();
  // All was there, and nothing more.
  bool complete() const { return ok_ && left_.empty(); }
  bool ok() const { return ok_; }

 private:
  std::span<const std::byte> left_;
  bool ok_ = true;
};

// Where a record's values lie in the file.
struct RecordPlace {
  int64_t offset = 0;
  uint64_t bytes = 0;
};

// Child side. Write() allocates nothing and may be called from a signal handler.
class RecordWriter {
 public:
  RecordWriter(int fd, uint64_t limit_bytes) : fd_(fd), limit_bytes_(limit_bytes) {}
  // false: no room (the limit, or the system's memory); nothing was added.
  bool Write(RecordType type, std::span<const std::byte> meta, std::span<const std::byte> data,
             RecordPlace* place = nullptr);
  // Index of the first byte that differs from what lies there, -1 if none does.
  int64_t FirstDifference(RecordPlace place, std::span<const std::byte> data) const;
  bool Read(int64_t offset, std::span<std::byte> out) const;

 private:
  bool WriteAt(int64_t offset, std::span<const std::byte> bytes) const;

  int fd_;
  uint64_t limit_bytes_;
  int64_t end_ = 0;
};

struct Record {
  RecordType type = RecordType::kNote;
  std::vector<std::byte> meta, data;
};

// Parent side.
class RecordReader {
 public:
  explicit RecordReader(int fd);
  // nullopt: the end. Error: the file is damaged from here on.
  Result<std::optional<Record>> Next();

 private:
  int fd_;
  int64_t size_ = 0;
  int64_t at_ = 0;
  bool ended_ = false;  // nothing counts after kEnd
};

// Strings of an engine as one may print and store them: valid UTF-8, every control character but
// newline and tab replaced by '?'.
std::string CleanText(std::string_view text);
// The same on one line.
std::string CleanLine(std::string_view text);

}  // namespace assay::abi
