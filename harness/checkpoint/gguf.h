// One GGUF file (versions 2 and 3, little endian), mapped into memory and checked before use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/tensor_source.h"

namespace assay {

// Types of metadata values, by the file's codes.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
std::string_view NameOf(GgufType type);  // "u32", "string", "array"

// A metadata value as it lies in the file, at any alignment.
struct GgufValue {
  GgufType type = GgufType::kU8;
  GgufType element = GgufType::kU8;  // of an array
  uint64_t count = 1;                // of an array: its elements
  // A string: its text. An array: its elements one after the other, strings with their lengths.
  std::span<const std::byte> bytes;
};

class Faults;

class GgufFile : public TensorSource {
 public:
  // Maps the file read-only and reads nothing of the tensors' data. Checked: magic, version, counts
  // against the file's size, lengths, types of values, keys and names (no duplicates), alignment,
  // extents and their product, blocks, offsets aligned, inside the data, without overlaps and
  // without holes beyond the padding. Errors name the file, the byte or the tensor, the reason and
  // what is allowed, on one line. kUnsupported: version 1, big endian, arrays of arrays, types of
  // tensors that ggml has and that are not read here.
  // Views have the extents in C's order (the file's are reversed); where the type is one of blocks,
  // the last extent counts blocks.
  static Result<std::unique_ptr<GgufFile>> Open(const std::string& path);
  ~GgufFile() override;
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const TensorView* Find(std::string_view name) const override;
  std::vector<std::string> Names() const override;

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  size_t file_bytes() const { return mapped_bytes_; }
  // Everything before the tensors' data: counts, metadata, tensors' names, types and offsets.
  std::span<const std::byte> header() const;
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }

  // Metadata. Absent keys are nullopt; a value of another kind than asked for is an error that
  // names the key, its type and what is allowed.
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const GgufValue* Value(std::string_view key) const;                  // nullptr: absent
  Result<std::optional<int64_t>> Integer(std::string_view key) const;  // any width, up to 2^63-1
  Result<std::optional<double>> Number(std::string_view key) const;    // f32 or f64, exactly
  Result<std::optional<bool>> Bool(std::string_view key) const;
  Result<std::optional<std::string_view>> Text(std::string_view key) const;
  // Elements of an array of integers of any width. An array of more than 2^20 is an error.
  Result<std::optional<std::vector<int64_t>>> Integers(std::string_view key) const;
  Result<std::optional<int64_t>> Length(std::string_view key) const;  // of an array

 private:
  friend class GgufReader;
  friend class Scanner;
  // Goes on as long as it can: tensors() are those that are whole, `damaged` (without bytes) those
  // of which only type and shape are known. Error: the file cannot be mapped.
  static Result<std::unique_ptr<GgufFile>> OpenDamaged(const std::string& path, Faults& faults,
                                                       std::vector<TensorView>* damaged);
  GgufFile() = default;
  Error WrongKind(std::string_view key, const GgufValue& value, std::string_view allowed) const;

  std::string path_;
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  size_t header_bytes_ = 0;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
};

}  // namespace assay
