// Audits of damaged checkpoints, under AddressSanitizer and UndefinedBehaviorSanitizer.
#include <gtest/gtest.h>

#include "harness/audit/audit.h"
#include "tests/fuzz/driver.h"
#include "tests/fuzz/require.h"

namespace assay::fuzz {
namespace {

TEST(Mutations, Audit) { Drive("audit", FuzzAudit, 3000); }
TEST(Mutations, AuditOfGguf) { Drive("gguf", FuzzAudit, 2000); }

// The seeds get as far as the values: what is wrong with them is said of tensors.
TEST(AuditSeeds, ReachTheTensors) {
  const auto seeds = SeedsOf("audit");
  ASSERT_FALSE(seeds.empty());
  for (const std::string& seed : seeds) {
    const std::string path =
        FileOf("x.safetensors", reinterpret_cast<const uint8_t*>(seed.data()), seed.size());
    const auto report = audit::Audit(path, {});
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_GT(report->tensors.size(), 3u);
    EXPECT_GT(report->speed.bytes, 100);
  }
}

}  // namespace
}  // namespace assay::fuzz
