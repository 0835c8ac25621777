#include "tests/tidy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace assay::tests {
namespace {

constexpr int kMaxFileLines = 600;
constexpr int kMaxFunctionLines = 90;

std::string Lines(const Breaches& breaches) {
  std::string text;
  for (const std::string& breach : breaches) text += "\n  " + breach;
  return text;
}

const std::vector<SourceFile>& Tree() {
  static const std::vector<SourceFile> tree = ReadTree(RepositoryRoot());
  return tree;
}

void ExpectNone(const Breaches& breaches) { EXPECT_TRUE(breaches.empty()) << Lines(breaches); }

// The rules, on this tree.

TEST(Tidy, TheTreeIsReadAtAll) {
  EXPECT_GT(Tree().size(), 100u);
  EXPECT_GT(AllTargets(Tree()).size(), 30u);
  for (const char* path : {"BUILD", "harness/units/units.h", "tests/tidy.cc", "assay"}) {
    EXPECT_TRUE(std::any_of(Tree().begin(), Tree().end(), [&](const SourceFile& file) {
      return file.path == path;
    })) << path;
  }
}
TEST(Tidy, NoLiteralTolerances) { ExpectNone(LiteralTolerances(Tree())); }
TEST(Tidy, FilesAreShort) { ExpectNone(LongFiles(Tree(), kMaxFileLines)); }
TEST(Tidy, FunctionsAreShort) { ExpectNone(LongFunctions(Tree(), kMaxFunctionLines)); }
TEST(Tidy, NoForbiddenWords) { ExpectNone(ForbiddenWords(Tree())); }
TEST(Tidy, EveryTestFileIsInATarget) {
  ExpectNone(TestFilesWithoutTarget(Tree(), AllTargets(Tree())));
}
TEST(Tidy, EveryTestTargetHasATest) { ExpectNone(TargetsWithoutTest(Tree(), AllTargets(Tree()))); }
TEST(Tidy, NoTwoTestsOfOneName) { ExpectNone(TestsOfOneName(Tree())); }
TEST(Tidy, TestsOfTheBugTableExist) {
  std::ifstream in(RepositoryRoot() + "/matrix/bugs.json");
  std::stringstream table;
  table << in.rdbuf();
  EXPECT_FALSE(table.str().empty());
  ExpectNone(TestsOfTableThatAreMissing(Tree(), table.str()));
}
TEST(Tidy, EveryRoomHasAReadme) { ExpectNone(RoomsWithoutReadme(Tree())); }

// Each rule on snippets that break it, and on their legal neighbours.

TEST(TidyControl, LiteralTolerances) {
  const auto breaches = [](const std::string& path, const std::string& line) {
    return LiteralTolerances({{path, line}}).size();
  };
  const std::string in = "harness/judge/x.cc";
  EXPECT_EQ(breaches(in, "EXPECT_NEAR(a, f(b, 2.0), 1e-6);"), 1u);
  EXPECT_EQ(breaches(in, "ASSERT_NEAR(a,\n b,\n 0.01);"), 1u);
  EXPECT_EQ(breaches(in, "EXPECT_LT(error, 1e-12);"), 1u);
  EXPECT_EQ(breaches(in, "const double atol = 1e-3;"), 1u);
  EXPECT_EQ(breaches(in, "constexpr float kTolerance{2.5e-4};"), 1u);
  EXPECT_EQ(breaches(in, "if (error > eps || eps < 1e-9) {"), 1u);
  EXPECT_EQ(breaches("reference/x_test.cc", "double rel_tol=1e-5;"), 1u);
  EXPECT_EQ(breaches("kernels/cpu/x_test.cc", "EXPECT_NEAR(a, b, 1e-6);"), 1u);
  EXPECT_EQ(breaches("harness/locate/x.h", "double epsilon = 1E-7;"), 1u);

  EXPECT_EQ(breaches(in, "EXPECT_NEAR(a, 0.5, bound);"), 0u);
  EXPECT_EQ(breaches(in, "EXPECT_GT(count, 10); // not 1e-6"), 0u);
  EXPECT_EQ(breaches(in, "config.rms_norm_eps = 1e-5; constexpr double kInnerNormEps = 1e-6;"), 0u);
  EXPECT_EQ(breaches(in, "Say(\"atol = 1e-3\");"), 0u);
  EXPECT_EQ(breaches("kernels/cpu/x.cc", "const float eps = 1e-20;"), 0u);
  EXPECT_EQ(breaches("harness/store/x.cc", "const double tol = 1e-3;"), 0u);
}

TEST(TidyControl, LongFiles) {
  const std::string ten(10, '\n');
  EXPECT_EQ(LongFiles({{"a.cc", ten}}, 9).size(), 1u);
  EXPECT_EQ(LongFiles({{"a.bzl", ten}, {"b.py", ten}, {"c.h", ten}}, 9).size(), 3u);
  EXPECT_EQ(LongFiles({{"a.cc", ten}}, 10).size(), 0u);
  EXPECT_EQ(LongFiles({{"a.md", ten}}, 9).size(), 0u);
}

TEST(TidyControl, LongFunctions) {
  const auto breaches = [](const std::string& code) {
    return LongFunctions({{"a.cc", code}}, 5).size();
  };
  const std::string body = "{\n  f();\n  {\n    g();\n  }\n  h();\n}\n";  // 7 lines
  EXPECT_EQ(breaches("int Long(int x) " + body), 1u);
  EXPECT_EQ(breaches("namespace n {\nclass C {\n void M() const " + body + "};\n}"), 1u);
  EXPECT_EQ(breaches("TEST(A, B) " + body), 1u);
  EXPECT_EQ(breaches("void A() " + body + "void B() " + body), 2u);
  EXPECT_EQ(breaches("void Short() {\n  f(\"{{{{\");  // }}}\n}\n"), 0u);
  EXPECT_EQ(breaches("namespace n " + body), 0u);
  EXPECT_EQ(breaches("struct S {\n  int a;\n  int b;\n  int c;\n  int d;\n  int e;\n};"), 0u);
  EXPECT_EQ(breaches("int table[] = {\n1,\n2,\n3,\n4,\n5,\n6};"), 0u);
}

TEST(TidyControl, ForbiddenWords) {
  const auto breaches = [](const std::string& text) {
    return ForbiddenWords({{"a.md", text}}).size();
  };
  EXPECT_EQ(breaches("// TO"
                     "DO: later"),
            1u);
  EXPECT_EQ(breaches("# FIX"
                     "ME\n# XX"
                     "X"),
            2u);
  EXPECT_EQ(breaches("see /wo"
                     "rk/main"),
            1u);
  EXPECT_EQ(breaches("mkstemp(name.XXXXXX), a framework, TO"
                     "DOS"),
            0u);
}

TEST(TidyControl, TestsAndTargets) {
  const std::vector<SourceFile> tree = {
      {"a/BUILD", R"(cc_test(name = "x_test", srcs = ["x_test.cc"])
                     cc_test(name = "empty_test", srcs = ["empty_test.cc"]))"},
      {"a/x_test.cc", "TEST(Suite, One) {}\nTEST_F(Suite, Two) {}"},
      {"a/empty_test.cc", "// TEST(Suite, Three)\n"},
      {"b/lost_test.cc", "TEST_P(Suite, One) {}"}};
  const std::vector<Target> targets = AllTargets(tree);
  EXPECT_EQ(TestFilesWithoutTarget(tree, targets), Breaches{"b/lost_test.cc: in no test target"});
  EXPECT_EQ(TargetsWithoutTest(tree, targets), Breaches{"//a:empty_test: no TEST in its sources"});
  EXPECT_EQ(TestsOfOneName(tree), Breaches{"b/lost_test.cc:1: Suite.One is also at a/x_test.cc:1"});
}

TEST(TidyControl, TestsOfTheBugTable) {
  const std::vector<SourceFile> tree = {{"a/b_test.cc", "TEST(Suite, One) {}"}};
  const auto missing = [&](const std::string& name) {
    return TestsOfTableThatAreMissing(
               tree, R"j({"tests": [{"file": "a/b_test.cc", "name": ")j" + name + R"j("}]})j")
        .size();
  };
  EXPECT_EQ(missing("Suite.One"), 0u);
  EXPECT_EQ(missing("Suite.Two"), 1u);
  EXPECT_EQ(missing("Other.One"), 1u);
}

TEST(TidyControl, Rooms) {
  const std::vector<SourceFile> tree = {{"README.md", ""},
                                        {"harness/README.md", ""},
                                        {"harness/new/deep/x.cc", ""},
                                        {"harness/old/README.md", ""},
                                        {"harness/old/x.cc", ""},
                                        {"kernels/cpu/x.cc", ""}};
  EXPECT_EQ(RoomsWithoutReadme(tree),
            (Breaches{"harness/new: no README.md", "kernels: no README.md"}));
  EXPECT_EQ(RoomsWithoutReadme({{"WORKSPACE", ""}}), Breaches{"the root: no README.md"});
}

TEST(TidyControl, CodeIsToldFromCommentsAndLiterals) {
  EXPECT_EQ(CodeOnly("a // b\nc"), "a     \nc");
  EXPECT_EQ(CodeOnly("a /* b\nc */ d"), "a     \n     d");
  EXPECT_EQ(CodeOnly(R"(f("a\"b", 'c'))"), R"(f("    ", " "))");
  EXPECT_EQ(CodeOnly("R\"(a\n\")\" b"), "\"   \n  \" b");
  EXPECT_EQ(CodeOnly("1'000'000 + x"), "1'000'000 + x");
}

}  // namespace
}  // namespace assay::tests
