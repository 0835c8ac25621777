// Where tensors come from: a checkpoint on disk, a generator, or a shard that an engine gave back.
// The oracle and the engines under test read from the same source, and never from each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/units/dtype.h"
#include "harness/units/status.h"

namespace assay {

// Bytes of a tensor of this type and shape; nullopt if an extent is negative or the product does
// not fit in 63 bits.
std::optional<Bytes> StoredBytes(DType dtype, std::span<const int64_t> shape);

// A tensor as it lies in storage: row major, little endian. The bytes belong to the source, and
// may start at any address: read values with memcpy.
struct TensorView {
  std::string name;            // as in the file
  DType dtype = DType::kF32;   // of one storage value, which may hold several logical elements
  std::vector<int64_t> shape;  // in storage values
  std::span<const std::byte> bytes;
  std::string file;  // its path; "memory" if it has none
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // nullptr if there is none of that name. Valid as long as the source is.
  virtual const TensorView* Find(std::string_view name) const = 0;
  // Sorted.
  virtual std::vector<std::string> Names() const = 0;
};

// Owns its tensors' bytes: generated weights, shards read back, tests.
class MemorySource : public TensorSource {
 public:
  MemorySource() = default;
  MemorySource(const MemorySource&) = delete;
  MemorySource& operator=(const MemorySource&) = delete;
  MemorySource(MemorySource&&) = default;
  MemorySource& operator=(MemorySource&&) = default;

  // Replaces a tensor of the same name. bytes.size() must be the shape's size in the dtype.
  void Put(std::string name, DType dtype, std::vector<int64_t> shape, std::vector<std::byte> bytes);
  const TensorView* Find(std::string_view name) const override;
  std::vector<std::string> Names() const override;

 private:
  struct Owned {
    TensorView view;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, Owned, std::less<>> tensors_;
};

}  // namespace assay
