#include "tests/walls/walls.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <string_view>

namespace assay::tests {
namespace {

struct Wall {
  std::string_view room;
  std::vector<std::string_view> packages;  // these and what lies under them
  std::vector<std::string_view> labels;    // single targets
  std::vector<std::string_view> headers;   // the headers of those
};

const std::vector<Wall>& Walls() {
  static const std::vector<Wall> walls = {
      {"kernels",
       {"kernels", "harness/units", "harness/checkpoint", "harness/shard", "harness/abi"},
       // A header of plain data that abi:child hands out; nothing in kernels/ includes it itself.
       {"//harness/store:trace"},
       {}},
      {"reference",
       {"reference", "harness/units", "harness/checkpoint"},
       {"//harness/abi:contract"},
       {"harness/abi/contract.h"}},
  };
  return walls;
}

bool IsIn(std::string_view path, std::string_view folder) {
  return path == folder || IsUnder(path, folder);
}

bool InAny(std::string_view path, const std::vector<std::string_view>& folders) {
  return std::any_of(folders.begin(), folders.end(),
                     [&](std::string_view folder) { return IsIn(path, folder); });
}

bool Contains(const std::vector<std::string_view>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool MayReach(const Wall& wall, const std::string& label) {
  // System libraries, golden data and the main() of tests are nobody's room.
  if (label.starts_with("@") || label == "//tests:gtest_main") return true;
  const std::string package = PackageOf(label);
  return IsIn(package, "goldens") || InAny(package, wall.packages) || Contains(wall.labels, label);
}

using Graph = std::map<std::string, std::set<std::string>>;

Graph DependencyGraph(const std::vector<Target>& targets) {
  Graph graph;
  for (const Target& target : targets) graph[target.label()];
  for (const Target& target : targets) {
    for (const char* attribute : {"deps", "data", "tools", "srcs", "actual"}) {
      for (const std::string& label : target.Strings(attribute)) {
        const std::string full = FullLabel(target.package, label);
        // What is no target of this package is one of its files.
        if (PackageOf(full) == target.package && !graph.contains(full)) continue;
        graph[target.label()].insert(full);
      }
    }
  }
  return graph;
}

// Follows what is allowed, and reports each step over the wall. What may be seen brings the parts
// that it has in its own package.
void Walk(const Wall& wall, const Graph& graph, const std::string& from, Breaches& breaches) {
  std::set<std::string> seen = {from};
  std::vector<std::string> open = {from};
  while (!open.empty()) {
    const std::string label = open.back();
    open.pop_back();
    const auto found = graph.find(label);
    if (found == graph.end()) continue;
    for (const std::string& next : found->second) {
      if (!seen.insert(next).second) continue;
      if (MayReach(wall, next) || PackageOf(next) == PackageOf(label)) {
        open.push_back(next);
        continue;
      }
      const std::string through = label == from ? "" : " through " + label;
      breaches.push_back(
          fmt::format("{} depends on {}{}: {}/ may not see it", from, next, through, wall.room));
    }
  }
}

}  // namespace

Breaches ForbiddenDependencies(const std::vector<Target>& targets) {
  const Graph graph = DependencyGraph(targets);
  Breaches breaches;
  for (const Target& target : targets) {
    for (const Wall& wall : Walls()) {
      if (IsIn(target.package, wall.room)) Walk(wall, graph, target.label(), breaches);
    }
  }
  return breaches;
}

Breaches ForbiddenIncludes(const std::vector<SourceFile>& tree) {
  static const std::regex include(R"re((?:^|\n)[ \t]*#[ \t]*include[ \t]*"([^"\n]*)")re");
  Breaches breaches;
  for (const SourceFile& file : tree) {
    if (!EndsWith(file.path, {".cc", ".h", ".c"})) continue;
    for (const Wall& wall : Walls()) {
      if (!IsUnder(file.path, wall.room)) continue;
      for (auto it = std::sregex_iterator(file.text.begin(), file.text.end(), include);
           it != std::sregex_iterator(); ++it) {
        const std::string header = (*it)[1];
        const bool climbs = header.find("..") != std::string::npos;
        const bool beside = header.find('/') == std::string::npos;
        if (!climbs && (beside || InAny(header, wall.packages) || Contains(wall.headers, header))) {
          continue;
        }
        breaches.push_back(
            fmt::format("{} includes {}: {}/ may not see it", file.path, header, wall.room));
      }
    }
  }
  return breaches;
}

}  // namespace assay::tests
