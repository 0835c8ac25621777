// The project's own source files, for tests that look at all of them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace assay::tests {

struct SourceFile {
  std::string path;  // from the repository's root: "harness/units/units.h"
  std::string text;
};

// Where the sources are, also when the test runs among Bazel's links.
std::string RepositoryRoot();

// Every text file of code, build or prose in the tree, sorted by path. Left out: .git, Bazel's
// links, golden data (files of numbers), what .gitignore names.
std::vector<SourceFile> ReadTree(const std::string& root);

bool EndsWith(std::string_view path, std::initializer_list<std::string_view> suffixes);
bool IsUnder(std::string_view path, std::string_view folder);  // "harness/judge"
std::string FolderOf(std::string_view path);                   // "" for the root

// The same text with comments and the insides of string and character literals blanked out; line
// breaks stay, so that lines keep their numbers.
std::string CodeOnly(std::string_view cpp);

}  // namespace assay::tests
