// The fault library against the harness: each fault is found where it must show, named with every
// field that it determines, and not seen where it cannot show.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/run/cell.h"
#include "kernels/faults/faults.h"
#include "kernels/registry.h"

namespace assay::run {
namespace {

using Json = nlohmann::json;

CellResult Execute(std::string_view text) {
  static ModelStore models;
  const auto problem = ParseProblem(text);
  if (!problem) {
    ADD_FAILURE() << text << ": " << problem.error().message;
    return {};
  }
  return ExecuteCell(*problem, &models, {}).result;
}

class Fault : public testing::TestWithParam<std::string> {
 protected:
  const kernels::Fault& fault() const { return *kernels::FindFault(GetParam()); }
  // What this host cannot execute is not executed, and nothing else.
  static bool Runs(std::string_view text) {
    return text.find("tier=avx2") == std::string_view::npos ||
           kernels::HostHas(kernels::Tier::kAvx2);
  }
};

TEST_P(Fault, IsFoundAndNamed) {
  const CellResult cell = Execute(fault().problem);
  if (!Runs(fault().problem)) {
    EXPECT_EQ(NameOf(cell.verdict), "NOT_EXECUTED") << cell.reason;
    return;
  }
  ASSERT_EQ(NameOf(cell.verdict), "FAIL") << cell.reason;
  ASSERT_FALSE(cell.divergences.empty());
  const Json first = Json::parse(ToJson(cell))["divergences"][0];
  ASSERT_FALSE(fault().first.empty());
  for (const kernels::FirstField& field : fault().first) {
    const std::string name(field.name);
    ASSERT_TRUE(first.contains(name)) << name;
    EXPECT_EQ(first[name], Json::parse(field.json)) << name << " in " << first.dump();
  }
  EXPECT_EQ(first["signature"]["id"], std::string(fault().signature)) << first.dump();
  EXPECT_NE(cell.repro.find(GetParam()), std::string::npos);
}

TEST_P(Fault, IsNotSeenWhereItCannotShow) {
  const CellResult cell = Execute(fault().blind);
  EXPECT_EQ(NameOf(cell.verdict), Runs(fault().blind) ? "PASS" : "NOT_EXECUTED") << cell.reason;
}

// Without the fault the same cell is green: what was found is the fault.
TEST_P(Fault, TheSameCellWithoutItPasses) {
  auto problem = ParseProblem(fault().problem);
  ASSERT_TRUE(problem.ok());
  problem->keys.erase("fault");
  const CellResult cell = Execute(PrintCanonical(*problem));
  EXPECT_EQ(NameOf(cell.verdict), Runs(fault().problem) ? "PASS" : "NOT_EXECUTED") << cell.reason;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const kernels::Fault& fault : kernels::Faults()) names.emplace_back(fault.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Fault, testing::ValuesIn(Names()), [](const auto& test) {
  std::string name = test.param;
  for (char& c : name) {
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
});

TEST(Faults, ThereAreSome) { EXPECT_GE(kernels::Faults().size(), 6u); }

}  // namespace
}  // namespace assay::run
