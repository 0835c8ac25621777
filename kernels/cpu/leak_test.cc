// No code of a higher tier may be reachable on a lower host. A weak symbol in a tier's archive is
// an inline function compiled with that tier's flags, of which the linker keeps one copy for
// everybody; a static initialiser runs before anybody has asked what the host can do.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace assay::kernels {
namespace {

struct Pipe {
  void operator()(std::FILE* f) const { pclose(f); }
};

std::vector<std::string> DefinedSymbols(const std::string& archive) {
  std::unique_ptr<std::FILE, Pipe> nm(
      popen(("nm --defined-only --demangle " + archive).c_str(), "r"));
  std::vector<std::string> lines;
  char line[4096];
  while (nm != nullptr && std::fgets(line, sizeof line, nm.get()) != nullptr) {
    lines.emplace_back(line);
  }
  return lines;
}

// Symbols that other objects could be linked to, outside of `own`; and initialisers.
std::vector<std::string> Leaks(const std::vector<std::string>& symbols, const std::string& own) {
  std::vector<std::string> leaks;
  for (const std::string& line : symbols) {
    std::istringstream words(line);
    std::string address, type;
    if (!(words >> address >> type) || type.size() != 1) continue;  // a member's heading
    const bool shared = std::string("WVuvw").find(type) != std::string::npos;
    const bool foreign = type == "T" && line.find(own) == std::string::npos;
    const bool initialiser = line.find("_GLOBAL__sub_I") != std::string::npos;
    if (shared || foreign || initialiser) leaks.push_back(line);
  }
  return leaks;
}

TEST(Leak, TheAvx2ArchiveSharesNoCode) {
  const std::vector<std::string> symbols = DefinedSymbols("kernels/cpu/avx2/libavx2.a");
  ASSERT_GT(symbols.size(), 10u) << "nm found no symbols";
  for (const std::string& leak : Leaks(symbols, "assay::kernels::avx2::")) ADD_FAILURE() << leak;
}

TEST(Leak, AnInlineFunctionAndAnInitialiserAreFound) {
  const std::vector<std::string> symbols = DefinedSymbols("kernels/cpu/testing/libleaky.a");
  ASSERT_FALSE(symbols.empty());
  EXPECT_GE(Leaks(symbols, "assay::kernels::avx2::").size(), 3u);
}

}  // namespace
}  // namespace assay::kernels
