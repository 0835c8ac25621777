#include "harness/abi/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "harness/abi/host.h"

namespace assay::abi {
namespace {

assay_tensor Describe(const HostTensor& source, void* data, uint64_t bytes) {
  assay_tensor tensor{};
  tensor.size = sizeof tensor;
  tensor.name = source.name.c_str();
  tensor.rank = source.rank;
  tensor.dtype = static_cast<uint32_t>(source.dtype);
  tensor.ndim = static_cast<uint32_t>(source.shape.size());
  std::copy(source.shape.begin(), source.shape.end(), tensor.shape);
  tensor.data = data;
  tensor.bytes = bytes;
  return tensor;
}

std::string Label(std::string_view role, const HostTensor& tensor) {
  if (tensor.rank < 0) return fmt::format("{} {}", role, tensor.name);
  return fmt::format("{} {} of rank {}", role, tensor.name, tensor.rank);
}

void Copy(const HostTensor& from, GuardedBuffer* to) {
  if (from.bytes != 0) std::memcpy(to->data(), from.data, from.bytes);
}

}  // namespace

InputSet::InputSet(std::string_view role, const std::vector<HostTensor>& sources, Poison poison,
                   Memory memory)
    : sources_(sources) {
  for (const HostTensor& source : sources) {
    void* data = const_cast<std::byte*>(source.data);
    if (memory == Memory::kCopied) {
      auto buffer =
          GuardedBuffer::Make(Label(role, source), source.bytes, kTensorAlignment, poison);
      ok_ = buffer != nullptr;
      if (!ok_) return;
      Copy(source, buffer.get());
      data = buffer->data();
      buffers_.push_back(std::move(buffer));
    }
    tensors_.push_back(Describe(source, data, source.bytes));
  }
}

void InputSet::Check(std::string_view call, Recorder* recorder) const {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const std::string wrong = buffers_[i]->CheckMargins();
    if (!wrong.empty()) return recorder->Violation(fmt::format("{}: {}", call, wrong));
    const std::span<const std::byte> now = buffers_[i]->span();
    if (now.empty() || std::memcmp(now.data(), sources_[i].data, now.size()) == 0) continue;
    const auto at = std::mismatch(now.begin(), now.end(), sources_[i].data).first - now.begin();
    return recorder->Violation(
        fmt::format("{}: changed {} at byte {}", call, buffers_[i]->label(), at));
  }
}

void InputSet::Overwrite(std::byte with) {
  for (const auto& buffer : buffers_) {
    std::memset(buffer->data(), std::to_integer<int>(with), buffer->bytes());
  }
}

void InputSet::Restore() {
  for (size_t i = 0; i < buffers_.size(); ++i) Copy(sources_[i], buffers_[i].get());
}

OutputTensor::OutputTensor(const HostTensor& wanted, Poison poison) {
  uint64_t bytes = 0;
  if (!SizeInBytes(wanted.shape.data(), wanted.shape.size(), wanted.dtype, &bytes)) return;
  buffer_ = GuardedBuffer::Make(Label("output", wanted), bytes, kTensorAlignment, poison);
  if (buffer_ == nullptr) return;
  FillPoison(poison, wanted.dtype, buffer_->span());
  tensor_ = Describe(wanted, buffer_->data(), bytes);
}

void OutputTensor::Check(Recorder* recorder) const {
  const std::string wrong = buffer_->CheckMargins();
  if (!wrong.empty()) recorder->Violation(wrong);
}

}  // namespace assay::abi
