#include "harness/store/files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace assay {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/filesXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }
  static std::string Read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  size_t Count() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(root_), fs::directory_iterator()));
  }
  std::string root_;
};

TEST_F(Files, AreReplacedWhole) {
  const std::string path = root_ + "/a.txt";
  ASSERT_TRUE(WriteWhole(path, "one").ok());
  ASSERT_TRUE(WriteWhole(path, "two").ok());
  EXPECT_EQ(Read(path), "two");
  EXPECT_EQ(Count(), 1u);
}

TEST_F(Files, AFailureLeavesWhatWasThere) {
  const std::string path = root_ + "/folder";
  fs::create_directories(path + "/inside");  // a folder cannot be replaced by a file
  const Status status = WriteWhole(path, "text");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "cannot write " + path + ": Is a directory");
  EXPECT_TRUE(fs::exists(path + "/inside"));
  EXPECT_EQ(Count(), 1u);
  EXPECT_FALSE(WriteWhole(root_ + "/none/a.txt", "text").ok());
}

TEST_F(Files, MoveIntoPlace) {
  std::ofstream(root_ + "/beside") << "text";
  ASSERT_TRUE(MoveIntoPlace(root_ + "/beside", root_ + "/a.txt").ok());
  EXPECT_EQ(Read(root_ + "/a.txt"), "text");
  EXPECT_EQ(Count(), 1u);
  EXPECT_FALSE(MoveIntoPlace(root_ + "/beside", root_ + "/a.txt").ok());
  EXPECT_EQ(Read(root_ + "/a.txt"), "text");
}

TEST_F(Files, LeftoversAreThoseOfDeadWriters) {
  const std::string path = root_ + "/a.txt";
  const std::string alive = path + "." + std::to_string(getppid()) + ".tmp";
  for (const std::string& name :
       {path, path + ".99999999.tmp", path + ".tmp", path + ".x.tmp", alive, path + ".5.bak"}) {
    std::ofstream(name) << "text";
  }
  RemoveLeftovers(path);
  EXPECT_FALSE(fs::exists(path + ".99999999.tmp"));
  EXPECT_TRUE(fs::exists(alive)) << "its writer may be at it";
  EXPECT_EQ(Count(), 5u);
}

}  // namespace
}  // namespace assay
