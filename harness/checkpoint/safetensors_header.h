// The header of a safetensors file, checked without stopping at the first problem. Private to this
// room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/checkpoint/faults.h"
#include "harness/units/dtype.h"

namespace assay {

inline constexpr size_t kSafetensorsPrefix = 8;  // bytes that say how long the header is

inline constexpr size_t kMaxSafetensorsHeader = 100'000'000;  // the reference library's limit

struct SafetensorsEntry {
  std::string name;
  std::optional<DType> dtype;  // none: not known
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // in the data; 0, 0 where the entry does not say it
  bool readable = false;        // dtype, shape and offsets are such
  bool whole = false;           // all its bytes are there, as many as dtype and shape take, and its
};

struct SafetensorsHeader {
  uint64_t data_begin = 0;  // in the file
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsEntry> entries;  // in the header's order, each name once
};

// `file` is the whole file's bytes; those of the data are not read. Everything that is wrong goes
// to `faults`; without a header that can be read there are no entries.
SafetensorsHeader ReadSafetensorsHeader(std::span<const std::byte> file, Faults& faults);

}  // namespace assay
