#include "tests/tree.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace assay::tests {

namespace fs = std::filesystem;

std::string RepositoryRoot() {
  // Bazel's link to this file ends in the tree; run by hand, it is the file itself.
  const fs::path self = fs::canonical("tests/gtest_main.cc");
  const fs::path root = self.parent_path().parent_path();
  if (!fs::exists(root / "WORKSPACE")) {
    throw std::runtime_error("no WORKSPACE in " + root.string());
  }
  return root.string();
}

bool EndsWith(std::string_view path, std::initializer_list<std::string_view> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(),
                     [&](std::string_view suffix) { return path.ends_with(suffix); });
}

bool IsUnder(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && path.size() > folder.size() && path[folder.size()] == '/';
}

std::string FolderOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == path.npos ? "" : path.substr(0, slash));
}

std::vector<SourceFile> ReadTree(const std::string& root) {
  std::vector<SourceFile> files;
  auto it = fs::recursive_directory_iterator(root);
  for (const fs::directory_entry& entry : it) {
    const std::string path = fs::relative(entry.path(), root).string();
    const std::string name = entry.path().filename().string();
    if (entry.is_symlink() || name.starts_with(".git") || name == ".assay" ||
        name.starts_with("assay-out")) {
      if (entry.is_directory()) it.disable_recursion_pending();
      continue;
    }
    const bool is_text = name == "BUILD" || name == "WORKSPACE" || name == "assay" ||
                         EndsWith(name, {".cc", ".h", ".c", ".bzl", ".py", ".sh", ".md"});
    if (!entry.is_regular_file() || !is_text) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    files.push_back({path, {std::istreambuf_iterator<char>(file), {}}});
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

namespace {

// The end (one past) of what begins at `at`: a comment, a literal, or one character of code.
size_t EndOfToken(std::string_view cpp, size_t at) {
  const auto after = [&](std::string_view end, size_t from) {
    const size_t found = cpp.find(end, from);
    return found == cpp.npos ? cpp.size() : found + end.size();
  };
  if (cpp.substr(at, 2) == "//") return std::min(cpp.find('\n', at), cpp.size());
  if (cpp.substr(at, 2) == "/*") return after("*/", at + 2);
  if (cpp.substr(at, 2) == "R\"") {
    const size_t open = cpp.find('(', at);
    if (open == cpp.npos) return cpp.size();
    return after(")" + std::string(cpp.substr(at + 2, open - at - 2)) + "\"", open);
  }
  const char quote = cpp[at];
  const bool digit_separator =
      quote == '\'' && at > 0 && std::isalnum(static_cast<unsigned char>(cpp[at - 1]));
  if ((quote != '"' && quote != '\'') || digit_separator) return at + 1;
  size_t end = at + 1;
  while (end < cpp.size() && cpp[end] != quote && cpp[end] != '\n') {
    end += cpp[end] == '\\' ? 2 : 1;
  }
  return std::min(end + 1, cpp.size());
}

}  // namespace

std::string CodeOnly(std::string_view cpp) {
  std::string code(cpp);
  for (size_t at = 0; at < cpp.size();) {
    const size_t end = EndOfToken(cpp, at);
    if (end > at + 1) {
      const bool literal = cpp[at] != '/';
      for (size_t i = at; i < end; ++i) {
        if (code[i] != '\n') code[i] = ' ';
      }
      if (literal) code[at] = code[end - 1] = '"';
    }
    at = end;
  }
  return code;
}

}  // namespace assay::tests
