#include "reports/text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>

namespace assay::reports {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

void AppendUtf8(char32_t point, std::string* out) {
  const auto tail = [&](int shift) {
    out->push_back(static_cast<char>(0x80 | ((point >> shift) & 0x3F)));
  };
  if (point < 0x80) {
    out->push_back(static_cast<char>(point));
  } else if (point < 0x800) {
    out->push_back(static_cast<char>(0xC0 | (point >> 6)));
    tail(0);
  } else if (point < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | (point >> 12)));
    tail(6), tail(0);
  } else {
    out->push_back(static_cast<char>(0xF0 | (point >> 18)));
    tail(12), tail(6), tail(0);
  }
}

// Takes the first code point off `text`. Overlong forms, surrogates and cut sequences give the
// replacement character for their first byte.
char32_t TakeCodePoint(std::string_view* text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>((*text)[i]); };
  const unsigned char lead = byte(0);
  size_t length = 1;
  char32_t point = lead;
  if (lead >= 0x80) {
    length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    point = lead & (0xFF >> (length + 1));
    bool good = lead >= 0xC2 && lead <= 0xF4 && text->size() >= length;
    for (size_t i = 1; good && i < length; ++i) {
      good = (byte(i) & 0xC0) == 0x80;
      point = (point << 6) | (byte(i) & 0x3F);
    }
    constexpr char32_t kLowest[] = {0, 0, 0x80, 0x800, 0x10000};
    good = good && point >= kLowest[length] && point <= 0x10FFFF &&
           !(point >= 0xD800 && point <= 0xDFFF);
    if (!good) length = 1, point = kReplacement;
  }
  text->remove_prefix(length);
  return point;
}

// Characters that show nothing, and could make a text look like another one.
bool IsInvisible(char32_t point) {
  return point < 0x20 || (point >= 0x7F && point < 0xA0) || point == 0xAD ||
         (point >= 0x200B && point <= 0x200F) || (point >= 0x2028 && point <= 0x202E) ||
         (point >= 0x2060 && point <= 0x206F) || point == 0xFEFF || point == 0xFFFE ||
         point == 0xFFFF;
}

// Byte length of the first `columns` code points.
size_t Prefix(std::string_view text, int columns) {
  size_t at = 0;
  while (at < text.size() && columns > 0) {
    ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
    --columns;
  }
  return at;
}

}  // namespace

std::string Visible(std::string_view text, bool lines) {
  std::string out;
  while (!text.empty()) {
    const char32_t point = TakeCodePoint(&text);
    if (lines && (point == '\n' || point == '\t')) {
      out.push_back(static_cast<char>(point));
    } else if (IsInvisible(point)) {
      out += point < 0x100 ? fmt::format("\\x{:02x}", static_cast<uint32_t>(point))
                           : fmt::format("\\u{:04x}", static_cast<uint32_t>(point));
    } else {
      AppendUtf8(point, &out);
    }
  }
  return out;
}

std::string Escaped(std::string_view text, bool lines) {
  std::string out;
  for (const char c : Visible(text, lines)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

int Width(std::string_view text) {
  int columns = 0;
  for (const char c : text) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return columns;
}

std::vector<std::string> Wrapped(std::string_view text, int columns, int indent) {
  std::vector<std::string> lines;
  std::string line;
  const std::string margin(static_cast<size_t>(indent), ' ');
  const auto room = [&] { return columns - Width(line); };
  bool fresh = true;  // nothing but the margin on this line
  const auto next_line = [&] {
    lines.push_back(line);
    line = margin;
    fresh = true;
  };
  while (!text.empty()) {
    const size_t space = text.find(' ');
    std::string_view word = text.substr(0, space);
    text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
    if (!fresh && Width(word) + 1 > room()) next_line();
    if (!fresh) line += ' ';
    while (Width(word) > room()) {
      const size_t cut = Prefix(word, room());
      line += word.substr(0, cut);
      word.remove_prefix(cut);
      next_line();
    }
    line += word;
    fresh = false;
  }
  if (!fresh || lines.empty()) lines.push_back(line);
  return lines;
}

std::string Shortened(const std::string& text, int columns, std::string_view ellipsis) {
  const int width = Width(text);
  if (width <= columns) return text;
  const int keep = std::max(0, columns - Width(ellipsis));
  const int head = keep - keep / 3;
  const size_t tail = Prefix(text, width - (keep - head));
  return text.substr(0, Prefix(text, head)) + std::string(ellipsis) + text.substr(tail);
}

std::string NumberText(const std::optional<double>& value) {
  if (!value) return "–";
  if (std::isnan(*value)) return "nan";
  return fmt::format("{:.6g}", *value);
}

std::pair<std::string, std::string> ValueTexts(const std::optional<double>& a,
                                               const std::optional<double>& b) {
  std::pair<std::string, std::string> out{NumberText(a), NumberText(b)};
  if (a && b && out.first == out.second && *a != *b && !std::isnan(*a)) {
    out = {fmt::format("{}", *a), fmt::format("{}", *b)};
  }
  return out;
}

std::string BytesText(const std::string& bytes) {
  uint64_t count = 0;
  const auto [end, error] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), count);
  if (error != std::errc() || end != bytes.data() + bytes.size()) return bytes;
  return fmt::format("{:.1f} GiB", static_cast<double>(count) / double{1 << 30});
}

std::string DurationText(double seconds) {
  if (!(seconds >= 0) || std::isinf(seconds)) return "?";
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  const auto whole = std::llround(std::min(seconds, 1e15));
  if (whole < 120) return fmt::format("{} s", whole);
  if (whole < 7200) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string Joined(const std::vector<std::string>& parts, std::string_view between) {
  return fmt::format("{}", fmt::join(parts, between));
}

std::string IndexText(const std::vector<int64_t>& index) {
  return fmt::format("[{}]", fmt::join(index, ", "));
}

std::string Counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace assay::reports
