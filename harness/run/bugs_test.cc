// Public bug reports of the kinds that a loader, a layout or a selection has, each with what shows
// it here: matrix/bugs.json is the table, this test runs it. That the tests which the table names
// are there is tests/tidy_test's to say.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "harness/run/testing/cells.h"
#include "kernels/faults/faults.h"
#include "kernels/registry.h"

namespace assay::run {
namespace {

using Json = nlohmann::json;

std::string TextOf(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

const Json& Table() {
  static const Json table = Json::parse(TextOf("matrix/bugs.json"), nullptr, false);
  return table;
}

// A cell of a tier that this host lacks, and that nothing emulates, is not executed; nothing else
// is let through.
bool HostRuns(std::string_view problem) {
  return problem.find("tier=avx2") == std::string_view::npos ||
         kernels::HostHas(kernels::Tier::kAvx2);
}

class Bug : public testing::TestWithParam<std::string> {
 protected:
  const Json& row() const {
    for (const Json& row : Table()["rows"]) {
      if (row["id"] == GetParam()) return row;
    }
    static const Json none;
    return none;
  }
};

// Whoever reads the table must find something that can be run, or a reason.
TEST_P(Bug, HasWhatShowsItOrAReason) {
  const Json& bug = row();
  for (const char* key : {"kind", "report", "what"}) {
    ASSERT_TRUE(bug.contains(key) && bug[key].is_string() && !bug[key].empty()) << key;
  }
  const bool shown = bug.contains("faults") || bug.contains("cells") || bug.contains("tests");
  EXPECT_NE(shown, bug.contains("reason")) << "either what shows it, or the reason why nothing can";
  if (bug.contains("reason")) {
    EXPECT_GT(bug["reason"].get<std::string>().size(), 20u);
  }
}

TEST_P(Bug, FaultsThatShowItAreFoundByTensor) {
  for (const Json& name : row().value("faults", Json::array())) {
    const kernels::Fault* fault = kernels::FindFault(name.get<std::string>());
    ASSERT_NE(fault, nullptr) << name;
    // Several reports show in one fault; it is run once.
    static std::map<std::string, CellResult> results;
    const auto [at, added] = results.try_emplace(std::string(fault->name));
    if (added) at->second = Execute(std::string(fault->problem));
    const CellResult& cell = at->second;
    if (!HostRuns(fault->problem)) continue;
    ASSERT_EQ(NameOf(cell.verdict), "FAIL") << fault->problem << ": " << cell.reason;
    ASSERT_FALSE(cell.divergences.empty());
    EXPECT_EQ(cell.divergences[0].signature.id, fault->signature) << cell.reason;
    EXPECT_EQ(cell.divergences[0].cls, fault->cls);
    EXPECT_FALSE(cell.divergences[0].tensor.empty()) << cell.reason;
  }
}

TEST_P(Bug, CellsEndAsTheTableSays) {
  for (const Json& entry : row().value("cells", Json::array())) {
    const std::string problem = entry["problem"];
    const CellResult cell = Execute(problem);
    const std::string due =
        HostRuns(problem) ? entry["verdict"].get<std::string>() : "NOT_EXECUTED";
    EXPECT_EQ(NameOf(cell.verdict), due) << problem << ": " << cell.reason;
  }
}

std::vector<std::string> Ids() {
  std::vector<std::string> ids;
  if (!Table().is_object()) return ids;
  for (const Json& row : Table()["rows"]) ids.push_back(row["id"]);
  return ids;
}

INSTANTIATE_TEST_SUITE_P(Table, Bug, testing::ValuesIn(Ids()),
                         [](const auto& info) { return info.param; });

TEST(Bugs, EachIdOnceAndEveryKindOfLoadingThere) {
  ASSERT_TRUE(Table().is_object());
  std::set<std::string> ids, kinds;
  for (const Json& row : Table()["rows"]) {
    EXPECT_TRUE(ids.insert(row["id"]).second) << row["id"];
    kinds.insert(row["kind"]);
  }
  EXPECT_EQ(ids.size(), 98u);
  EXPECT_EQ(kinds.size(), 19u);
  EXPECT_EQ(*kinds.begin(), "K01");
  EXPECT_EQ(*kinds.rbegin(), "K19");
}

// The table's checks can fail: a fault that is not there, a cell that ends otherwise.
TEST(Bugs, WhatIsNotThereIsNotFound) {
  EXPECT_EQ(kernels::FindFault("K01/no-such"), nullptr);
  const CellResult cell = Execute("load model=dsv3-mini method=ct-int4-g32 tp=1");
  EXPECT_NE(NameOf(cell.verdict), "REFUSED");
}

}  // namespace
}  // namespace assay::run
