// The program when its streams are closed or full, or a signal ends it: nothing recorded is lost.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "harness/store/results.h"

namespace assay::cli {
namespace {

namespace fs = std::filesystem;

std::string Fresh(const std::string& name) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  fs::remove_all(path);
  return path;
}

// Starts the program; `prepare` runs in the child, before it.
pid_t Start(const std::vector<std::string>& words, const std::function<void()>& prepare) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  setenv("ASSAY_ROOT", fs::current_path().c_str(), 1);
  dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
  dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
  prepare();
  std::vector<char*> argv{const_cast<char*>("assay")};
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execv("harness/cli/assay", argv.data());
  _exit(127);
}

int Code(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void CloseErrors() { close(STDERR_FILENO); }
void CloseAll() {
  for (int fd = 0; fd <= 2; ++fd) close(fd);
}
void FullOutput() { dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO); }
void Nothing() {}

TEST(Streams, ClosedOnesDoNotTakeTheResultsFilesPlace) {
  for (const auto& prepare : {CloseErrors, CloseAll}) {
    const std::string out = Fresh("closed");
    Code(Start({"run", "kind=load", "model=qwen3-mini", "--out", out}, prepare));
    const auto record = ReadResults(out);
    ASSERT_TRUE(record) << record.error().message;
    EXPECT_TRUE(record->finished());
    EXPECT_FALSE(record->cells.empty());
  }
}

TEST(Streams, OutputThatIsLostIsAnError) {
  EXPECT_EQ(Code(Start({"list", "tp=1"}, FullOutput)), 2);
  EXPECT_EQ(Code(Start({"list", "tp=1"}, Nothing)), 0);
}

// Interrupts a run as soon as its record holds a cell, and resumes it.
TEST(Streams, AnInterruptedRunLosesNothingAndIsResumed) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string out = Fresh("interrupted");
    const pid_t pid = Start({"run", "model=llama-mini,qwen3-mini", "--out", out}, Nothing);
    std::error_code ignored;
    int status = 0;
    while (fs::file_size(out + "/results.jsonl", ignored) < 4096 || ignored) {
      ASSERT_EQ(waitpid(pid, &status, WNOHANG), 0) << "it ended before it could be interrupted";
    }
    kill(pid, signal);
    ASSERT_EQ(Code(pid), 130);
    const auto stopped = ReadResults(out);
    ASSERT_TRUE(stopped) << stopped.error().message;
    EXPECT_FALSE(stopped->finished());
    EXPECT_EQ(Code(Start({"run", "--resume", out}, Nothing)), 0);
    const auto resumed = ReadResults(out);
    ASSERT_TRUE(resumed) << resumed.error().message;
    EXPECT_TRUE(resumed->finished());
    EXPECT_GT(resumed->cells.size(), stopped->cells.size());
    EXPECT_TRUE(resumed->Count().all_collected());
    for (const CellResult& cell : resumed->cells) EXPECT_NE(cell.verdict, Verdict::kInfra);
  }
}

}  // namespace
}  // namespace assay::cli
