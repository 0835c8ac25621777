#include "harness/cli/subprocess.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace assay::cli {
namespace {

constexpr int kNoProgram = 127;
constexpr int kBySignal = 128;
constexpr size_t kMostError = 1 << 16;
constexpr size_t kLongestWhy = 200;

volatile std::sig_atomic_t running = 0;
volatile std::sig_atomic_t received = 0;

void PassOn(int signal) {
  received = signal;
  if (running > 0) kill(static_cast<pid_t>(running), SIGTERM);
}

// While this lives, the signals that would end this process wait.
class Held {
 public:
  Held() {
    sigset_t ending;
    sigemptyset(&ending);
    sigaddset(&ending, SIGINT);
    sigaddset(&ending, SIGTERM);
    sigprocmask(SIG_BLOCK, &ending, &before_);
  }
  ~Held() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

// The signals that would end this process end the other one while this lives.
class Passing {
 public:
  Passing() {
    received = 0;
    struct sigaction action {};
    action.sa_handler = PassOn;
    sigaction(SIGINT, &action, &interrupt_);
    sigaction(SIGTERM, &action, &terminate_);
  }
  ~Passing() {
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGTERM, &terminate_, nullptr);
  }
  Passing(const Passing&) = delete;
  Passing& operator=(const Passing&) = delete;

 private:
  struct sigaction interrupt_ {
  }, terminate_{};
};

[[noreturn]] void Become(const std::vector<std::string>& words, int error, const sigset_t& mask) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  dup2(error, STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  _exit(kNoProgram);
}

// A signal between fork() and the assignment would reach nobody: it waits.
pid_t Start(const std::vector<std::string>& words, int error) {
  const Held held;
  const pid_t pid = fork();
  if (pid == 0) Become(words, error, held.before());
  if (pid > 0) running = static_cast<int>(pid);
  return pid;
}

// The number is another process's as soon as this one is reaped: no signal comes in between.
int Await(pid_t pid) {
  siginfo_t ended;
  while (waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  const Held held;
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  running = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : kBySignal + WTERMSIG(status);
}

std::string ReadToEnd(int fd) {
  std::string text;
  char piece[4096];
  for (;;) {
    const ssize_t got = read(fd, piece, sizeof(piece));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    const size_t room = kMostError - std::min(kMostError, text.size());
    text.append(piece, std::min(room, static_cast<size_t>(got)));
  }
}

}  // namespace

std::string Subprocess::why() const {
  if (signal != 0) return "interrupted";
  if (missing()) return "there is no such program";
  std::string last, line;
  for (const char c : error + "\n") {
    if (c != '\n') {
      line += c >= ' ' && c <= '~' ? c : '?';
      continue;
    }
    if (!line.empty()) last = line.substr(0, kLongestWhy);
    line.clear();
  }
  if (!last.empty()) return last;
  return code >= kBySignal ? fmt::format("ended by signal {}", code - kBySignal)
                           : fmt::format("exit code {}", code);
}

Subprocess RunSubprocess(const std::vector<std::string>& words) {
  Subprocess result;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    result.error = std::strerror(errno);
    return result;
  }
  const Passing passing;
  const pid_t pid = Start(words, ends[1]);
  close(ends[1]);
  if (pid < 0) {
    result.error = std::strerror(errno);
    close(ends[0]);
    return result;
  }
  result.error = ReadToEnd(ends[0]);
  close(ends[0]);
  result.code = Await(pid);
  result.signal = received;
  return result;
}

}  // namespace assay::cli
