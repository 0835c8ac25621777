#include "harness/audit/stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

#include "harness/audit/testing/fixture.h"

namespace assay::audit {
namespace {

using testing::Fresh;
using testing::WriteText;

// A file of float32 ones, with NaN where told.
std::string Ones(const std::string& name, size_t count, const std::vector<size_t>& nans) {
  std::string text(count * 4, '\0');
  for (size_t i = 0; i < count; ++i) text.replace(i * 4, 4, testing::Little(1.0f));
  for (const size_t at : nans) text.replace(at * 4, 4, "\xff\xff\xff\x7f");
  const std::string path = Fresh(name);
  WriteText(path, text);
  return path;
}

TEST(Stream, EveryByteIsReadOnceWhateverTheThreads) {
  constexpr size_t kCount = 5'000'003;  // several units, none a whole number of buffers
  const std::string path = Ones("ones", kCount, {0, 2'097'151, 2'097'152, kCount - 1});
  for (const int threads : {1, 2, 5}) {
    StreamOptions options;
    options.threads = threads;
    const std::vector<StreamItem> items = {{0, 0, kCount * 4, {Watch::kF32}},
                                           {0, 8, 4 * 1000, {Watch::kF32}}};
    const StreamResult result = Stream({path}, items, options);
    EXPECT_TRUE(result.errors.empty());
    EXPECT_EQ(result.bytes, kCount * 4 + 4000);
    EXPECT_EQ(result.tallies[0].bytes, kCount * 4);
    EXPECT_EQ(result.tallies[0].of(Issue::kNan), (Tally::Entry{4, 0}));
    EXPECT_EQ(result.tallies[1].of(Issue::kNan).count, 0u);
  }
}

TEST(Stream, WholeTensorsAreHandedOver) {
  const std::string path = Ones("whole", 1'000'000, {});
  std::vector<StreamItem> items = {{0, 0, 4'000'000, {Watch::kF32}, true},
                                   {0, 4, 16, {Watch::kF32}, true},
                                   {0, 4, 16, {Watch::kF32}, false}};
  std::mutex mutex;
  std::set<std::pair<size_t, size_t>> seen;
  StreamOptions options;
  options.on_whole = [&](size_t item, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(seen.emplace(item, bytes.size()).second);
  };
  Stream({path}, items, options);
  EXPECT_EQ(seen, (std::set<std::pair<size_t, size_t>>{{0, 4'000'000}, {1, 16}}));
}

// Errors are told of once a file, the first item first, and the others are read all the same.
TEST(Stream, WhatCannotBeReadIsAnError) {
  const std::string good = Ones("good", 100, {7}), shorter = Ones("short", 100, {});
  const std::string pipe = Fresh("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::vector<std::string> paths = {good, Fresh("none"), shorter, pipe,
                                          testing::SmallLayer("folder")};
  const std::vector<StreamItem> items = {{1, 0, 400, {Watch::kF32}}, {2, 0, 400, {Watch::kF32}},
                                         {2, 0, 404, {Watch::kF32}}, {2, 400, 8, {Watch::kF32}},
                                         {3, 0, 4, {Watch::kF32}},   {4, 0, 4, {Watch::kF32}},
                                         {0, 0, 400, {Watch::kF32}}};
  const StreamResult result = Stream(paths, items, {});
  ASSERT_EQ(result.errors.size(), 4u);
  EXPECT_EQ(result.errors[0].file, 1u);
  EXPECT_NE(result.errors[0].reason.find("No such file"), std::string::npos);
  EXPECT_EQ(result.errors[1].item, 2u);
  EXPECT_EQ(result.errors[1].more, 1u);
  EXPECT_NE(result.errors[1].reason.find("ends at byte 400"), std::string::npos);
  EXPECT_NE(result.errors[2].reason.find("no regular file"), std::string::npos);
  EXPECT_NE(result.errors[3].reason.find("no regular file"), std::string::npos);
  EXPECT_EQ(result.tallies[6].of(Issue::kNan), (Tally::Entry{1, 7}));
}

TEST(Stream, ProgressEndsWithEverything) {
  const std::string path = Ones("progress", 100'000, {});
  StreamOptions options;
  StreamProgress last;
  uint64_t before = 0;
  options.on_progress = [&](const StreamProgress& now) {
    EXPECT_GE(now.done, before);
    before = now.done;
    last = now;
  };
  Stream({path}, {{0, 0, 400'000, {Watch::kF32}}}, options);
  EXPECT_EQ(last.done, 400'000u);
  EXPECT_EQ(last.total, 400'000u);
}

TEST(Stream, NothingIsNothing) {
  const StreamResult result = Stream({}, {}, {});
  EXPECT_TRUE(result.tallies.empty());
  EXPECT_TRUE(result.errors.empty());
}

}  // namespace
}  // namespace assay::audit
