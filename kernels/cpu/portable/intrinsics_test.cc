// The portable intrinsics against a definition lane by lane, on every host, and against the
// instructions where the host has them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "kernels/cpu/portable/testing/compare.h"
#include "kernels/registry.h"

namespace assay::kernels::testing {
namespace {

struct Reference {
  const char* name;
  Probes (*probes)();
};
void PrintTo(const Reference& reference, std::ostream* out) { *out << reference.name; }

// What this host can hold the header against: a host without the tier has one test fewer, and says
// so, rather than a test that passes without comparing.
std::vector<Reference> References() {
  std::vector<Reference> references = {{"definitions", Definitions}};
  if (HostHas(Tier::kAvx512)) {
    references.push_back({"instructions", HardwareProbes});
  } else {
    std::printf("not done: this host has no AVX-512 to hold the portable intrinsics against\n");
  }
  return references;
}

class Portable : public ::testing::TestWithParam<Reference> {};

TEST_P(Portable, IntrinsicsGiveTheBitsOf) {
  const Probes reference = GetParam().probes();
  const Probes portable = PortableProbes();
  EXPECT_EQ(reference.count, portable.count);
  for (int i = 0; i < portable.count; ++i) {
    const Probe* other = Find(reference, portable.first[i].name);
    ASSERT_NE(other, nullptr) << portable.first[i].name;
    EXPECT_EQ(FirstDifference(portable.first[i], *other), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Host, Portable, ::testing::ValuesIn(References()),
                         [](const auto& test) { return std::string(test.param.name); });

// Every function of the header whose name is an intrinsic's has a probe.
TEST(Probes, ThereIsOneForEachIntrinsicOfTheHeader) {
  std::set<std::string> probed;
  for (int i = 0; i < PortableProbes().count; ++i) {
    const std::string name = PortableProbes().first[i].name;
    probed.insert(name.substr(0, name.find('/')));
  }
  int found = 0;
  for (const char* file : {"arithmetic.h", "convert.h", "integer.h", "memory.h"}) {
    std::ifstream header(std::string("kernels/cpu/portable/") + file);
    ASSERT_TRUE(header) << file;
    std::string word;
    for (std::string line; std::getline(header, line);) {
      if (!line.starts_with("ASSAY_INTRINSIC")) continue;
      const size_t begin = line.find(" _mm"), end = line.find('(', begin);
      if (begin == std::string::npos || end == std::string::npos) continue;
      const std::string name = line.substr(begin + 1, end - begin - 1);
      ++found;
      EXPECT_TRUE(probed.contains(name) || name == "_mm_prefetch") << name << " has no probe";
    }
  }
  EXPECT_GE(found, static_cast<int>(probed.size()));
}

// Controls: each is wrong in one respect, which the comparison must see.
void MinWithTheFirstNan(const Operands& o, uint8_t* out) {
  Find(Definitions(), "_mm512_min_ps")->run(o, out);
  for (int i = 0; i < 16; ++i) {
    float a;
    std::memcpy(&a, o.a + 4 * i, sizeof a);
    if (std::isnan(a)) std::memcpy(out + 4 * i, &a, sizeof a);
  }
}
void FmaInTwoRoundings(const Operands& o, uint8_t* out) {
  for (int i = 0; i < 16; ++i) {
    float x[3];
    std::memcpy(&x[0], o.a + 4 * i, 4);
    std::memcpy(&x[1], o.b + 4 * i, 4);
    std::memcpy(&x[2], o.c + 4 * i, 4);
    const float y = x[0] * x[1] + x[2];
    std::memcpy(out + 4 * i, &y, 4);
  }
}
// A double has room for the product, but the sum is rounded twice.
void FmaThroughDouble(const Operands& o, uint8_t* out) {
  for (int i = 0; i < 16; ++i) {
    float x[3];
    std::memcpy(&x[0], o.a + 4 * i, 4);
    std::memcpy(&x[1], o.b + 4 * i, 4);
    std::memcpy(&x[2], o.c + 4 * i, 4);
    const auto y = static_cast<float>(double{x[0]} * x[1] + x[2]);
    std::memcpy(out + 4 * i, &y, 4);
  }
}
void TruncatingConversion(const Operands& o, uint8_t* out) {
  Find(Definitions(), "_mm512_cvtps_epi32")->run(o, out);
  for (int i = 0; i < 16; ++i) {
    float a;
    std::memcpy(&a, o.a + 4 * i, sizeof a);
    if (!(std::fabs(a) < 1e6F)) continue;
    const auto value = static_cast<int32_t>(a);
    std::memcpy(out + 4 * i, &value, sizeof value);
  }
}
void WrappingMaddubs(const Operands& o, uint8_t* out) {
  for (int i = 0; i < 32; ++i) {
    const int sum = o.a[2 * i] * static_cast<int8_t>(o.b[2 * i]) +
                    o.a[2 * i + 1] * static_cast<int8_t>(o.b[2 * i + 1]);
    const auto value = static_cast<int16_t>(sum);
    std::memcpy(out + 2 * i, &value, sizeof value);
  }
}
void StoreOfMaskedLanes(const Operands& o, uint8_t* out) {
  Find(Definitions(), "_mm512_storeu_ps")->run(o, out);
}

TEST(Probes, WrongOnesAreCaught) {
  const Probe wrong[] = {{"_mm512_min_ps", Same::kBits, MinWithTheFirstNan},
                         {"_mm512_fmadd_ps", Same::kNans, FmaInTwoRoundings},
                         {"_mm512_fmadd_ps", Same::kNans, FmaThroughDouble},
                         {"_mm512_cvtps_epi32", Same::kBits, TruncatingConversion},
                         {"_mm512_maddubs_epi16", Same::kBits, WrappingMaddubs},
                         {"_mm512_mask_storeu_ps", Same::kBits, StoreOfMaskedLanes}};
  for (const Probe& probe : wrong) {
    EXPECT_NE(FirstDifference(probe, *Find(Definitions(), probe.name)), "") << probe.name;
  }
}

}  // namespace
}  // namespace assay::kernels::testing
