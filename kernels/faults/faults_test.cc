// The table of faults, and cells in which they cannot show.
#include "kernels/faults/faults.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "kernels/engines/native/native.h"
#include "kernels/faults/test_pair.h"
#include "kernels/registry.h"

namespace assay::kernels {
namespace {

using native::Driver;
using native::Wishes;

TEST(Faults, TheTableIsWhole) {
  std::set<std::string_view> names;
  for (const Fault& fault : Faults()) {
    EXPECT_TRUE(names.insert(fault.name).second) << fault.name;
    EXPECT_TRUE(fault.name.starts_with(std::string(fault.kind) + "/"));
    EXPECT_FALSE(fault.description.empty());
    EXPECT_NE(fault.problem.find("fault=" + std::string(fault.name)), std::string_view::npos);
    EXPECT_NE(fault.blind.find("fault=" + std::string(fault.name)), std::string_view::npos);
    EXPECT_NE(fault.problem, fault.blind);
    bool states_class = false;
    for (const FirstField& field : fault.first) {
      if (field.name != "class") continue;
      states_class = field.json == "\"" + std::string(fault.cls) + "\"";
    }
    EXPECT_TRUE(states_class) << fault.name;
    const assay_engine* engine = FaultyEngine(fault.name);
    ASSERT_NE(engine, nullptr);
    EXPECT_STREQ(engine->name, NativeEngine()->name);
    EXPECT_NE(std::string_view(engine->revision).find(fault.name), std::string_view::npos);
  }
  EXPECT_EQ(names.size(), Faults().size());
  EXPECT_TRUE(std::is_sorted(Faults().begin(), Faults().end(),
                             [](const Fault& a, const Fault& b) { return a.kind < b.kind; }));
  EXPECT_EQ(FaultyEngine("K99/none"), nullptr);
  EXPECT_EQ(FindFault(""), nullptr);
}

// Every kind that is born in a loader, a layout or the selector, at several points.
TEST(Faults, EachKindOfLoaderHasSeveralPoints) {
  std::map<std::string_view, int> points;
  for (const Fault& fault : Faults()) ++points[fault.kind];
  for (int kind = 1; kind <= 19; ++kind) {
    const std::string name = (kind < 10 ? "K0" : "K") + std::to_string(kind);
    EXPECT_GE(points[name], 2) << name;
  }
  EXPECT_EQ(points.count("K20"), 0u) << "that one is the harness's own";
}

TEST(Faults, TheFirstWrongWordsDiffer) {
  const auto checkpoint = native::OpenCheckpoint(kInt4);
  const std::string expert = "model.layers.1.mlp.experts.0.";
  const auto* down = checkpoint->Find(expert + "down_proj.weight_packed")->bytes.data();
  EXPECT_NE(std::memcmp(down + 4 * 8, down + 8, 4), 0);  // word 8, and byte 8
  const size_t row64 = 64 * 12 * 4;
  EXPECT_NE(
      std::memcmp(checkpoint->Find(expert + "gate_proj.weight_packed")->bytes.data() + row64,
                  checkpoint->Find(expert + "up_proj.weight_packed")->bytes.data() + row64, 4),
      0);
}

TEST(Faults, OneRankCannotShowThem) {
  for (const char* fault : {"K02/bytes", "K03/rank0", "K08/rank1", "K41/missing", "K43/bf16"}) {
    Pair pair(fault, {.path = kInt4, .tp = 1});
    EXPECT_TRUE(pair.DifferingTaps().empty()) << fault;
    EXPECT_FALSE(pair.LogitsDiffer()) << fault;
  }
}

}  // namespace
}  // namespace assay::kernels
