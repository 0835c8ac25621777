#include "harness/store/merge.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "harness/store/random_cell.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// A run of seven cells in three shards, each in a folder of its own.
class Merge : public testing::Test {
 protected:
  static constexpr int kCells = 7, kShards = 3;

  void SetUp() override {
    std::string pattern = testing::TempDir() + "/mergeXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    CellMaker maker(11);
    for (int i = 0; i < kCells; ++i) {
      cells_.push_back(maker.Make());
      cells_.back().problem = "load model=m seed=" + std::to_string(i);
    }
    for (int shard = 1; shard <= kShards; ++shard) Write(HeaderOf(shard), Own(shard), true);
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string Dir(int shard) const { return root_ + "/" + std::to_string(shard); }
  std::vector<std::string> Dirs() const { return {Dir(1), Dir(2), Dir(3)}; }

  static std::string Hash(const std::vector<CellResult>& cells) {
    std::vector<std::string> problems;
    for (const CellResult& cell : cells) problems.push_back(cell.problem);
    return HashCells(problems);
  }
  std::vector<CellResult> Own(int shard) const {
    std::vector<CellResult> own;
    for (int i = shard - 1; i < kCells; i += kShards) own.push_back(cells_[i]);
    return own;
  }
  RunHeader HeaderOf(int shard) const {
    RunHeader header;
    header.run_id = "run-" + std::to_string(shard);
    header.revision = "1a2b3c";
    header.selection = "kind=load --shard " + std::to_string(shard) + "/3";
    header.machine_json = R"({"cpu":"X"})";
    header.engines_json = R"(["native"])";
    header.emulate = "auto";
    const std::vector<CellResult> own = Own(shard);
    header.cells =
        CellList{kCells, Hash(cells_), shard, kShards, static_cast<int64_t>(own.size()), Hash(own)};
    return header;
  }
  void Write(const RunHeader& header, const std::vector<CellResult>& cells, bool finish) const {
    const std::string dir = Dir(static_cast<int>(header.cells->shard));
    fs::remove_all(dir);
    auto writer = ResultsWriter::Create(dir, header);
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    Totals totals;
    for (const CellResult& cell : cells) {
      totals.Add(cell.verdict);
      ASSERT_TRUE(writer->Append(cell).ok());
    }
    totals.registered = totals.collected;
    if (finish) {
      ASSERT_TRUE(writer->Finish(totals, static_cast<double>(header.cells->shard)).ok());
    }
  }
  // Merges, expects one finding that says all of `says`, and a red result that adds up.
  Merged ExpectWrong(const std::vector<std::string>& dirs, const std::vector<std::string>& says) {
    auto merged = MergeShards(dirs);
    EXPECT_TRUE(merged.ok()) << merged.error().message;
    if (!merged.ok()) return {};
    EXPECT_EQ(merged->wrong.size(), 1u);
    for (const std::string& text : says) {
      EXPECT_NE(merged->wrong[0].find(text), std::string::npos)
          << "'" << text << "' not in: " << merged->wrong[0];
    }
    EXPECT_TRUE(merged->record.summary->totals.adds_up());
    return std::move(*merged);
  }

  std::string root_;
  std::vector<CellResult> cells_;
};

TEST_F(Merge, ShardsAreTheWholeRun) {
  const auto merged = MergeShards(Dirs());
  ASSERT_TRUE(merged.ok()) << merged.error().message;
  EXPECT_TRUE(merged->wrong.empty()) << merged->wrong[0];
  const RunRecord& record = merged->record;
  EXPECT_EQ(record.cells.size(), cells_.size());
  EXPECT_EQ(record.summary->totals.registered, kCells);
  EXPECT_TRUE(record.summary->totals.all_collected());
  EXPECT_TRUE(record.summary->totals.adds_up());
  EXPECT_EQ(record.summary->seconds, 3);
  EXPECT_EQ(record.header.selection, "kind=load");
  EXPECT_EQ(record.header.merged, (std::vector<std::string>{"run-1", "run-2", "run-3"}));
  EXPECT_EQ(record.header.machine_json, R"({"cpu":"X"})");
  const CellList whole{kCells, Hash(cells_), 1, 1, kCells, Hash(cells_)};
  EXPECT_EQ(*record.header.cells, whole);
  // In any order.
  const auto turned = MergeShards({Dir(3), Dir(1), Dir(2)});
  ASSERT_TRUE(turned.ok());
  EXPECT_TRUE(turned->wrong.empty());
  for (size_t i = 0; i < record.cells.size(); ++i) {
    EXPECT_EQ(ToJson(turned->record.cells[i]), ToJson(record.cells[i]));
  }
}

TEST_F(Merge, AMissingShardIsNamed) {
  const Merged merged = ExpectWrong({Dir(1), Dir(3)}, {"shard 2/3 is missing"});
  EXPECT_FALSE(merged.record.summary->totals.all_collected());
  EXPECT_EQ(merged.record.summary->totals.registered, kCells);
}

TEST_F(Merge, MissingShardsAreRanges) {
  for (const int shard : {1, 3}) {
    RunHeader header = HeaderOf(shard);
    header.cells->shards = kMostShards;
    Write(header, Own(shard), true);
  }
  const auto merged = MergeShards({Dir(1), Dir(3)});
  ASSERT_TRUE(merged.ok()) << merged.error().message;
  EXPECT_EQ(merged->wrong, (std::vector<std::string>{"shard 2/65536 is missing",
                                                     "shards 4/65536 to 65536/65536 are missing"}));
  // More are not believed.
  RunHeader header = HeaderOf(1);
  header.cells->shards = kMostShards + 1;
  Write(header, Own(1), true);
  EXPECT_FALSE(MergeShards({Dir(1)}).ok());
}

TEST_F(Merge, AShardGivenTwiceIsNamed) {
  fs::copy(Dir(2), root_ + "/copy", fs::copy_options::recursive);
  const Merged merged = ExpectWrong({Dir(1), Dir(2), Dir(3), root_ + "/copy"},
                                    {root_ + "/copy", "shard 2/3 again", Dir(2)});
  EXPECT_EQ(merged.record.cells.size(), cells_.size());
}

TEST_F(Merge, AForeignShardIsNamedWithWhatDiffers) {
  const auto foreign = [&](const std::function<void(RunHeader*)>& change, const std::string& says) {
    RunHeader header = HeaderOf(2);
    change(&header);
    Write(header, Own(2), true);
    const auto merged = MergeShards(Dirs());
    ASSERT_TRUE(merged.ok());
    ASSERT_EQ(merged->wrong.size(), 2u);  // and so shard 2 is missing
    EXPECT_TRUE(merged->wrong[0].starts_with(Dir(2) + ": a shard of another run"));
    EXPECT_NE(merged->wrong[0].find(says), std::string::npos) << merged->wrong[0];
    EXPECT_EQ(merged->wrong[1], "shard 2/3 is missing");
    EXPECT_FALSE(merged->record.summary->totals.all_collected());
  };
  foreign([](RunHeader* header) { header->revision = "9f"; }, "revision is 9f");
  foreign([](RunHeader* header) { header->dirty = true; }, "with changes");
  foreign([](RunHeader* header) { header->selection = "kind=moe --shard 2/3"; }, "kind=moe");
  foreign([](RunHeader* header) { header->cells->hash = std::string(32, '0'); }, "list of cells");
  foreign([](RunHeader* header) { header->cells->shards = 4; }, "number of shards is 4");
  foreign([](RunHeader* header) { header->emulate = "never"; }, "--emulate is never");
  foreign([](RunHeader* header) { header->requirements = {"tier=avx2"}; }, "tier=avx2");
}

TEST_F(Merge, AnUnfinishedShardIsNamedAndItsCellsCount) {
  std::vector<CellResult> own = Own(1);
  own.pop_back();
  Write(HeaderOf(1), own, false);
  const Merged merged =
      ExpectWrong(Dirs(), {Dir(1), "shard 1/3", "not finished, 2 of 3", "--resume " + Dir(1)});
  EXPECT_EQ(merged.record.cells.size(), cells_.size() - 1);
  EXPECT_FALSE(merged.record.summary->totals.all_collected());
}

TEST_F(Merge, CellsThatAreNotTheShardsOwnAreFound) {
  std::vector<CellResult> own = Own(2);
  own[0].problem = "load model=other";
  Write(HeaderOf(2), own, true);
  ExpectWrong(Dirs(), {Dir(2), "are not the 2 of shard 2/3"});
  own = Own(2);
  own[1] = own[0];
  Write(HeaderOf(2), own, true);
  ExpectWrong(Dirs(), {Dir(2), "twice: load model=m"});
  own = Own(2);
  own.push_back(own[0]);
  own.back().problem = "load model=more";
  Write(HeaderOf(2), own, true);
  ExpectWrong(Dirs(), {Dir(2), "its 3 cells are not the 2"});
}

TEST_F(Merge, WhatCannotBeReadIsAnError) {
  EXPECT_FALSE(MergeShards({}).ok());
  EXPECT_FALSE(MergeShards({Dir(1), root_ + "/none"}).ok());
  RunHeader header = HeaderOf(3);
  fs::remove_all(Dir(3));
  header.cells.reset();
  ASSERT_TRUE(ResultsWriter::Create(Dir(3), header).ok());
  const auto old = MergeShards(Dirs());
  ASSERT_FALSE(old.ok());
  EXPECT_NE(old.error().message.find("no frozen list"), std::string::npos);
}

TEST_F(Merge, TheHashIsOfTheSet) {
  EXPECT_EQ(HashCells({"a", "b"}), HashCells({"b", "a"}));
  EXPECT_NE(HashCells({"a", "b"}), HashCells({"ab"}));
  EXPECT_NE(HashCells({"a"}), HashCells({"a", "a"}));
  EXPECT_EQ(HashCells({}), "99aa06d3014798d86001c324468d497f");  // xxh3-128 of nothing
}

}  // namespace
}  // namespace assay
