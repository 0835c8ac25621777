#include "harness/cli/testing/program.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/store/results.h"

namespace assay::cli::testing {

namespace fs = std::filesystem;

std::string Fresh(const std::string& name) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  fs::remove_all(path);
  return path;
}

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Ended Invoke(const std::vector<std::string>& words,
             const std::map<std::string, std::string>& environment) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const std::string out = Fresh("stdout"), error = Fresh("stderr");
  const pid_t pid = fork();
  if (pid == 0) {
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    setenv("ASSAY_ROOT", fs::current_path().c_str(), 1);
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    dup2(open(out.c_str(), flags, 0644), STDOUT_FILENO);
    dup2(open(error.c_str(), flags, 0644), STDERR_FILENO);
    std::vector<char*> argv{const_cast<char*>("assay")};
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv("harness/cli/assay", argv.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  Ended ended;
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  ended.out = ReadAll(out);
  ended.error = ReadAll(error);
  return ended;
}

int AwaitOrphans() {
  int strange = 0, status = 0;
  for (;;) {
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) return strange;  // ECHILD: none is left
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    strange += killed || WIFEXITED(status) ? 0 : 1;
  }
}

std::vector<std::string> CellsOf(const std::string& dir) {
  auto record = ReadResults(dir);
  std::vector<std::string> cells;
  if (!record || !record->finished()) return cells;
  for (CellResult& cell : record->cells) {
    cell.ms = 0;
    cell.attempts = 1;
    cells.push_back(ToJson(cell));
  }
  std::sort(cells.begin(), cells.end());
  return cells;
}

}  // namespace assay::cli::testing
