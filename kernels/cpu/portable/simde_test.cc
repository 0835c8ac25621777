// The portable intrinsics against SIMDe: a second, independent reading of the makers' manual.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernels/cpu/portable/testing/compare.h"

namespace assay::kernels::testing {
namespace {

// What SIMDe 0.7.4 does not have.
const std::set<std::string> kLacking = {
    "chain of fmadd",           "_mm512_cvtepi32_epi8",   "_mm512_cvtepi32_ps",
    "_mm512_cvtepu16_epi32",    "_mm512_cvtepu8_epi32",   "_mm512_cvtph_ps",
    "_mm512_cvtps_epi32",       "_mm512_extractf32x8_ps", "_mm512_fmaddsub_ps",
    "_mm512_mask_loadu_ps",     "_mm512_mask_storeu_ps",  "_mm512_maskz_loadu_ps",
    "_mm512_maskz_loadu_epi32", "_mm512_permute_ps",      "_mm512_srai_epi32",
    "_mm512_zextsi128_si512",
};

// What it has otherwise: without the instruction its fused operations round twice.
const std::set<std::string> kOtherwise = {"_mm512_fmadd_ps", "_mm512_fmsub_ps", "_mm512_fnmadd_ps"};

TEST(Simde, GivesTheSameBitsButWhereItDoesNotFuse) {
  int compared = 0;
  std::set<std::string> lacking;
  for (int i = 0; i < PortableProbes().count; ++i) {
    const Probe& probe = PortableProbes().first[i];
    const Probe* other = Find(SimdeProbes(), probe.name);
    if (other == nullptr) {
      const std::string name = probe.name;
      lacking.insert(name.substr(0, name.find('/')));
      continue;
    }
    ++compared;
    const std::string difference = FirstDifference(probe, *other);
    if (kOtherwise.contains(probe.name)) {
      EXPECT_NE(difference, "") << probe.name << " agrees: take it from the list";
    } else {
      EXPECT_EQ(difference, "");
    }
  }
  EXPECT_EQ(lacking, kLacking);
  EXPECT_EQ(compared, SimdeProbes().count);
  EXPECT_GT(compared, 50);
}

}  // namespace
}  // namespace assay::kernels::testing
