#include "harness/abi/guarded.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

namespace assay::abi {
namespace {

GuardedBuffer* first_buffer = nullptr;

uint64_t PageBytes() {
  static const uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Margins are filled as if they held F32, phased from the mapping's start.
class MarginPattern {
 public:
  explicit MarginPattern(Poison poison) { FillPoison(poison, DType::kF32, bytes_); }

  static const MarginPattern& Of(Poison poison) {
    static const MarginPattern nan(Poison::kNaN), large(Poison::kLarge);
    return poison == Poison::kNaN ? nan : large;
  }

  void Fill(std::byte* begin, std::byte* end, const std::byte* origin) const {
    ForChunks(begin, end, origin, [](std::byte* at, const std::byte* pattern, size_t length) {
      std::memcpy(at, pattern, length);
    });
  }

  uint64_t CountChanged(const std::byte* begin, const std::byte* end,
                        const std::byte* origin) const {
    uint64_t changed = 0;
    ForChunks(begin, end, origin,
              [&](const std::byte* at, const std::byte* pattern, size_t length) {
                if (std::memcmp(at, pattern, length) == 0) return;
                for (size_t i = 0; i < length; ++i) changed += at[i] != pattern[i] ? 1 : 0;
              });
    return changed;
  }

 private:
  static constexpr size_t kValue = 4;
  static constexpr size_t kChunk = 4096;

  template <class Byte, class Visit>
  void ForChunks(Byte* begin, Byte* end, const std::byte* origin, const Visit& visit) const {
    while (begin != end) {
      const size_t phase = static_cast<size_t>(begin - origin) % kValue;
      const size_t length = std::min(kChunk, static_cast<size_t>(end - begin));
      visit(begin, bytes_.data() + phase, length);
      begin += length;
    }
  }

  std::array<std::byte, kChunk + kValue> bytes_;
};

}  // namespace

uint64_t PoisonBits(Poison poison, DType dtype) {
  if (IsBlock(dtype)) dtype = DType::kU8;  // a block has no bits of one value: byte by byte
  const int64_t bytes = SizeOf(dtype).count();
  if (poison == Poison::kNaN) return ~uint64_t{0} >> (64 - 8 * bytes);
  switch (dtype) {
    case DType::kF64:
      return std::bit_cast<uint64_t>(1e4);
    case DType::kF32:
      return std::bit_cast<uint32_t>(1e4f);
    case DType::kF16:
      return 0x70e2;
    case DType::kBF16:
      return 0x461c;  // 9984
    case DType::kF8E4M3:
      return 0x7e;  // 448
    case DType::kF8E5M2:
      return 0x71;  // 10240
    case DType::kF8E8M0:
      return 127 + 13;  // 8192
    case DType::kI8:
    case DType::kU8:
      return 100;
    case DType::kBool:
      return 1;
    default:
      return 10000;
  }
}

void FillPoison(Poison poison, DType dtype, std::span<std::byte> memory) {
  const uint64_t bits = PoisonBits(poison, dtype);
  const auto size = IsBlock(dtype) ? 1 : static_cast<size_t>(SizeOf(dtype).count());
  if (poison == Poison::kNaN) {
    std::memset(memory.data(), 0xff, memory.size());
    return;
  }
  size_t at = 0;
  for (; at + size <= memory.size(); at += size) std::memcpy(memory.data() + at, &bits, size);
  std::memcpy(memory.data() + at, &bits, memory.size() - at);
}

std::unique_ptr<GuardedBuffer> GuardedBuffer::Make(std::string label, uint64_t bytes,
                                                   uint64_t alignment, Poison poison) {
  const uint64_t page = PageBytes();
  if (!std::has_single_bit(alignment) || alignment > 4096) return nullptr;
  if (bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) - 8 * page) return nullptr;
  // The data is followed by at most alignment - 1 bytes of margin, then by the guard page.
  const uint64_t reserved = (bytes + alignment - 1) / alignment * alignment;
  const uint64_t pages = (reserved + page - 1) / page;
  const uint64_t mapped = (pages + 3) * page;
  void* mapping =
      mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  std::unique_ptr<GuardedBuffer> buffer(new GuardedBuffer());
  buffer->mapping_ = static_cast<std::byte*>(mapping);
  buffer->mapped_ = mapped;
  std::byte* const inside = buffer->mapping_ + page;
  std::byte* const guard = buffer->mapping_ + mapped - page;
  const bool usable =
      mprotect(inside, static_cast<size_t>(guard - inside), PROT_READ | PROT_WRITE) == 0;
  buffer->label_ = std::move(label);
  buffer->poison_ = poison;
  buffer->bytes_ = bytes;
  buffer->data_ = guard - reserved;
  buffer->next_ = first_buffer;
  if (first_buffer != nullptr) first_buffer->previous_ = buffer.get();
  first_buffer = buffer.get();
  if (!usable) return nullptr;
  const MarginPattern& margin = MarginPattern::Of(poison);
  margin.Fill(inside, buffer->data_, buffer->mapping_);
  margin.Fill(buffer->data_ + bytes, guard, buffer->mapping_);
  return buffer;
}

GuardedBuffer::~GuardedBuffer() {
  if (previous_ != nullptr) previous_->next_ = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  if (first_buffer == this) first_buffer = next_;
  munmap(mapping_, mapped_);
}

std::string GuardedBuffer::CheckMargins() const {
  const uint64_t page = PageBytes();
  const std::byte* const inside = mapping_ + page;
  const std::byte* const guard = mapping_ + mapped_ - page;
  const uint64_t before = MarginPattern::Of(poison_).CountChanged(inside, data_, mapping_);
  if (before != 0) return fmt::format("wrote {} bytes before the start of {}", before, label_);
  const uint64_t after = MarginPattern::Of(poison_).CountChanged(data_ + bytes_, guard, mapping_);
  if (after != 0) return fmt::format("wrote {} bytes past the end of {}", after, label_);
  return "";
}

const GuardedBuffer* GuardedBuffer::FindByGuard(const void* address, int64_t* distance) {
  const auto* at = static_cast<const std::byte*>(address);
  const uint64_t page = PageBytes();
  for (const GuardedBuffer* buffer = first_buffer; buffer != nullptr; buffer = buffer->next_) {
    const std::byte* const end = buffer->mapping_ + buffer->mapped_;
    if (at >= buffer->mapping_ && at < buffer->mapping_ + page) {
      *distance = at - buffer->data_;
      return buffer;
    }
    if (at >= end - page && at < end) {
      *distance = at - (buffer->data_ + buffer->bytes_);
      return buffer;
    }
  }
  return nullptr;
}

}  // namespace assay::abi
