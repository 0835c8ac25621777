// A safetensors file that is written piece by piece, and appears only when it is whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/units/dtype.h"
#include "harness/units/status.h"

namespace assay {

struct SafetensorsSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// Writes beside the target; Finish syncs, renames and syncs the folder. Whatever is not finished is
// gone with the writer. The header's names are sorted, and the data lies by width of the type, then
// by name: equal tensors make equal files, and every tensor is aligned to its type.
class SafetensorsWriter {
 public:
  // Errors: a name twice, empty or no UTF-8, sizes that overflow, a type of blocks (which the
  // format does not have), a header larger than readers allow, the system's.
  static Result<SafetensorsWriter> Create(const std::string& path,
                                          const std::vector<SafetensorsSpec>& tensors,
                                          const std::map<std::string, std::string>& metadata);
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;

  // A part of a tensor's bytes. Several threads may write parts that do not overlap. Error: no such
  // tensor, a part that reaches beyond it.
  Status Write(std::string_view name, uint64_t offset, std::span<const std::byte> bytes);
  // Error: a tensor of which not as many bytes were written as it has.
  Status Finish();

  uint64_t file_bytes() const;
  // Where a tensor's bytes begin in the file; 0: no such tensor.
  uint64_t OffsetOf(std::string_view name) const;

 private:
  struct State;
  explicit SafetensorsWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace assay
