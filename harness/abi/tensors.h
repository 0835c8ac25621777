// Tensors in guarded memory, as the arguments of one call. Used in the child process.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/abi/assay_engine.h"
#include "harness/abi/child.h"
#include "harness/abi/guarded.h"
#include "harness/abi/recorder.h"

namespace assay::abi {

// Inputs: copies of the script's tensors. Direct ones are the script's own memory, for tensors too
// large to be copied; nothing of them is checked.
class InputSet {
 public:
  enum class Memory { kCopied, kDirect };

  InputSet(std::string_view role, const std::vector<HostTensor>& sources, Poison poison,
           Memory memory);
  // false: there was no memory.
  bool ok() const { return ok_; }
  const assay_tensor* array() const { return tensors_.data(); }
  uint32_t count() const { return static_cast<uint32_t>(tensors_.size()); }

  // Every byte as it was, and nothing written beside it; the first difference is a violation.
  void Check(std::string_view call, Recorder* recorder) const;
  void Overwrite(std::byte with);
  void Restore();

 private:
  const std::vector<HostTensor>& sources_;
  std::vector<std::unique_ptr<GuardedBuffer>> buffers_;  // empty where direct
  std::vector<assay_tensor> tensors_;
  bool ok_ = true;
};

// An output: poisoned memory, described by its own assay_tensor.
class OutputTensor {
 public:
  OutputTensor(const HostTensor& wanted, Poison poison);
  bool ok() const { return buffer_ != nullptr; }
  assay_tensor* tensor() { return &tensor_; }
  std::span<const std::byte> bytes() const { return buffer_->span(); }
  void Check(Recorder* recorder) const;

 private:
  std::unique_ptr<GuardedBuffer> buffer_;
  assay_tensor tensor_{};
};

}  // namespace assay::abi
