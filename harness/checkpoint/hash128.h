// XXH3 with 128 bits over a sequence of items. Not cryptographic: it identifies, it does not
// authenticate. Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace assay {

class Hash128 {
 public:
  Hash128();
  ~Hash128();
  Hash128(const Hash128&) = delete;
  Hash128& operator=(const Hash128&) = delete;

  // Each item's length is hashed before it, so that items cannot flow into each other.
  void AddBytes(std::span<const std::byte> bytes);
  void AddText(std::string_view text) { AddBytes(std::as_bytes(std::span(text))); }
  void AddNumber(uint64_t number);
  std::string Hex() const;  // 32 digits, high half first

 private:
  XXH3_state_s* state_;
};

}  // namespace assay
