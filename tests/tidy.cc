#include "tests/tidy.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>

namespace assay::tests {
namespace {

bool IsCpp(const SourceFile& file) { return EndsWith(file.path, {".cc", ".h"}); }

std::string At(const SourceFile& file, int line, std::string_view what) {
  return fmt::format("{}:{}: {}", file.path, line, what);
}

int LineOf(std::string_view text, size_t at) {
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + at, '\n'));
}

// One past the ")" that closes the "(" at `open`.
size_t EndOfArguments(std::string_view code, size_t open) {
  int depth = 0;
  for (size_t at = open; at < code.size(); ++at) {
    if (code[at] == '(') ++depth;
    if (code[at] == ')' && --depth == 0) return at + 1;
  }
  return code.size();
}

// What stands behind the last comma of "(a, f(b, c), d)".
std::string_view LastArgument(std::string_view arguments) {
  int depth = 0;
  size_t last = 1;
  for (size_t at = 0; at < arguments.size(); ++at) {
    const char c = arguments[at];
    if (c == '(' || c == '{' || c == '[') ++depth;
    if (c == ')' || c == '}' || c == ']') --depth;
    if (c == ',' && depth == 1) last = at + 1;
  }
  return arguments.substr(last, arguments.size() - last - 1);
}

bool JudgesNumbers(const std::string& path) {
  if (IsUnder(path, "harness/judge") || IsUnder(path, "harness/locate")) return true;
  if (IsUnder(path, "reference")) return true;
  return IsUnder(path, "kernels") &&
         (path.ends_with("_test.cc") || path.find("/testing/") != path.npos);
}

constexpr const char* kTiny = R"((\b\d+\.?\d*|\.\d+)[eE]-\d+)";                   // 1e-5
constexpr const char* kNumber = R"((^|[^\w.])(\d+\.\d*|\.\d+|\d+[eE][-+]?\d+))";  // 0.01, 1e-5

void FindLiteralChecks(const SourceFile& file, const std::string& code, Breaches& breaches) {
  static const std::regex check(R"(\b(?:EXPECT|ASSERT)_(NEAR|LT|LE|GT|GE)\s*\()");
  static const std::regex number(kNumber), tiny(kTiny);
  for (auto it = std::sregex_iterator(code.begin(), code.end(), check);
       it != std::sregex_iterator(); ++it) {
    const size_t open = it->position() + it->length() - 1;
    const std::string_view arguments =
        std::string_view(code).substr(open, EndOfArguments(code, open) - open);
    const bool near = (*it)[1] == "NEAR";
    const std::string text(near ? LastArgument(arguments) : arguments);
    if (!std::regex_search(text, near ? number : tiny)) continue;
    breaches.push_back(At(file, LineOf(code, it->position()),
                          "a check with a literal tolerance: derive it, or name its source"));
  }
}

void FindLiteralNames(const SourceFile& file, const std::string& code, Breaches& breaches) {
  static const std::regex name(
      R"(\b(\w*(?:atol|rtol|tolerance|[Tt]ol|epsilon|[Ee]ps)\w*)\s*(?:=|\{|<=?|>=?)\s*[-+]?)" +
      std::string(kTiny));
  for (auto it = std::sregex_iterator(code.begin(), code.end(), name); it != std::sregex_iterator();
       ++it) {
    // A model's own number: RMSNorm's, a renormalisation's.
    static const std::regex of_model("[Nn]orm\\w*[Ee]ps$");
    if (std::regex_search((*it)[1].str(), of_model)) continue;
    breaches.push_back(At(file, LineOf(code, it->position()),
                          fmt::format("{} is a literal tolerance", (*it)[1].str())));
  }
}

// Whether the text before a "{" makes it the body of a function.
bool OpensFunction(std::string_view before) {
  static const std::regex not_a_function(
      R"(^\s*(?:extern|namespace|class|struct|union|enum|static_assert)\b|=\s*$|=\s*[^()]*$)");
  const std::string text(before);
  return text.find('(') != text.npos && !std::regex_search(text, not_a_function);
}

