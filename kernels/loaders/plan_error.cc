#include "kernels/loaders/plan_error.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string_view>

namespace assay::kernels {
namespace {

constexpr std::array<std::string_view, 6> kUnits = {"element", "word",   "group",
                                                    "block",   "expert", "head"};

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Words of a message, in order.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  // Moves behind `mark`.
  bool Skip(std::string_view mark) {
    const size_t at = text_.find(mark);
    if (at == std::string_view::npos) return false;
    text_.remove_prefix(at + mark.size());
    return true;
  }
  std::string_view Word() {
    const size_t end = std::min(text_.find_first_of(" ,;:)"), text_.size());
    const std::string_view word = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    return word;
  }
  // The next "12 words": a count with a unit behind it.
  bool Count(int64_t* count, std::string* unit) {
    while (!text_.empty()) {
      const std::string_view word = Word();
      if (word.empty() || !std::all_of(word.begin(), word.end(), IsDigit)) continue;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *count);
      if (error != std::errc()) continue;
      Reader rest(text_);
      std::string_view name = rest.Word();
      if (name.ends_with('s')) name.remove_suffix(1);
      if (std::find(kUnits.begin(), kUnits.end(), name) == kUnits.end()) continue;
      *unit = std::string(name);
      text_ = rest.text_;
      return true;
    }
    return false;
  }
  // "... no whole number of groups of 32": in elements.
  bool WholeNumberOf(int64_t* count) {
    if (!Skip("no whole number of ") || !Skip(" of ")) return false;
    const std::string_view word = Word();
    return std::from_chars(word.data(), word.data() + word.size(), *count).ec == std::errc();
  }

 private:
  std::string_view text_;
};

}  // namespace

EngineError ErrorOf(const Error& error) {
  EngineError made(error.kind == ErrorKind::kUnsupported   ? ASSAY_UNSUPPORTED
                   : error.kind == ErrorKind::kEnvironment ? ASSAY_FAILED
                                                           : ASSAY_REFUSED,
                   error.message);
  const std::string_view message = error.message;
  const std::string_view name = message.substr(0, message.find(": "));
  if (name.size() == message.size() || name == "config") return made;
  made.tensor = std::string(name.substr(0, name.find(" (")));
  Reader reader(message.substr(name.size()));
  if (!reader.Skip("axis ")) return made;
  made.axis = std::string(reader.Word());
  if (!reader.Count(&made.got, &made.got_unit)) return made;
  Reader whole = reader;
  if (whole.WholeNumberOf(&made.expected)) {
    made.expected_unit = made.got_unit;
    return made;
  }
  // "but config's group_size 32 over 96 elements needs 3 groups"
  Reader needs = reader;
  if (needs.Skip("needs ")) reader = needs;
  if (!reader.Count(&made.expected, &made.expected_unit)) {
    made.expected = 0;
    made.expected_unit.clear();
  }
  return made;
}

EngineError ErrorOf(const shard::Refusal& refusal) {
  EngineError error(ASSAY_REFUSED, refusal.Message());
  error.tensor = refusal.tensor;
  error.axis = refusal.axis;
  error.got = refusal.extent;
  error.got_unit = refusal.unit;
  error.expected = refusal.parts;
  error.expected_unit = "part";
  return error;
}

}  // namespace assay::kernels
