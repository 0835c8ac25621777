// An engine built against the frozen header goes on working, and today's structures begin with the
// frozen ones.
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "harness/abi/assay_engine.h"
#include "harness/abi/child.h"
#include "harness/abi/old/layout_row.h"

namespace assay::abi {
namespace {

const std::vector<assay_layout_row>& Today() {
  static const std::vector<assay_layout_row> rows = {
#define MEMBER(structure, member) ASSAY_LAYOUT_ROW(structure, member)
#include "harness/abi/old/members_v1.inc"
#undef MEMBER
  };
  return rows;
}

// What of an old structure is not where it was; empty if all is.
std::string Moved(const assay_layout_row& old, const assay_layout_row& now) {
  const std::string name = std::string(old.structure) + "." + old.member;
  if (name != std::string(now.structure) + "." + now.member) return name + " is another member";
  if (old.offset != now.offset) return name + " moved";
  if (old.size != now.size) return name + " has another size";
  if (old.total > now.total) return std::string(old.structure) + " shrank";
  return "";
}

TEST(OldHeader, TodaysStructuresBeginWithIt) {
  ASSERT_EQ(Today().size(), assay_layout_v1_count);
  ASSERT_GT(assay_layout_v1_count, 80u);
  for (size_t i = 0; i < assay_layout_v1_count; ++i) {
    EXPECT_EQ(Moved(assay_layout_v1[i], Today()[i]), "");
  }
}

TEST(OldHeader, AMemberThatMovedWouldBeFound) {
  const assay_layout_row old = assay_layout_v1[1];
  assay_layout_row now = old;
  now.total += 64;  // new members at the end are what is allowed
  EXPECT_EQ(Moved(old, now), "");
  now.offset += 8;
  EXPECT_NE(Moved(old, now), "");
  now = old;
  now.size += 8;
  EXPECT_NE(Moved(old, now), "");
  now = old;
  now.total -= 8;
  EXPECT_NE(Moved(old, now), "");
}

// The list of members covers the structures: each begins at 0, and neither between two members nor
// after the last is there room for one that the list forgot.
TEST(OldHeader, NoMemberIsMissingFromTheList) {
  constexpr size_t kPadding = 8;
  for (size_t i = 0; i < assay_layout_v1_count; ++i) {
    const assay_layout_row& row = assay_layout_v1[i];
    const bool first = i == 0 || std::strcmp(row.structure, assay_layout_v1[i - 1].structure) != 0;
    const bool last = i + 1 == assay_layout_v1_count ||
                      std::strcmp(row.structure, assay_layout_v1[i + 1].structure) != 0;
    if (first) {
      EXPECT_EQ(row.offset, 0u) << row.structure;
    }
    const size_t next = last ? row.total : assay_layout_v1[i + 1].offset;
    EXPECT_LT(next - (row.offset + row.size), kPadding) << row.structure << "." << row.member;
  }
}

TEST(OldHeader, TodaysConstantsAreTheSame) {
  const std::vector<assay_constant_row> today = {
#define CONSTANT(name) {#name, name},
#include "harness/abi/old/constants_v1.inc"
#undef CONSTANT
  };
  ASSERT_EQ(today.size(), assay_constants_v1_count);
  ASSERT_EQ(today.size(), 20u);
  for (size_t i = 0; i < today.size(); ++i) {
    EXPECT_EQ(today[i].value, assay_constants_v1[i].value) << today[i].name;
  }
}

TEST(OldHeader, IsFrozen) {
  std::ifstream file("harness/abi/old/assay_engine_v1.h", std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  ASSERT_GT(text.str().size(), 8000u);
  EXPECT_EQ(XXH64(text.str().data(), text.str().size(), 0), 0x5d182a115fbfc7eULL)
      << "version 1 is what engines were built against: it cannot be changed any more";
}

TEST(OldEngine, GoesOnWorking) {
  const std::vector<float> factor = {2.5f}, x = {1, -2, 3};
  const auto tensor = [](std::string name, int rank, const std::vector<float>& values) {
    return HostTensor{std::move(name),
                      rank,
                      DType::kF32,
                      {static_cast<int64_t>(values.size())},
                      reinterpret_cast<const std::byte*>(values.data()),
                      values.size() * sizeof(float)};
  };
  Script script;
  script.library = "harness/abi/old/libold.so";
  script.method = "bf16";
  script.plan = "w.weight whole <- w";
  script.tensors = {tensor("w", -1, factor)};
  script.exports = {{"w.weight", 0}};
  const HostTensor output = {"w", 0, DType::kF32, {3}, nullptr, 0};
  script.ops = {{0, "w", {tensor("x", 0, x)}, output}};
  script.runs = {{"layer", 0, {7}, 0, {tensor("embed", 0, x)}}};
  script.reduces = {{"sum", {tensor("sum", 0, x), tensor("sum", 1, x)}, output}};
  const Outcome outcome = RunInChild(script);
  ASSERT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
  EXPECT_EQ(outcome.engine_name, "old");
  EXPECT_TRUE(outcome.notes.empty());
  const auto floats = [&](const TapKey& key) {
    const std::vector<std::byte>& bytes = outcome.trace.taps.at(key).bytes;
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  const std::vector<float> product = {2.5f, -5, 7.5f};
  EXPECT_EQ(floats({0, "w", 0}), product);
  EXPECT_EQ(floats({0, "L0.residual_mlp", 0}), product);
  EXPECT_EQ(floats({0, "sum", 0}), (std::vector<float>{2, -4, 6}));
  EXPECT_EQ(outcome.trace.shards.at({"w.weight", 0}).bytes.size(), sizeof(float));
  EXPECT_EQ(outcome.trace.executed.at(0).kernel, "old");

  script.method = "ct-int4-g32";
  const Outcome other = RunInChild(script);
  EXPECT_EQ(other.ending, Ending::kUnsupported);
  EXPECT_STREQ(other.error.message, "no method ct-int4-g32");
}

}  // namespace
}  // namespace assay::abi
