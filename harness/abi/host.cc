#include "harness/abi/host.h"

#include <fmt/format.h>

#include <cstring>
#include <new>

namespace assay::abi {
namespace {

constexpr size_t kNameAtMost = 255;

bool IsTapType(uint32_t dtype) {
  return dtype == ASSAY_F64 || dtype == ASSAY_F32 || dtype == ASSAY_F16 || dtype == ASSAY_BF16 ||
         dtype == ASSAY_I32 || dtype == ASSAY_I8;
}

// What is wrong with a tap; empty if nothing is.
std::string Complain(const assay_tensor& value, int ranks, const std::string& name) {
  if (value.rank < -1 || value.rank >= ranks) {
    return fmt::format("gave tap {} of rank {}; ranks are -1 to {}", name, value.rank, ranks - 1);
  }
  if (!IsTapType(value.dtype)) {
    return fmt::format("gave tap {} in type {}; allowed are F64, F32, F16, BF16, I32, I8", name,
                       value.dtype);
  }
  if (value.ndim > 4)
    return fmt::format("gave tap {} with {} dimensions, 4 at most", name, value.ndim);
  uint64_t bytes = 0;
  if (!SizeInBytes(value.shape, value.ndim, static_cast<DType>(value.dtype), &bytes)) {
    return fmt::format("gave tap {} with an extent that is negative or too large", name);
  }
  if (bytes != value.bytes) {
    return fmt::format("gave tap {} with {} bytes; its shape and type need {}", name, value.bytes,
                       bytes);
  }
  if (bytes != 0 && value.data == nullptr) {
    return fmt::format("gave tap {} without data", name);
  }
  return "";
}

}  // namespace

std::string TextOrNothing(const char* text) {
  if (text == nullptr) return "";
  return std::string(text, strnlen(text, kNameAtMost));
}

bool ReadName(const char* text, std::string* out) {
  if (text == nullptr) {
    *out = "(NULL)";
    return false;
  }
  const size_t length = strnlen(text, kNameAtMost + 1);
  bool sound = length >= 1 && length <= kNameAtMost;
  *out = std::string(text, std::min(length, kNameAtMost));
  for (char& letter : *out) {
    if (letter > ' ' && letter <= '~') continue;
    letter = '?';
    sound = false;
  }
  return sound;
}

bool SizeInBytes(const int64_t* shape, size_t ndim, DType dtype, uint64_t* out) {
  int64_t product = SizeOf(dtype).count();
  for (size_t i = 0; i < ndim; ++i) {
    if (shape[i] < 0) return false;
    if (__builtin_mul_overflow(product, shape[i], &product)) return false;
  }
  *out = static_cast<uint64_t>(product);
  return true;
}

Host::Host(Recorder* recorder, Poison poison, int ranks)
    : recorder_(recorder), poison_(poison), ranks_(ranks) {
  table_.size = sizeof table_;
  table_.context = this;
  // An exception must not travel through an engine's C frames.
  table_.alloc = [](void* context, uint64_t bytes, uint64_t alignment) -> void* {
    Host* host = static_cast<Host*>(context);
    try {
      return host->Allocate(bytes, alignment);
    } catch (const std::bad_alloc&) {
      host->out_of_memory_ = true;
      return nullptr;
    }
  };
  table_.free = [](void* context, void* pointer) {
    Host* host = static_cast<Host*>(context);
    try {
      host->Free(pointer);
    } catch (const std::bad_alloc&) {
      host->out_of_memory_ = true;
    }
  };
  table_.tap = [](void* context, const assay_tensor* value) {
    Host* host = static_cast<Host*>(context);
    try {
      host->Tap(value);
    } catch (const std::bad_alloc&) {
      host->out_of_memory_ = true;
    }
  };
  table_.executed = [](void* context, const assay_executed* record) {
    Host* host = static_cast<Host*>(context);
    try {
      host->Executed(record);
    } catch (const std::bad_alloc&) {
      host->out_of_memory_ = true;
    }
  };
}

void* Host::Allocate(uint64_t bytes, uint64_t alignment) {
  std::string label = fmt::format("host memory {} ({} bytes)", allocated_++, bytes);
  auto buffer = GuardedBuffer::Make(std::move(label), bytes, alignment, poison_);
  if (buffer == nullptr) {
    const bool legal = alignment != 0 && (alignment & (alignment - 1)) == 0 && alignment <= 4096;
    out_of_memory_ = out_of_memory_ || legal;
    return nullptr;
  }
  FillPoison(poison_, DType::kF32, buffer->span());
  void* const data = buffer->data();
  buffers_.emplace(data, std::move(buffer));
  return data;
}

void Host::Free(void* pointer) {
  if (pointer == nullptr) return;
  const auto found = buffers_.find(pointer);
  if (found == buffers_.end()) {
    return recorder_->Violation("freed a pointer that the host's alloc() did not give");
  }
  const std::string wrong = found->second->CheckMargins();
  if (!wrong.empty()) recorder_->Violation(wrong);
  buffers_.erase(found);
}

void Host::CheckMemory() {
  for (const auto& [pointer, buffer] : buffers_) {
    const std::string wrong = buffer->CheckMargins();
    if (!wrong.empty()) return recorder_->Violation(wrong);
  }
}

void Host::Tap(const assay_tensor* value) {
  if (value == nullptr || value->size < offsetof(assay_tensor, bytes) + sizeof value->bytes) {
    return recorder_->Violation("gave a tap whose structure is too small");
  }
  std::string name;
  if (!ReadName(value->name, &name)) {
    return recorder_->Violation(
        fmt::format("gave a tap with a bad name ({}): 1 to {} printable characters are allowed",
                    name.substr(0, 40), kNameAtMost));
  }
  const std::string wrong = Complain(*value, ranks_, name);
  if (!wrong.empty()) return recorder_->Violation(wrong);
  recorder_->Tap({step_, name, value->rank}, static_cast<DType>(value->dtype),
                 std::vector<int64_t>(value->shape, value->shape + value->ndim),
                 {static_cast<const std::byte*>(value->data), value->bytes});
}

void Host::Executed(const assay_executed* record) {
  if (record == nullptr ||
      record->size < offsetof(assay_executed, threads) + sizeof record->threads) {
    return recorder_->Violation("gave an executed record whose structure is too small");
  }
  std::string tap;
  if (!ReadName(record->tap, &tap) || record->rank < -1 || record->rank >= ranks_) {
    return recorder_->Violation(
        fmt::format("gave an executed record of tap {}, rank {}; ranks are -1 to {}",
                    tap.substr(0, 40), record->rank, ranks_ - 1));
  }
  ExecutedRecord copy;
  copy.tap = tap;
  copy.rank = record->rank;
  copy.kernel = TextOrNothing(record->kernel);
  copy.tier = TextOrNothing(record->tier);
  copy.layout = TextOrNothing(record->layout);
  copy.act = TextOrNothing(record->act);
  copy.threads = record->threads;
  if (record->size >= offsetof(assay_executed, how) + sizeof record->how) {
    copy.how = TextOrNothing(record->how);
  }
  recorder_->Executed(copy);
}

}  // namespace assay::abi
