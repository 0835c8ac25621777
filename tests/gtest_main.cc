// The one main() of every test. A run in which no test was executed is a failure: GoogleTest
// itself reports it as passed.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  const auto& unit = *testing::UnitTest::GetInstance();
  const char* shards = std::getenv("TEST_TOTAL_SHARDS");
  const bool sharded = shards != nullptr && std::atoi(shards) > 1;
  if (!sharded && unit.test_to_run_count() == 0) {
    std::fprintf(stderr, "no test was executed\n");
    return 1;
  }
  if (unit.skipped_test_count() > 0) {
    std::fprintf(stderr, "%d tests skipped: a skip is not a pass\n", unit.skipped_test_count());
    return 1;
  }
  return result;
}
