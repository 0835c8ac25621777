// Models that are fetched are those that the goldens list, and nothing else.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "harness/run/model.h"

namespace assay::run {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

// A goldens' folder of its own, as long as this lives.
class Folder {
 public:
  explicit Folder(const char* name) : root_(::testing::TempDir() + "/" + name) {
    fs::remove_all(root_);
    fs::create_directories(root_ + "/goldens");
    setenv("ASSAY_GOLDENS", root_.c_str(), 1);
  }
  ~Folder() {
    unsetenv("ASSAY_GOLDENS");
    unsetenv("ASSAY_MODELS");
    fs::remove_all(root_);
  }
  void Put(const std::string& golden, const std::string& json) const {
    fs::create_directories(root_ + "/goldens/" + golden);
    std::ofstream(root_ + "/goldens/" + golden + "/golden.json") << json;
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

TEST(Fetched, TheShippedGoldensListOne) {
  EXPECT_EQ(FetchedModels(), Names{"smollm2"});
  EXPECT_EQ(GoldenOf("smollm2"), "smollm2-135m-q4_1");
  EXPECT_TRUE(FetchedPath("smollm2").ends_with("/SmolLM2-135M-Instruct.Q4_1.gguf"));
  EXPECT_EQ(GoldenOf("k2-mini"), "k2-mini");
  EXPECT_EQ(FetchedPath("k2-mini"), "");
}

TEST(Fetched, ANewGoldenIsANewModelAndABrokenOneIsNone) {
  const Folder folder("fetched_test");
  EXPECT_TRUE(FetchedModels().empty());
  folder.Put("other-7b-q8", R"({"gguf": {"file": "other.gguf"}})");
  folder.Put("another-1b", R"({"gguf": {"file": "a.gguf"}})");
  EXPECT_EQ(FetchedModels(), (Names{"another", "other"}));
  EXPECT_EQ(FetchedPath("other"), folder.root() + "/fetched/other.gguf");
  EXPECT_EQ(GoldenOf("other"), "other-7b-q8");
  setenv("ASSAY_MODELS", "/elsewhere", 1);
  EXPECT_EQ(FetchedPath("other"), "/elsewhere/other.gguf");
  for (const char* json : {"{}", "[", R"({"gguf": 3})", R"({"gguf": {}})",
                           R"({"gguf": {"file": 7}})", R"({"gguf": {"file": ""}})",
                           R"({"gguf": {"file": ".."}})", R"({"gguf": {"file": "../x.gguf"}})"}) {
    folder.Put("another-1b", json);
    EXPECT_EQ(FetchedModels(), Names{"other"}) << json;
  }
  ModelStore store;
  const auto missing = store.Get("other");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("golden fetch other"), std::string::npos);
}

}  // namespace
}  // namespace assay::run