struct Test {
  std::string name;  // "Suite.Name"
  int line = 0;
};

std::vector<Test> TestsOf(const SourceFile& file) {
  static const std::regex test(R"(\b(?:TYPED_)?TEST(?:_F|_P)?\s*\(\s*(\w+)\s*,\s*(\w+)\s*\))");
  std::vector<Test> tests;
  const std::string code = CodeOnly(file.text);
  for (auto it = std::sregex_iterator(code.begin(), code.end(), test); it != std::sregex_iterator();
       ++it) {
    tests.push_back({(*it)[1].str() + "." + (*it)[2].str(), LineOf(code, it->position())});
  }
  return tests;
}

// The path of a source as a target writes it.
std::string SourcePath(const Target& target, const std::string& source) {
  const std::string full = FullLabel(target.package, source);
  const std::string package = PackageOf(full);
  return (package.empty() ? "" : package + "/") + full.substr(full.find(':') + 1);
}

}  // namespace

Breaches LiteralTolerances(const std::vector<SourceFile>& tree) {
  Breaches breaches;
  for (const SourceFile& file : tree) {
    if (!IsCpp(file) || !JudgesNumbers(file.path)) continue;
    const std::string code = CodeOnly(file.text);
    FindLiteralChecks(file, code, breaches);
    FindLiteralNames(file, code, breaches);
  }
  return breaches;
}

Breaches LongFiles(const std::vector<SourceFile>& tree, int limit) {
  Breaches breaches;
  for (const SourceFile& file : tree) {
    if (!EndsWith(file.path, {".cc", ".h", ".bzl", ".py"})) continue;
    const auto lines = std::count(file.text.begin(), file.text.end(), '\n');
    if (lines > limit) breaches.push_back(fmt::format("{}: {} lines", file.path, lines));
  }
  return breaches;
}

Breaches LongFunctions(const std::vector<SourceFile>& tree, int limit) {
  Breaches breaches;
  for (const SourceFile& file : tree) {
    if (!IsCpp(file)) continue;
    const std::string code = CodeOnly(file.text);
    std::vector<size_t>
        functions;  // for each open brace: where its function's text begins, or npos
    size_t statement = 0;
    for (size_t at = 0; at < code.size(); ++at) {
      const char c = code[at];
      if (c == '{') {
        const bool inside = !functions.empty() && functions.back() != std::string::npos;
        const std::string_view before = std::string_view(code).substr(statement, at - statement);
        const size_t first = before.find_first_not_of(" \n\t");
        const bool opens = !inside && first != before.npos && OpensFunction(before);
        functions.push_back(inside  ? functions.back()
                            : opens ? statement + first
                                    : std::string::npos);
      } else if (c == '}' && !functions.empty()) {
        const size_t begin = functions.back();
        functions.pop_back();
        const bool ends = begin != std::string::npos &&
                          (functions.empty() || functions.back() == std::string::npos);
        const int lines = ends ? LineOf(code, at) - LineOf(code, begin) + 1 : 0;
        if (lines > limit) {
          breaches.push_back(
              At(file, LineOf(code, begin), fmt::format("{} lines in one function", lines)));
        }
      }
      if (c == ';' || c == '{' || c == '}') statement = at + 1;
    }
  }
  return breaches;
}

Breaches ForbiddenWords(const std::vector<SourceFile>& tree) {
  // Put together here, so that this file does not hold them.
  const std::string words = fmt::format(R"(\b(?:{}|{}|{})\b|{})",
                                        "TO"
                                        "DO",
                                        "FIX"
                                        "ME",
                                        "XX"
                                        "X",
                                        "/wo"
                                        "rk/");
  const std::regex forbidden(words);
  Breaches breaches;
  for (const SourceFile& file : tree) {
    for (auto it = std::sregex_iterator(file.text.begin(), file.text.end(), forbidden);
         it != std::sregex_iterator(); ++it) {
      breaches.push_back(At(file, LineOf(file.text, it->position()), it->str()));
    }
  }
  return breaches;
}

