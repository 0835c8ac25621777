#include "tests/walls/walls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace assay::tests {
namespace {

std::vector<Target> Build(const std::string& package, const std::string& text) {
  return ParseBuild({package + "/BUILD", text});
}

std::vector<Target> Joined(std::initializer_list<std::vector<Target>> parts) {
  std::vector<Target> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

bool Mentions(const Breaches& breaches, const std::string& text) {
  return std::any_of(breaches.begin(), breaches.end(),
                     [&](const std::string& breach) { return breach.find(text) != breach.npos; });
}

TEST(BuildFiles, AreReadAsCallsWithKeywords) {
  const auto targets = Build("a/b", R"(
load(":x.bzl", "macro")  # a comment with cc_library(name = "no")
package(default_visibility = ["//:ground"])
cc_library(
    name = "b",
    srcs = glob(["*.cc"]) + select({"//c:d": ["e.cc"]}),
    deps = [":f", "//g/h", "@sys//:fmt"],
    copts = ["-DQUOTE=\"x\""],
)
[cc_test(name = "t_" + x, srcs = ["t_test.cc"], deps = [":b"]) for x in ["1"]]
)");
  ASSERT_EQ(targets.size(), 2u);
  EXPECT_EQ(targets[0].label(), "//a/b:b");
  EXPECT_EQ(targets[0].rule, "cc_library");
  EXPECT_EQ(targets[0].Strings("deps"), (std::vector<std::string>{":f", "//g/h", "@sys//:fmt"}));
  EXPECT_EQ(targets[0].Strings("srcs"), (std::vector<std::string>{"*.cc", "//c:d", "e.cc"}));
  EXPECT_EQ(targets[0].Strings("copts"), std::vector<std::string>{"-DQUOTE=\"x\""});
  EXPECT_EQ(targets[1].rule, "cc_test");
  EXPECT_EQ(targets[1].Strings("srcs"), std::vector<std::string>{"t_test.cc"});
}

TEST(BuildFiles, LabelsAreWrittenInFull) {
  EXPECT_EQ(FullLabel("a/b", ":c"), "//a/b:c");
  EXPECT_EQ(FullLabel("a/b", "c.cc"), "//a/b:c.cc");
  EXPECT_EQ(FullLabel("a/b", "//c/d"), "//c/d:d");
  EXPECT_EQ(FullLabel("a/b", "//c/d:e"), "//c/d:e");
  EXPECT_EQ(FullLabel("a/b", "@sys//:fmt"), "@sys//:fmt");
  EXPECT_EQ(PackageOf("//c/d:e"), "c/d");
  EXPECT_EQ(PackageOf("//:e"), "");
}

TEST(Walls, AForbiddenDependencyIsFound) {
  const auto oracle = Build("reference", R"(cc_library(name = "oracle", deps = []))");
  const auto kernel =
      Build("kernels/cpu", R"(cc_library(name = "cpu", deps = ["//reference:oracle"]))");
  EXPECT_TRUE(Mentions(ForbiddenDependencies(Joined({oracle, kernel})),
                       "//kernels/cpu:cpu depends on //reference:oracle"));
  const auto spy =
      Build("reference", R"(cc_library(name = "oracle", deps = ["//kernels:registry"]))");
  EXPECT_TRUE(Mentions(ForbiddenDependencies(spy), "//reference:oracle depends on //kernels:reg"));
  const auto planned = Build("reference", R"(cc_library(name = "o", deps = ["//harness/shard"]))");
  EXPECT_TRUE(Mentions(ForbiddenDependencies(planned), "//harness/shard:shard"));
  const auto child = Build("reference", R"(cc_test(name = "o", deps = ["//harness/abi:child"]))");
  EXPECT_TRUE(Mentions(ForbiddenDependencies(child), "//harness/abi:child"));
  const auto judged = Build("kernels", R"(cc_library(name = "k", deps = ["//harness/judge"]))");
  EXPECT_TRUE(Mentions(ForbiddenDependencies(judged), "//harness/judge:judge"));
}

TEST(Walls, AForbiddenDependencyIsFoundThroughOthers) {
  const auto kernel =
      Build("kernels", R"(cc_library(name = "k", deps = ["//harness/abi:helper"]))");
  const auto helper =
      Build("harness/abi", R"(cc_library(name = "helper", deps = ["//reference:o"]))");
  const Breaches breaches = ForbiddenDependencies(Joined({kernel, helper}));
  EXPECT_TRUE(Mentions(breaches, "//kernels:k depends on //reference:o through //harness/abi:h"));
}

TEST(Walls, WhatIsAllowedIsNotReported) {
  const auto good =
      Joined({Build("kernels",
                    R"(cc_test(name = "k_test", srcs = ["k_test.cc"], data = ["//goldens/formats"],
          deps = [":k", "//harness/units", "//harness/shard:plan", "//tests:gtest_main", "@sys//:fmt"]))"),
              Build("reference", R"(cc_library(name = "o", deps = ["//harness/abi:contract",
          "//harness/checkpoint", "@sys//:fmt"]))"),
              Build("harness/judge",
                    R"(cc_library(name = "j", deps = ["//reference:o", "//kernels:k"]))")});
  EXPECT_EQ(ForbiddenDependencies(good), Breaches());
}

TEST(Walls, AForbiddenIncludeIsFound) {
  const auto bad = [](const std::string& path, const std::string& header) {
    return ForbiddenIncludes({{path, "#include <vector>\n  #include \"" + header + "\"\n"}}).size();
  };
  EXPECT_EQ(bad("kernels/cpu/x.cc", "reference/oracle.h"), 1u);
  EXPECT_EQ(bad("kernels/x.h", "harness/judge/judge.h"), 1u);
  EXPECT_EQ(bad("kernels/x.h", "../reference/oracle.h"), 1u);
  EXPECT_EQ(bad("reference/x.cc", "kernels/registry.h"), 1u);
  EXPECT_EQ(bad("reference/x.cc", "harness/shard/plan.h"), 1u);
  EXPECT_EQ(bad("reference/x.cc", "harness/abi/child.h"), 1u);
  EXPECT_EQ(bad("reference/x.cc", "harness/abi/contract.h"), 0u);
  EXPECT_EQ(bad("reference/x.cc", "reference/oracle.h"), 0u);
  EXPECT_EQ(bad("kernels/x.cc", "harness/shard/plan.h"), 0u);
  EXPECT_EQ(bad("harness/run/x.cc", "reference/oracle.h"), 0u);
}

std::string Lines(const Breaches& breaches) {
  std::string text;
  for (const std::string& breach : breaches) text += "\n  " + breach;
  return text;
}

TEST(Walls, StandInThisTree) {
  const std::vector<SourceFile> tree = ReadTree(RepositoryRoot());
  const std::vector<Target> targets = AllTargets(tree);
  const auto count = [&](std::string_view room) {
    return std::count_if(targets.begin(), targets.end(),
                         [&](const Target& target) { return target.package.starts_with(room); });
  };
  EXPECT_GT(count("kernels"), 4);
  EXPECT_GT(count("reference"), 0);
  const Breaches dependencies = ForbiddenDependencies(targets);
  EXPECT_TRUE(dependencies.empty()) << Lines(dependencies);
  const Breaches includes = ForbiddenIncludes(tree);
  EXPECT_TRUE(includes.empty()) << Lines(includes);
}

}  // namespace
}  // namespace assay::tests
