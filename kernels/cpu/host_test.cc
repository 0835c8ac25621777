#include "kernels/cpu/host.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace assay::kernels {
namespace {

// A processor that has what AVX2 code needs, written from the manual's bit numbers.
constexpr CpuRegisters kAvx2Cpu = {
    .leaf1_ecx = (1u << 12) | (1u << 27) | (1u << 28),  // FMA, OSXSAVE, AVX
    .leaf7_ebx = 1u << 5,                               // AVX2
    .xcr0 = 0b111,                                      // x87, XMM, YMM
};

TEST(CpuRuns, Avx2NeedsEveryOneOfItsBits) {
  EXPECT_TRUE(CpuRuns(Tier::kAvx2, kAvx2Cpu));
  for (const int bit : {12, 27, 28}) {
    CpuRegisters cpu = kAvx2Cpu;
    cpu.leaf1_ecx &= ~(1u << bit);
    EXPECT_FALSE(CpuRuns(Tier::kAvx2, cpu)) << "leaf 1 ecx bit " << bit;
  }
  CpuRegisters cpu = kAvx2Cpu;
  cpu.leaf7_ebx = 0;
  EXPECT_FALSE(CpuRuns(Tier::kAvx2, cpu));
  // An operating system that does not save YMM: the instructions exist and must not be used.
  for (const uint64_t xcr0 : {0b001, 0b011, 0b101}) {
    cpu = kAvx2Cpu;
    cpu.xcr0 = xcr0;
    EXPECT_FALSE(CpuRuns(Tier::kAvx2, cpu)) << xcr0;
  }
  EXPECT_FALSE(CpuRuns(Tier::kAvx2, {}));
  // All other bits set do not make up for it.
  EXPECT_FALSE(CpuRuns(Tier::kAvx2, {~(1u << 12), ~0u, ~uint64_t{0}}));
}

TEST(CpuRuns, ScalarRunsAnywhere) { EXPECT_TRUE(CpuRuns(Tier::kScalar, {})); }

TEST(CpuRuns, AgreesWithTheCompilersOwnReaderOnThisHost) {
  EXPECT_EQ(CpuRuns(Tier::kAvx2, ReadCpu()),
            __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
}

TEST(ListNames, ReadsACommaList) {
  EXPECT_TRUE(ListNames(nullptr, Tier::kAvx2));
  EXPECT_TRUE(ListNames("scalar,avx2", Tier::kAvx2));
  EXPECT_TRUE(ListNames("avx2", Tier::kAvx2));
  EXPECT_TRUE(ListNames(" scalar , avx2 ", Tier::kScalar));
  EXPECT_TRUE(ListNames("no-such,avx2,", Tier::kAvx2));
  EXPECT_FALSE(ListNames("scalar", Tier::kAvx2));
  EXPECT_FALSE(ListNames("", Tier::kScalar));
  EXPECT_FALSE(ListNames(",,", Tier::kScalar));
  EXPECT_FALSE(ListNames("avx2x,xavx2,AVX2,avx", Tier::kAvx2));
}

TEST(HostHas, TheListOnlyTakesAway) {
  const bool real = CpuRuns(Tier::kAvx2, ReadCpu());
  unsetenv("ASSAY_FAKE_TIERS");
  EXPECT_EQ(HostHas(Tier::kAvx2), real);
  setenv("ASSAY_FAKE_TIERS", "scalar", 1);
  EXPECT_FALSE(HostHas(Tier::kAvx2));
  EXPECT_TRUE(HostHas(Tier::kScalar));
  setenv("ASSAY_FAKE_TIERS", "avx2,scalar", 1);
  EXPECT_EQ(HostHas(Tier::kAvx2), real);
  unsetenv("ASSAY_FAKE_TIERS");
}

}  // namespace
}  // namespace assay::kernels
