// BUILD files read well enough for rules about them. Not an interpreter: a call's keyword takes all
// strings that stand in its value, so a concatenation counts as all of its parts.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/tree.h"

namespace assay::tests {

struct Target {
  std::string rule;     // "cc_library"
  std::string package;  // "harness/units"
  std::string name;
  std::map<std::string, std::vector<std::string>> attributes;
  std::string label() const { return "//" + package + ":" + name; }
  // Empty if the attribute is not there.
  const std::vector<std::string>& Strings(const std::string& attribute) const;
};

// The calls with a name of one BUILD file.
std::vector<Target> ParseBuild(const SourceFile& file);
// Of every BUILD file of the tree.
std::vector<Target> AllTargets(const std::vector<SourceFile>& tree);

// A label as a target's attribute writes it, in full: ":x" -> "//here:x", "//a/b" -> "//a/b:b";
// "@sys//:fmt" stays.
std::string FullLabel(std::string_view package, std::string_view label);
// "//harness/abi:contract" -> "harness/abi"; "" for another repository's.
std::string PackageOf(std::string_view full_label);

}  // namespace assay::tests
