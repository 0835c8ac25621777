// The verb as a script sees it: exit codes, streams, files.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/cli/testing/program.h"

namespace assay::cli {
namespace {

namespace fs = std::filesystem;
using testing::Ended;
using testing::Fresh;
using testing::Invoke;
using testing::ReadAll;
using Json = nlohmann::json;

constexpr const char* kClean = "goldens/quantised/k2-mini-int4-g32";

// A copy of the clean one without its second shard.
std::string Broken() {
  const std::string folder = Fresh("broken");
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(kClean)) {
    if (entry.path().filename().string().find("00002-of") != std::string::npos) continue;
    fs::copy_file(fs::canonical(entry.path()), fs::path(folder) / entry.path().filename());
  }
  return folder;
}

TEST(Audit, ExitsOneWithFindingsOnly) {
  const Ended clean = Invoke({"audit", kClean});
  EXPECT_EQ(clean.code, 0) << clean.out << clean.error;
  EXPECT_NE(clean.out.find("largest legal TP 8"), std::string::npos) << clean.out;
  EXPECT_NE(clean.out.find("no findings"), std::string::npos);
  const Ended broken = Invoke({"audit", Broken()});
  EXPECT_EQ(broken.code, 1) << broken.out << broken.error;
  EXPECT_NE(broken.out.find("model-00002-of-00002.safetensors"), std::string::npos) << broken.out;
}

TEST(Audit, ExitsTwoWithoutACheckpoint) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"audit"},
                                                {"audit", "goldens/none"},
                                                {"audit", kClean, kClean},
                                                {"audit", kClean, "--tp", "0"},
                                                {"audit", kClean, "--tp", "2,"},
                                                {"audit", kClean, "--tp", "two"},
                                                {"audit", kClean, "--threads", "0"},
                                                {"audit", kClean, "--out", kClean}}) {
    const Ended ran = Invoke(words);
    EXPECT_EQ(ran.code, 2) << words.back() << ran.out;
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(std::count(ran.error.begin(), ran.error.end(), '\n'), 1) << ran.error;
  }
}

TEST(Audit, JsonIsAloneOnStandardOutput) {
  const Ended ran = Invoke({"audit", kClean, "--json", "--tp", "8,3,3"});
  ASSERT_EQ(ran.code, 0);
  const Json report = Json::parse(ran.out);
  EXPECT_EQ(report["largest_legal_tp"], 8);
  EXPECT_EQ(report["bytes_per_rank"].size(), 2u);
  EXPECT_EQ(report["bytes_per_rank"]["8"].size(), 8u);
  EXPECT_TRUE(report["bytes_per_rank"]["3"].is_null());
  EXPECT_EQ(report["tensors"].size(), 151u);
  EXPECT_TRUE(report["findings"].empty());
}

TEST(Audit, WritesIntoANewFolderOnly) {
  const std::string out = Fresh("out");
  ASSERT_EQ(Invoke({"audit", Broken(), "--out", out}).code, 1);
  const Json report = Json::parse(ReadAll(out + "/audit.json"));
  EXPECT_FALSE(report["findings"].empty());
  const std::string html = ReadAll(out + "/report.html");
  EXPECT_NE(html.find("model-00002-of-00002.safetensors"), std::string::npos);
  // Nothing else lies beside them, and nothing is written over.
  EXPECT_EQ(std::distance(fs::directory_iterator(out), fs::directory_iterator()), 2);
  EXPECT_EQ(Invoke({"audit", kClean, "--out", out}).code, 2);
  EXPECT_EQ(ReadAll(out + "/report.html"), html);
  const std::string none = Fresh("none");
  EXPECT_EQ(Invoke({"audit", "goldens/none", "--out", none}).code, 2);
  EXPECT_FALSE(fs::exists(none));
}

TEST(Audit, LinesAreAtMostEightyColumnsButForNames) {
  const Ended ran = Invoke({"audit", kClean});
  size_t begin = 0;
  for (size_t end; (end = ran.out.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_LE(end - begin, 80u) << ran.out.substr(begin, end - begin);
  }
  EXPECT_EQ(ran.out.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace assay::cli
