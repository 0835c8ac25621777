#include "tests/build_files.h"

#include <algorithm>
#include <cctype>

namespace assay::tests {
namespace {

struct Token {
  enum Kind { kWord, kString, kMark } kind;
  std::string text;
};

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

std::string ReadString(std::string_view text, size_t& at) {
  const std::string three(3, text[at]);
  const bool is_long = text.substr(at, 3) == three;
  const std::string_view quote = text.substr(at, is_long ? 3 : 1);
  std::string value;
  for (at += quote.size(); at < text.size() && text.substr(at, quote.size()) != quote; ++at) {
    if (text[at] == '\\' && at + 1 < text.size()) ++at;
    value += text[at];
  }
  at = std::min(at + quote.size(), text.size());
  return value;
}

std::vector<Token> Tokens(std::string_view text) {
  std::vector<Token> tokens;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '"' || c == '\'') {
      tokens.push_back({Token::kString, ReadString(text, at)});
    } else if (IsWord(c)) {
      const size_t begin = at;
      while (at < text.size() && IsWord(text[at])) ++at;
      tokens.push_back({Token::kWord, std::string(text.substr(begin, at - begin))});
    } else {
      if (!std::isspace(static_cast<unsigned char>(c))) {
        tokens.push_back({Token::kMark, std::string(1, c)});
      }
      ++at;
    }
  }
  return tokens;
}

bool IsMark(const std::vector<Token>& tokens, size_t at, char mark) {
  return at < tokens.size() && tokens[at].kind == Token::kMark && tokens[at].text[0] == mark;
}

// The call whose "(" is at `at`; leaves `at` behind its ")".
void ReadCall(const std::vector<Token>& tokens, size_t& at, Target& target) {
  std::string key;
  int depth = 0;
  for (; at < tokens.size(); ++at) {
    const Token& token = tokens[at];
    if (token.kind == Token::kString) {
      target.attributes[key].push_back(token.text);
    } else if (token.kind == Token::kWord && depth == 1 && IsMark(tokens, at + 1, '=')) {
      key = token.text;
    } else if (token.kind == Token::kMark) {
      const char mark = token.text[0];
      if (mark == '(' || mark == '[' || mark == '{') ++depth;
      if (mark == ')' || mark == ']' || mark == '}') --depth;
      if (depth == 0) break;
    }
  }
  ++at;
}

}  // namespace

const std::vector<std::string>& Target::Strings(const std::string& attribute) const {
  static const std::vector<std::string> none;
  const auto found = attributes.find(attribute);
  return found == attributes.end() ? none : found->second;
}

std::vector<Target> ParseBuild(const SourceFile& file) {
  std::vector<Target> targets;
  const std::vector<Token> tokens = Tokens(file.text);
  for (size_t at = 0; at < tokens.size();) {
    if (tokens[at].kind != Token::kWord || !IsMark(tokens, at + 1, '(')) {
      ++at;
      continue;
    }
    Target target{tokens[at].text, FolderOf(file.path), "", {}};
    ReadCall(tokens, ++at, target);
    if (target.Strings("name").empty()) continue;
    target.name = target.Strings("name").front();
    targets.push_back(std::move(target));
  }
  return targets;
}

std::vector<Target> AllTargets(const std::vector<SourceFile>& tree) {
  std::vector<Target> all;
  for (const SourceFile& file : tree) {
    // Forbidden targets on purpose (tests/walls/README.md), and other workspaces.
    if (IsUnder(file.path, "tests/walls/overlay") || IsUnder(file.path, "third_party/shims"))
      continue;
    if (file.path != "BUILD" && !file.path.ends_with("/BUILD")) continue;
    for (Target& target : ParseBuild(file)) all.push_back(std::move(target));
  }
  return all;
}

std::string FullLabel(std::string_view package, std::string_view label) {
  if (label.starts_with("@")) return std::string(label);
  std::string text(label);
  if (!label.starts_with("//")) {
    return "//" + std::string(package) + (label.starts_with(":") ? "" : ":") + text;
  }
  if (label.find(':') != label.npos) return text;
  return text + ":" + text.substr(text.rfind('/') + 1);
}

std::string PackageOf(std::string_view full_label) {
  if (!full_label.starts_with("//")) return "";
  return std::string(full_label.substr(2, full_label.find(':') - 2));
}

}  // namespace assay::tests
