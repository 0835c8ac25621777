// The header of a GGUF file from front to back, checked. Private to this room.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/checkpoint/faults.h"
#include "harness/checkpoint/gguf.h"
#include "harness/checkpoint/shown.h"
#include "harness/units/status.h"

namespace assay {

inline constexpr uint64_t kMaxGgufNameBytes = 65535;  // GGUF's rule for keys

// Reads the header from front to back. `at_` is the next byte. A byte that makes the rest
// unreadable is a Status of the functions here; what is wrong with one tensor is a fault, and the
// reading goes on.
class GgufReader {
 public:
  GgufReader(GgufFile& file, Faults& faults, std::span<const std::byte> bytes)
      : file_(file), faults_(faults), bytes_(bytes) {}

  // Fills the file with metadata and with the tensors that are whole.
  void Read();
  // Those that are not, without bytes: types and shapes that are known.
  std::vector<TensorView> TakeDamaged();

 private:
  struct Info {
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;  // C's order, in storage values
    uint64_t offset = 0, bytes = 0;
    bool known = true;  // name, type and shape
    bool whole = true;  // all its bytes are there and are its alone
  };
  using Infos = std::map<std::string, Info, std::less<>>;

  static Error At(size_t byte, std::string_view reason, ErrorKind kind = ErrorKind::kBadInput) {
    return Error{fmt::format("byte {}: {}", byte, reason), kind};
  }
  // The same where the file ends too early.
  Error Short(size_t byte, std::string_view reason) {
    short_ = true;
    return At(byte, reason);
  }
  uint64_t left() const { return bytes_.size() - at_; }

  // `owner` says whose value ends early: "key 'x'".
  template <class T>
  Result<T> Number(std::string_view owner, std::string_view what) {
    if (left() < sizeof(T)) {
      return Short(at_, fmt::format("{}: {} takes {} bytes, but only {} are left; the file is "
                                    "truncated or its counts are wrong",
                                    owner, what, sizeof(T), left()));
    }
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  // A length of 8 bytes and so many bytes of text.
  Result<std::string_view> Text(std::string_view owner, std::string_view what, uint64_t most) {
    const size_t begin = at_;
    const Result<uint64_t> length = Number<uint64_t>(owner, fmt::format("the length of {}", what));
    if (!length.ok()) return length.error();
    if (*length > most) {
      return At(begin, fmt::format("{}: {} has {} bytes; at most {} are allowed", owner, what,
                                   *length, most));
    }
    if (*length > left()) {
      return Short(begin, fmt::format("{}: {} has {} bytes, but only {} are left; the file is "
                                      "truncated or the length is wrong",
                                      owner, what, *length, left()));
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, *length);
    at_ += *length;
    return text;
  }

  // The same without a message where it fails, and then nothing is skipped: vocabularies have
  // hundreds of thousands of texts.
  bool SkipText() {
    uint64_t length = 0;
    if (left() < sizeof(length)) return false;
    std::memcpy(&length, bytes_.data() + at_, sizeof(length));
    if (length > left() - sizeof(length)) return false;
    at_ += sizeof(length) + length;
    return true;
  }

  Status ReadHeader();
  Status ReadPreamble();
  Status ReadVersion();
  Result<uint64_t> ReadCount(std::string_view what, uint64_t most, uint64_t least_bytes);
  Status ReadKey();
  Status ReadValue(std::string_view owner, GgufValue& value);
  Status ReadArray(std::string_view owner, GgufValue& value);
  Status CheckBools(std::string_view owner, const GgufValue& value) const;
  Status ReadAlignment();
  Status ReadInfo();
  Result<std::vector<uint64_t>> ReadExtents(std::string_view name);
  // These tell a fault where it is one.
  bool FindDType(std::string_view name, uint32_t code, Info& info);
  bool MakeShape(std::string_view name, const std::vector<uint64_t>& extents, Info& info);
  Status PlaceTensors();
  void CheckPlaces(uint64_t data_bytes);
  bool CheckEnd(std::string_view name, const Info& info, uint64_t data_bytes);

  GgufFile& file_;
  Faults& faults_;
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool short_ = false;
  uint64_t keys_ = 0, tensors_ = 0;
  Infos infos_;
  bool all_known_ = true;  // so that holes are holes
};

}  // namespace assay
