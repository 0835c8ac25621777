// What the two archives of this tier hold: instructions of the tier in one and none in the other;
// and in both nothing that another object could be linked to but the rows' own functions.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace assay::kernels {
namespace {

constexpr char kHardware[] = "kernels/cpu/avx512/libavx512.a";
constexpr char kPortable[] = "kernels/cpu/avx512/libavx512_portable.a";
constexpr char kLeaky[] = "kernels/cpu/testing/libleaky.a";

struct Pipe {
  void operator()(std::FILE* f) const { pclose(f); }
};

std::vector<std::string> LinesOf(const std::string& command) {
  std::unique_ptr<std::FILE, Pipe> pipe(popen(command.c_str(), "r"));
  std::vector<std::string> lines;
  char line[8192];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe.get()) != nullptr) {
    lines.emplace_back(line);
  }
  return lines;
}

struct Encodings {
  int instructions = 0, vex = 0, evex = 0;
  std::string first;  // of VEX or EVEX
};

// In 64-bit code a first byte C4 or C5 is VEX and 62 is EVEX, and nothing else; only segment and
// address-size prefixes may stand before it.
Encodings CountEncodings(const std::string& archive) {
  Encodings found;
  for (const std::string& line : LinesOf("objdump -d -w " + archive)) {
    const size_t colon = line.find(":\t");
    if (colon == std::string::npos) continue;
    ++found.instructions;
    std::istringstream bytes(line.substr(colon + 2, line.find('\t', colon + 2) - colon - 2));
    std::string byte;
    while (bytes >> byte && std::string("26 2e 36 3e 64 65 67").find(byte) != std::string::npos) {
    }
    const bool vex = byte == "c4" || byte == "c5", evex = byte == "62";
    found.vex += vex;
    found.evex += evex;
    if ((vex || evex) && found.first.empty()) found.first = line;
  }
  return found;
}

// Symbols that other objects could be linked to, outside of `own`; and initialisers.
std::vector<std::string> Shared(const std::string& archive, const std::string& own) {
  std::vector<std::string> shared;
  for (const std::string& line : LinesOf("nm --defined-only --demangle " + archive)) {
    std::istringstream words(line);
    std::string address, type;
    if (!(words >> address >> type) || type.size() != 1) continue;  // a member's heading
    const bool weak = std::string("WVuvw").find(type) != std::string::npos;
    const bool global = std::string("TDBR").find(type) != std::string::npos;
    const bool foreign = global && line.find(" " + own) == std::string::npos;
    const bool intrinsic = global && line.find("_mm") != std::string::npos;
    const bool initialiser = line.find("_GLOBAL__sub_I") != std::string::npos;
    if (weak || foreign || intrinsic || initialiser) shared.push_back(line);
  }
  return shared;
}

TEST(Encoding, TheHardwareArchiveIsOfTheTier) {
  const Encodings found = CountEncodings(kHardware);
  EXPECT_GT(found.instructions, 1000);
  EXPECT_GT(found.evex, 100);
}

TEST(Encoding, ThePortableArchiveRunsOnEveryHost) {
  const Encodings found = CountEncodings(kPortable);
  EXPECT_GT(found.instructions, 1000);
  EXPECT_EQ(found.vex + found.evex, 0) << found.first;
}

TEST(Encoding, NeitherArchiveSharesCode) {
  for (const std::string& line : Shared(kHardware, "assay::kernels::avx512::")) {
    ADD_FAILURE() << line;
  }
  for (const std::string& line : Shared(kPortable, "assay::kernels::avx512_portable::")) {
    ADD_FAILURE() << line;
  }
  EXPECT_FALSE(LinesOf(std::string("nm --defined-only ") + kPortable).empty());
}

TEST(Encoding, SharedCodeIsFound) {
  EXPECT_GE(Shared(kLeaky, "assay::kernels::avx512::").size(), 3u);
  // The rows themselves are foreign to another namespace.
  EXPECT_GE(Shared(kPortable, "assay::kernels::avx512::").size(), 10u);
}

}  // namespace
}  // namespace assay::kernels
