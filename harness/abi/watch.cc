#include "harness/abi/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <set>

namespace assay::abi {
namespace {

double NowMs() {
  struct timespec now {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// This process's children. Empty where the kernel does not tell.
std::set<pid_t> Children() {
  std::set<pid_t> children;
  const std::string path = fmt::format("/proc/self/task/{}/children", syscall(SYS_gettid));
  if (FILE* file = std::fopen(path.c_str(), "re")) {
    int pid = 0;
    while (std::fscanf(file, "%d", &pid) == 1) children.insert(pid);
    std::fclose(file);
  }
  return children;
}

// While it lives, orphans among our descendants become our children, so that they can be found
// even if they left the child's process group.
class Subreaper {
 public:
  Subreaper() {
    prctl(PR_GET_CHILD_SUBREAPER, &before_);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  ~Subreaper() { prctl(PR_SET_CHILD_SUBREAPER, before_); }
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;

 private:
  int before_ = 0;
};

pid_t WaitFor(pid_t pid, int* status, int flags) {
  pid_t got = 0;
  do {
    got = waitpid(pid, status, flags);
  } while (got < 0 && errno == EINTR);
  return got;
}

// A process that was sent SIGKILL ends in no time, unless the kernel holds it: then it is left.
bool ReapKilled(pid_t pid, int* status) {
  const double deadline = NowMs() + 2000;
  for (;;) {
    const pid_t got = WaitFor(pid, status, WNOHANG);
    if (got != 0) return got > 0;
    if (NowMs() > deadline) return false;
    poll(nullptr, 0, 1);
  }
}

class Watch {
 public:
  Watch(pid_t pid, Descriptor output, double start_ms, int64_t time_limit_ms)
      : pid_(pid),
        output_(std::move(output)),
        ended_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0u))),
        start_ms_(start_ms),
        limit_ms_(static_cast<double>(time_limit_ms)) {}

  Watched Run(const std::set<pid_t>& children_before) {
    while (!HasEnded()) {
      const double left_ms = start_ms_ + limit_ms_ - NowMs();
      if (left_ms <= 0) {
        watched_.timed_out = true;
        break;
      }
      Wait(left_ms);
    }
    End(children_before);
    watched_.ms = NowMs() - start_ms_;
    return std::move(watched_);
  }

 private:
  // Without reaping it: until then its number, which is its group's, is nobody else's.
  bool HasEnded() const {
    siginfo_t info{};
    const int got = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    if (got < 0) return errno != EINTR;  // ECHILD: reaped by somebody else
    return info.si_pid == pid_;
  }

  // Until something happens. Without pidfd (Linux before 5.3): looks every few milliseconds.
  void Wait(double left_ms) {
    const double step_ms = ended_.ok() ? left_ms : std::min(left_ms, 2.0);
    std::array<struct pollfd, 2> fds = {{{output_.get(), POLLIN, 0}, {ended_.get(), POLLIN, 0}}};
    const int timeout = static_cast<int>(std::min(step_ms + 1, 1e6));
    if (poll(fds.data(), fds.size(), timeout) <= 0) return;
    if (fds[0].revents != 0) ReadOutput(16);
  }

  // At most so many pieces, so that a child that prints without end cannot hold us up.
  void ReadOutput(int pieces) {
    std::array<char, 1 << 16> piece;
    while (output_.ok() && pieces-- > 0) {
      const ssize_t got = read(output_.get(), piece.data(), piece.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) return output_.Close();
      const size_t room = kOutputBytes - watched_.output.size();
      watched_.output.append(piece.data(), std::min(room, static_cast<size_t>(got)));
    }
  }

  void End(const std::set<pid_t>& children_before) {
    kill(-pid_, SIGKILL);  // the group; there is none yet if the child did not get to make it
    kill(pid_, SIGKILL);
    watched_.status_known = ReapKilled(pid_, &watched_.status);
    while (WaitFor(-pid_, nullptr, WNOHANG) > 0) ++watched_.left_behind;
    // Those of the group that are still dying, those that left it, and what these leave behind.
    for (int round = 0; round < 100; ++round) {
      std::set<pid_t> strays = Children();
      for (pid_t child : children_before) strays.erase(child);
      strays.erase(pid_);
      if (strays.empty()) break;
      for (pid_t stray : strays) kill(stray, SIGKILL);
      for (pid_t stray : strays) watched_.left_behind += ReapKilled(stray, nullptr) ? 1 : 0;
    }
    ReadOutput(64);
  }

  pid_t pid_;
  Descriptor output_;
  Descriptor ended_;
  double start_ms_;
  double limit_ms_;
  Watched watched_;
};

}  // namespace

void Descriptor::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Result<Watched> RunWatched(const std::function<void(int output, pid_t parent)>& child,
                           int64_t time_limit_ms) {
  const auto failed = [](std::string_view what) {
    return Error{fmt::format("{}: {}", what, std::strerror(errno)), ErrorKind::kEnvironment};
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed("no pipe for the child's output");
  Descriptor read_end(ends[0]), write_end(ends[1]);
  fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  const double start_ms = NowMs();
  const std::set<pid_t> children_before = Children();
  Subreaper subreaper;
  // What is buffered would otherwise be printed by the child as well.
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return failed("no child process");
  if (pid == 0) {
    child(write_end.get(), parent);
    _exit(1);
  }
  write_end.Close();
  return Watch(pid, std::move(read_end), start_ms, time_limit_ms).Run(children_before);
}

}  // namespace assay::abi
