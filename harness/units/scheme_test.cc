#include "harness/units/scheme.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace assay {
namespace {

TEST(Scheme, EveryKnownIdReadsBackToItself) {
  const auto ids = KnownSchemes();
  EXPECT_GT(ids.size(), 50u);
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
  for (const std::string& id : ids) {
    const auto scheme = ParseScheme(id);
    ASSERT_TRUE(scheme) << id;
    EXPECT_EQ(NameOf(*scheme), id);
  }
}

TEST(Scheme, ReadsSizes) {
  EXPECT_EQ(ParseScheme("ct-int4-g128")->group, 128);
  EXPECT_EQ(ParseScheme("ct-int3-channel-asym")->bits, 3);
  EXPECT_TRUE(ParseScheme("ct-int3-channel-asym")->asymmetric);
  EXPECT_EQ(ParseScheme("ct-int4-one-group")->group, -1);
  EXPECT_EQ(ParseScheme("ct-fp8-block16x32")->block_n, 16);
  EXPECT_EQ(ParseScheme("ct-fp8-block16x32")->block_k, 32);
  EXPECT_EQ(ParseScheme("deepseek-fp8-block128")->block_k, 128);
  EXPECT_TRUE(ParseScheme("gptq-v2-int4-g32")->v2);
  EXPECT_EQ(ParseScheme("gguf-q6_k")->dtype, DType::kQ6K);
}

TEST(Scheme, RefusesWhatIsNoId) {
  for (const char* id : {"",
                         "ct",
                         "ct-",
                         "ct-int4",
                         "ct-int4-g",
                         "ct-int4-g032",
                         "ct-int4-g32-",
                         "ct-int9-g32",
                         "ct-int1-g32",
                         "ct-int4-tensor",
                         "ct-old-int4-g32",
                         "ct-old-mxfp4",
                         "ct-fp8-block",
                         "ct-fp8-block16x16",
                         "ct-mxfp4-g32",
                         "awq-int3-g32",
                         "awq-int4-g32-actorder",
                         "gptq-int3-g32",
                         "gguf-",
                         "gguf-q9",
                         "gguf-Q4_0",
                         "modelslim-w4a8-g",
                         "bf16 ",
                         "i8",
                         "ct-int4-g99999999999999999999"}) {
    EXPECT_FALSE(ParseScheme(id)) << id;
  }
}

}  // namespace
}  // namespace assay
