#include "harness/checkpoint/shown.h"

#include <fmt/format.h>

#include <cstdint>

namespace assay {
namespace {

// Length of the well-formed UTF-8 sequence at the start of text and its code point; 0 if there is
// none. Overlong forms and surrogates are not well-formed.
struct Decoded {
  size_t length = 0;
  uint32_t code = 0;
};

Decoded DecodeUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {1, first};
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return {};
  uint32_t code = first & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = (code << 6) | (byte(i) & 0x3FU);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kSmallest[length] || code > 0x10FFFF || surrogate) return {};
  return {length, code};
}

// Characters that move the cursor, reorder text or cannot be seen.
bool IsInvisible(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0xAD || code == 0x61C ||
         (code >= 0x200B && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF || code >= 0xE0000;
}

std::string Escape(std::string_view text, bool in_quotes) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Decoded next = DecodeUtf8(text);
    const size_t length = next.length == 0 ? 1 : next.length;
    const bool special = next.code == '\\' || (in_quotes && next.code == '\'');
    if (next.length == 0 || special || IsInvisible(next.code)) {
      for (size_t i = 0; i < length; ++i) {
        out += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[i]));
      }
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string EscapeAndCut(std::string_view text, size_t max_bytes, bool in_quotes) {
  if (text.size() <= max_bytes) return Escape(text, in_quotes);
  const size_t half = max_bytes / 2;
  return fmt::format("{}...({} bytes)...{}", Escape(text.substr(0, half), in_quotes), text.size(),
                     Escape(text.substr(text.size() - half), in_quotes));
}

}  // namespace

std::string Shown(std::string_view text, size_t max_bytes) {
  return EscapeAndCut(text, max_bytes, /*in_quotes=*/false);
}

std::string Quoted(std::string_view text, size_t max_bytes) {
  return "'" + EscapeAndCut(text, max_bytes, /*in_quotes=*/true) + "'";
}

std::string ShownPath(std::string_view path) { return Escape(path, /*in_quotes=*/false); }

}  // namespace assay
