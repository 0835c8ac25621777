// Without sanitizers: a matrix file's reader comes with the whole harness.
#include <gtest/gtest.h>

#include "harness/run/matrix.h"
#include "tests/fuzz/driver.h"
#include "tests/fuzz/require.h"

namespace assay::fuzz {
namespace {

TEST(Mutations, Matrix) { Drive("matrix", FuzzMatrix, 10000); }

TEST(MatrixSeeds, AreRead) {
  for (const std::string& seed : SeedsOf("matrix")) {
    const std::string path =
        FileOf("matrix.json", reinterpret_cast<const uint8_t*>(seed.data()), seed.size());
    const auto rows = run::ReadMatrix(path);
    ASSERT_TRUE(rows.ok()) << rows.error().message;
    EXPECT_EQ(rows->size(), 2u);
    EXPECT_TRUE(run::ReadSkips(path).ok());
  }
}

}  // namespace
}  // namespace assay::fuzz
