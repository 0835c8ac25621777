// Bytes of every file of goldens/layouts, each by its own check; a file without one fails.
#include <filesystem>

#include "kernels/layouts/vendor_checks.h"
#include "kernels/layouts/vendor_file.h"

namespace assay::kernels {
namespace {

std::vector<VendorCheck> AllChecks() {
  std::vector<VendorCheck> all;
  for (const std::vector<VendorCheck>& part : {MarlinChecks(), AiterChecks(), OtherChecks()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

class Vendor : public ::testing::TestWithParam<VendorCheck> {};

TEST_P(Vendor, PacksToTheEnginesOwnBytes) { GetParam().run(GetParam().file); }

INSTANTIATE_TEST_SUITE_P(Files, Vendor, ::testing::ValuesIn(AllChecks()), [](const auto& test) {
  std::string name = test.param.file;
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return name;
});

TEST(VendorFiles, EveryFileHasACheckAndEveryCheckAFile) {
  std::set<std::string> files, checks;
  for (const auto& entry : std::filesystem::directory_iterator("goldens/layouts")) {
    if (entry.path().extension() == ".safetensors") files.insert(entry.path().stem());
  }
  for (const VendorCheck& check : AllChecks()) checks.insert(check.file);
  EXPECT_EQ(checks, files);
  EXPECT_EQ(files.size(), 29U);
}

}  // namespace
}  // namespace assay::kernels
