#include "harness/run/pool.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>

namespace assay::run {
namespace {

using Clock = std::chrono::steady_clock;

// A worker judges as well as waits for the engine: so much longer than the cell's own limit may
// it take before it is given up.
constexpr int64_t kJudgingShare = 4;
constexpr int64_t kJudgingMs = 60000;
constexpr uint64_t kLongestLine = uint64_t{1} << 30;

bool WriteAll(int fd, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = send(fd, at, size, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

bool ReadAll(int fd, void* data, size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = read(fd, at, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

struct Worker {
  pid_t pid = -1;
  int fd = -1;
  bool busy = false;
  size_t index = 0;
  Clock::time_point since;
};

[[noreturn]] void WorkerMain(int fd, const std::vector<Problem>& problems, ModelStore* models,
                             const CellLimits& limits) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Ctrl-C reaches the whole group; the parent decides what it means.
  signal(SIGINT, SIG_IGN);
  for (uint64_t index = 0; ReadAll(fd, &index, sizeof(index));) {
    if (index >= problems.size()) break;
    const CellRun run = ExecuteCell(problems[index], models, limits);
    const std::string line = ToJson(run.result);
    const uint64_t size = line.size();
    if (!WriteAll(fd, &size, sizeof(size)) || !WriteAll(fd, line.data(), line.size())) break;
  }
  _exit(0);
}

class Pool {
 public:
  Pool(const std::vector<Problem>& problems, ModelStore* models, const PoolOptions& options)
      : problems_(problems), models_(models), options_(options) {}
  ~Pool() {
    for (Worker& worker : workers_) End(&worker);
  }

  Status Start() {
    const size_t count = std::min<size_t>(static_cast<size_t>(std::max(options_.jobs, 1)),
                                          std::max<size_t>(problems_.size(), 1));
    workers_.resize(count);
    for (Worker& worker : workers_) {
      if (auto status = Fork(&worker); !status) return status;
    }
    return Ok();
  }

  Status Run(const std::function<Status(size_t, const CellResult&)>& on_result) {
    size_t done = 0;
    while (done < problems_.size()) {
      if (options_.stop && options_.stop()) {
        return Error{fmt::format("interrupted: {} of {} cells were run", done, problems_.size()),
                     ErrorKind::kEnvironment};
      }
      for (Worker& worker : workers_) Feed(&worker);
      if (std::none_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.busy; })) {
        return Error{"no worker process is left", ErrorKind::kEnvironment};
      }
      std::vector<pollfd> fds;
      for (const Worker& worker : workers_)
        fds.push_back({worker.busy ? worker.fd : -1, POLLIN, 0});
      poll(fds.data(), fds.size(), 1000);
      for (size_t i = 0; i < workers_.size(); ++i) {
        Worker& worker = workers_[i];
        if (!worker.busy) continue;
        const bool late = Clock::now() - worker.since > Limit();
        if (fds[i].revents == 0 && !late) continue;
        const size_t index = worker.index;
        const CellResult result = Collect(&worker, late && fds[i].revents == 0);
        ++done;
        if (auto status = on_result(index, result); !status) return status;
      }
    }
    return Ok();
  }

 private:
  std::chrono::milliseconds Limit() const {
    return std::chrono::milliseconds(kJudgingShare * options_.limits.time_ms + kJudgingMs);
  }

  Status Fork(Worker* worker) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return Error{fmt::format("no socket for a worker: {}", std::strerror(errno)),
                   ErrorKind::kEnvironment};
    }
    fflush(nullptr);
    const pid_t pid = fork();
    if (pid < 0) {
      close(ends[0]);
      close(ends[1]);
      return Error{fmt::format("no worker process: {}", std::strerror(errno)),
                   ErrorKind::kEnvironment};
    }
    if (pid == 0) {
      close(ends[0]);
      for (const Worker& other : workers_) {
        if (other.fd >= 0) close(other.fd);
      }
      WorkerMain(ends[1], problems_, models_, options_.limits);
    }
    close(ends[1]);
    worker->pid = pid;
    worker->fd = ends[0];
    worker->busy = false;
    return Ok();
  }

  void End(Worker* worker) {
    if (worker->fd >= 0) close(worker->fd);
    worker->fd = -1;
    if (worker->pid > 0) {
      kill(worker->pid, SIGKILL);
      while (waitpid(worker->pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    worker->pid = -1;
  }

  void Feed(Worker* worker) {
    if (worker->busy || worker->fd < 0 || next_ >= problems_.size()) return;
    worker->index = next_++;
    worker->since = Clock::now();
    worker->busy = true;
    const uint64_t index = worker->index;
    WriteAll(worker->fd, &index, sizeof(index));  // a dead worker shows when its answer is due
  }

  CellResult Collect(Worker* worker, bool late) {
    worker->busy = false;
    std::string line;
    uint64_t size = 0;
    bool whole = !late && ReadAll(worker->fd, &size, sizeof(size)) && size < kLongestLine;
    if (whole) {
      line.resize(size);
      whole = ReadAll(worker->fd, line.data(), size);
    }
    if (whole) {
      auto result = CellFromJson(line, "a worker");
      if (result) return std::move(*result);
    }
    CellResult lost;
    lost.problem = PrintCanonical(problems_[worker->index]);
    lost.repro = fmt::format("./assay run '{}'", PrintMinimal(problems_[worker->index]));
    lost.verdict = Verdict::kInfra;
    lost.reason = late ? "the harness's worker took too long and was ended"
                       : "the harness's worker died or gave back what could not be read";
    End(worker);
    if (auto status = Fork(worker); !status) lost.reason += "; " + status.error().message;
    return lost;
  }

  const std::vector<Problem>& problems_;
  ModelStore* models_;
  PoolOptions options_;
  std::vector<Worker> workers_;
  size_t next_ = 0;
};

}  // namespace

Status RunPool(const std::vector<Problem>& problems, ModelStore* models, const PoolOptions& options,
               const std::function<Status(size_t index, const CellResult& result)>& on_result) {
  Pool pool(problems, models, options);
  if (auto status = pool.Start(); !status) return status;
  return pool.Run(on_result);
}

}  // namespace assay::run