Breaches TestFilesWithoutTarget(const std::vector<SourceFile>& tree,
                                const std::vector<Target>& targets) {
  std::set<std::string> sources;
  for (const Target& target : targets) {
    if (!target.rule.ends_with("_test")) continue;
    for (const std::string& source : target.Strings("srcs")) {
      sources.insert(SourcePath(target, source));
    }
  }
  Breaches breaches;
  for (const SourceFile& file : tree) {
    if (file.path.ends_with("_test.cc") && !sources.contains(file.path)) {
      breaches.push_back(file.path + ": in no test target");
    }
  }
  return breaches;
}

Breaches TargetsWithoutTest(const std::vector<SourceFile>& tree,
                            const std::vector<Target>& targets) {
  std::set<std::string> with_tests;
  for (const SourceFile& file : tree) {
    if (IsCpp(file) && !TestsOf(file).empty()) with_tests.insert(file.path);
  }
  Breaches breaches;
  for (const Target& target : targets) {
    if (target.rule != "cc_test") continue;
    const auto& sources = target.Strings("srcs");
    const bool any = std::any_of(sources.begin(), sources.end(), [&](const std::string& source) {
      return with_tests.contains(SourcePath(target, source));
    });
    if (!any) breaches.push_back(target.label() + ": no TEST in its sources");
  }
  return breaches;
}

Breaches TestsOfOneName(const std::vector<SourceFile>& tree) {
  std::map<std::string, std::string> seen;
  Breaches breaches;
  for (const SourceFile& file : tree) {
    if (!IsCpp(file)) continue;
    for (const Test& test : TestsOf(file)) {
      const std::string where = fmt::format("{}:{}", file.path, test.line);
      const auto [there, is_new] = seen.emplace(test.name, where);
      if (!is_new) {
        breaches.push_back(fmt::format("{}: {} is also at {}", where, test.name, there->second));
      }
    }
  }
  return breaches;
}

Breaches TestsOfTableThatAreMissing(const std::vector<SourceFile>& tree, const std::string& table) {
  static const std::regex kEntry(
      R"j("file":\s*"([^"]+)",\s*"name":\s*"([A-Za-z0-9_]+)\.([A-Za-z0-9_]+)")j");
  Breaches breaches;
  for (auto at = std::sregex_iterator(table.begin(), table.end(), kEntry);
       at != std::sregex_iterator(); ++at) {
    const std::string path = (*at)[1], suite = (*at)[2], test = (*at)[3];
    const auto file =
        std::find_if(tree.begin(), tree.end(), [&](const SourceFile& f) { return f.path == path; });
    bool found = false;
    for (const char* macro : {"TEST(", "TEST_P(", "TEST_F("}) {
      found = found || (file != tree.end() &&
                        file->text.find(macro + suite + ", " + test + ")") != std::string::npos);
    }
    if (!found) breaches.push_back(fmt::format("{}: no test {}.{}", path, suite, test));
  }
  return breaches;
}

Breaches RoomsWithoutReadme(const std::vector<SourceFile>& tree) {
  std::set<std::string> rooms, with_readme;
  for (const SourceFile& file : tree) {
    const std::string folder = FolderOf(file.path);
    if (file.path.ends_with("README.md")) with_readme.insert(folder);
    std::string room = folder.substr(0, folder.find('/'));
    if (IsUnder(folder, "harness")) {
      const size_t end = folder.find('/', std::string("harness/").size());
      rooms.insert(folder.substr(0, end));
    }
    rooms.insert(room);
  }
  Breaches breaches;
  for (const std::string& room : rooms) {
    if (with_readme.contains(room) || room == "third_party") continue;
    if (room.starts_with(".")) continue;
    breaches.push_back(fmt::format("{}: no README.md", room.empty() ? "the root" : room));
  }
  return breaches;
}

}  // namespace assay::tests
