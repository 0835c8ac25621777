// A kernel that is handed a weight in a layout it does not take is refused before it reads a code.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "kernels/layouts/layouts.h"
#include "kernels/registry.h"

namespace assay::kernels {
namespace {

std::set<std::string> AllTags() {
  std::set<std::string> tags;
  for (const Layout& layout : Layouts()) tags.emplace(layout.tag);
  return tags;
}

// Codes that nobody may read.
WeightView Unreadable(std::string_view tag) {
  WeightView view;
  view.layout = tag;
  view.n = 16, view.k = 64;
  return view;
}

// One kernel of each layout and tier that the host has.
std::vector<const LinearKernel*> OneEach() {
  std::set<std::pair<std::string_view, Tier>> seen;
  std::vector<const LinearKernel*> kernels;
  for (const LinearKernel& kernel : LinearKernels()) {
    if (kernel.how != How::kHardware || !HostHas(kernel.tier)) continue;
    if (seen.insert({kernel.layout, kernel.tier}).second) kernels.push_back(&kernel);
  }
  return kernels;
}

using RefusalDeathTest = ::testing::Test;

TEST(RefusalDeathTest, EveryTagButTheKernelsOwn) {
  const std::set<std::string> tags = AllTags();
  EXPECT_GE(tags.size(), 20U);
  ASSERT_FALSE(OneEach().empty());
  for (const LinearKernel* kernel : OneEach()) {
    ASSERT_TRUE(tags.contains(std::string(kernel->layout))) << kernel->name;
    for (const std::string& tag : tags) {
      if (tag == kernel->layout) continue;
      float y[16] = {};
      EXPECT_DEATH(kernel->run(Unreadable(tag), {}, 1, 0, 16, y, 16), tag) << kernel->name;
    }
  }
}

// Control: with its own tag the same kernel takes real codes.
TEST(RefusalDeathTest, ItsOwnTagIsTaken) {
  for (const LinearKernel& kernel : LinearKernels()) {
    if (kernel.method != "bf16" || kernel.layout != "row" || kernel.tier != Tier::kScalar) continue;
    const std::vector<std::byte> codes(16 * 64 * 2);
    const std::vector<uint16_t> x(64);
    WeightView view = Unreadable("row");
    view.codes = codes.data();
    std::vector<float> y(16, 7.0F);
    kernel.run(view, {.bf16 = x.data()}, 1, 0, 16, y.data(), 16);
    EXPECT_EQ(y, std::vector<float>(16));
    return;
  }
  FAIL() << "no scalar kernel of bf16";
}

}  // namespace
}  // namespace assay::kernels
