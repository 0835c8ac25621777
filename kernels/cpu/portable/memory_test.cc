// Which bytes the portable loads and stores touch: at the edge of memory, one too many is fatal.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/portable/avx512_intrinsics.h"
#include "kernels/cpu/testing/guarded.h"

namespace assay::kernels::avx512_portable {
namespace {

using kernels::testing::Guard;
using kernels::testing::Guarded;

constexpr int kLanes = 16;

uint16_t First(int count) { return static_cast<uint16_t>((1u << count) - 1); }

// `count` floats 1, 2, … that end at a forbidden page, or begin behind one.
void Fill(Guarded& memory, int count) {
  for (int i = 0; i < count; ++i) memory.as<float>()[i] = static_cast<float>(i + 1);
}

TEST(MaskedLoads, TouchOnlyTheirLanes) {
  for (int count = 0; count <= kLanes; ++count) {
    Guarded behind(4 * static_cast<size_t>(count), Guard::kBehind, 0);
    Guarded before(4 * static_cast<size_t>(count), Guard::kBefore, 0);
    Fill(behind, count);
    Fill(before, count);
    const uint16_t low = First(count);
    const auto high = static_cast<uint16_t>(low << (kLanes - count));
    // The last `count` lanes: the address itself lies in the forbidden page.
    const float* early = before.as<float>() - (kLanes - count);
    float a[kLanes], b[kLanes], c[kLanes], d[kLanes];
    _mm512_storeu_ps(a, _mm512_maskz_loadu_ps(low, behind.data()));
    _mm512_storeu_ps(b, _mm512_mask_loadu_ps(_mm512_set1_ps(-1), low, behind.data()));
    _mm512_storeu_si512(c, _mm512_maskz_loadu_epi32(low, behind.data()));
    _mm512_storeu_ps(d, _mm512_maskz_loadu_ps(high, early));
    for (int i = 0; i < kLanes; ++i) {
      const float value = static_cast<float>(i + 1);
      EXPECT_EQ(a[i], i < count ? value : 0);
      EXPECT_EQ(b[i], i < count ? value : -1);
      EXPECT_EQ(c[i], i < count ? value : 0);
      EXPECT_EQ(d[i], i < kLanes - count ? 0 : value - static_cast<float>(kLanes - count));
    }
  }
}

TEST(MaskedStores, TouchOnlyTheirLanes) {
  for (int count = 0; count <= kLanes; ++count) {
    Guarded behind(4 * static_cast<size_t>(count), Guard::kBehind, 0);
    Guarded before(4 * static_cast<size_t>(count), Guard::kBefore, 0);
    const uint16_t low = First(count);
    const auto high = static_cast<uint16_t>(low << (kLanes - count));
    _mm512_mask_storeu_ps(behind.data(), low, _mm512_set1_ps(5));
    _mm512_mask_storeu_ps(before.as<float>() - (kLanes - count), high, _mm512_set1_ps(6));
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ(behind.as<float>()[i], 5);
      EXPECT_EQ(before.as<float>()[i], 6);
    }
  }
}

TEST(Memory, ALaneTooManyIsFatal) {
  Guarded memory(4 * 15, Guard::kBehind, 0);
  float out[kLanes];
  EXPECT_DEATH(_mm512_storeu_ps(out, _mm512_maskz_loadu_ps(0xFFFF, memory.data())), "");
  EXPECT_DEATH(_mm512_mask_storeu_ps(memory.data(), 0xFFFF, _mm512_setzero_ps()), "");
}

TEST(Memory, AlignedAccessElsewhereIsFatalAsTheInstructionsIs) {
  alignas(64) float memory[kLanes + 4] = {};
  EXPECT_DEATH(_mm512_storeu_ps(memory, _mm512_load_ps(memory + 4)), "");
  EXPECT_DEATH(_mm512_store_ps(memory + 4, _mm512_setzero_ps()), "");
  _mm512_store_ps(memory, _mm512_load_ps(memory));
}

}  // namespace
}  // namespace assay::kernels::avx512_portable
