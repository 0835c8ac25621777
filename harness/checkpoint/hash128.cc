#include "harness/checkpoint/hash128.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace assay {

Hash128::Hash128() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_);
}

Hash128::~Hash128() { XXH3_freeState(state_); }

void Hash128::AddBytes(std::span<const std::byte> bytes) {
  AddNumber(bytes.size());
  XXH3_128bits_update(state_, bytes.data(), bytes.size());
}

void Hash128::AddNumber(uint64_t number) {
  XXH3_128bits_update(state_, &number, sizeof(number));  // little endian hosts only, as all of this
}

std::string Hash128::Hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace assay
