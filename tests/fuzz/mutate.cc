#include "tests/fuzz/mutate.h"

#include <algorithm>

namespace assay::fuzz {
namespace {

constexpr size_t kLongest = 1 << 16;
constexpr size_t kLongestPiece = 64;

class Mutator {
 public:
  explicit Mutator(std::mt19937_64* random) : random_(*random) {}

  size_t Below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void Damage(std::string* bytes, const std::string& other,
              const std::vector<std::string>& tokens) {
    const size_t at = Below(bytes->size() + 1);
    const size_t length = std::min(Below(kLongestPiece) + 1, bytes->size() - at);
    switch (Below(8)) {
      case 0:
        if (at < bytes->size()) (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << Below(8)));
        break;
      case 1:
        if (at < bytes->size()) (*bytes)[at] = static_cast<char>(random_());
        break;
      case 2:
        bytes->erase(at, length);
        break;
      case 3:
        bytes->insert(at, bytes->substr(at, length));
        break;
      case 4:
        if (!tokens.empty()) bytes->insert(at, tokens[Below(tokens.size())]);
        break;
      case 5:  // in place of as many bytes: structure around it stays
        if (!tokens.empty()) {
          const std::string& token = tokens[Below(tokens.size())];
          bytes->replace(at, std::min(token.size(), bytes->size() - at), token);
        }
        break;
      case 6:
        bytes->resize(at);
        break;
      default:
        bytes->replace(at, length, other.substr(Below(other.size() + 1), length));
        break;
    }
    if (bytes->size() > kLongest) bytes->resize(kLongest);
  }

 private:
  std::mt19937_64& random_;
};

}  // namespace

std::string Mutate(std::string bytes, const std::string& other,
                   const std::vector<std::string>& tokens, std::mt19937_64* random) {
  Mutator mutator(random);
  for (size_t count = 1 + mutator.Below(4); count > 0; --count) {
    mutator.Damage(&bytes, other, tokens);
  }
  return bytes;
}

}  // namespace assay::fuzz
