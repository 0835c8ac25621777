#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "harness/store/files.h"
#include "harness/store/results.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kBetweenSyncs{1};
// A killed run's child that was forked this very moment still has the lock until it gets to run.
constexpr int kLockTries = 20, kLockWaitMs = 10;

Error Cannot(std::string_view verb, const std::string& path, int code) {
  return Error{fmt::format("cannot {} {}: {}", verb, path, std::strerror(code)),
               ErrorKind::kEnvironment};
}

// A results file whose first line was never finished holds nothing: its run was killed at once.
bool IsStump(const fs::path& file) {
  constexpr std::string_view kStart = "{\"type\":\"run\"";
  constexpr uintmax_t kLongestHeader = 1 << 20;
  std::error_code code;
  const uintmax_t size = fs::file_size(file, code);  // fails for what is no file with bytes in it
  if (code || size > kLongestHeader) return false;
  std::ifstream in(file, std::ios::binary);
  std::string text;
  if (!in || (std::getline(in, text) && !in.eof())) return false;
  const size_t common = std::min(text.size(), kStart.size());
  return text.substr(0, common) == kStart.substr(0, common);
}

Status MakeFolder(const std::string& dir, ResultsWriter::Folder folder, bool* made) {
  std::error_code code;
  *made = fs::create_directories(dir, code);
  if (code) return Cannot("make the folder", dir, code.value());
  fs::directory_iterator entries(dir, code);
  if (code) return Cannot("read the folder", dir, code.value());
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (name == kResultsFile ? IsStump(entry.path())
                             : folder == ResultsWriter::Folder::kMayHoldFiles) {
      continue;
    }
    return Error{
        fmt::format("{} is not empty (it holds {}): give a new or an empty folder, or "
                    "--resume a folder with a recorded run",
                    dir, name)};
  }
  return Ok();
}

// The lock belongs to the open file, so that reading the file elsewhere in the process does not
// drop it. Children close their copy as they are forked (see Opened): it ends with this process.
Status Lock(int fd, const std::string& path) {
  int failed = 0;
  for (int tries = 0; tries < kLockTries; ++tries) {
    if (tries > 0) poll(nullptr, 0, kLockWaitMs);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return Ok();
    failed = errno;
    if (failed != EWOULDBLOCK && failed != EINTR) break;
  }
  if (failed == EWOULDBLOCK || failed == EINTR) {
    return Error{fmt::format("{}: another run is writing here", path), ErrorKind::kEnvironment};
  }
  // File systems without locks exist; a run must be possible there too.
  return Ok();
}

bool IsSameFile(int fd, const std::string& path) {
  struct stat open_file = {}, named = {};
  return fstat(fd, &open_file) == 0 && stat(path.c_str(), &named) == 0 &&
         open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
}

// A descriptor that forked children do not have: workers and engines cannot write the record, nor
// hold its lock on when the run was killed and they are not gone yet.
class Opened {
 public:
  Opened() : next_(first_) {
    static const int registered = pthread_atfork(nullptr, nullptr, CloseAll);
    (void)registered;
    if (next_ != nullptr) next_->previous_ = this;
    first_ = this;
  }
  ~Opened() {
    Close();
    (previous_ != nullptr ? previous_->next_ : first_) = next_;
    if (next_ != nullptr) next_->previous_ = previous_;
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  int fd = -1;

 private:
  void Close() {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  static void CloseAll() {
    for (Opened* each = first_; each != nullptr; each = each->next_) each->Close();
  }

  static Opened* first_;
  Opened* next_;
  Opened* previous_ = nullptr;
};
Opened* Opened::first_ = nullptr;

}  // namespace

struct ResultsWriter::State {
  std::string dir, path;
  Opened opened;
  off_t end = 0;  // behind the last whole line
  Clock::time_point synced = Clock::now();

  int fd() const { return opened.fd; }

  Status Open(int flags) {
    opened.fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0644);
    if (fd() < 0) return Cannot("write", path, errno);
    if (const Status locked = Lock(fd(), path); !locked.ok()) return locked;
    if (IsSameFile(fd(), path)) return Ok();
    return Error{fmt::format("{}: another run has begun here", path), ErrorKind::kEnvironment};
  }

  Status CutTo(off_t size) {
    if (ftruncate(fd(), size) != 0) return Cannot("shorten", path, errno);
    end = size;
    return Ok();
  }

  Status Write(std::string line, bool sync) {
    line += '\n';
    size_t done = 0;
    while (done < line.size()) {
      const ssize_t count = write(fd(), line.data() + done, line.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        const int code = count < 0 ? errno : ENOSPC;
        // Half a line in the middle would make the file unreadable once the next one follows.
        if (done > 0 && ftruncate(fd(), end) != 0) return Cannot("shorten", path, errno);
        return Cannot("write", path, code);
      }
      done += static_cast<size_t>(count);
    }
    end += static_cast<off_t>(line.size());
    if (!sync && Clock::now() - synced < kBetweenSyncs) return Ok();
    synced = Clock::now();
    // EINVAL, EROFS: a pipe or a special file, where there is nothing to sync.
    if (fsync(fd()) != 0 && errno != EINVAL && errno != EROFS) return Cannot("write", path, errno);
    return Ok();
  }
};

ResultsWriter::ResultsWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
ResultsWriter::ResultsWriter(ResultsWriter&&) noexcept = default;
ResultsWriter& ResultsWriter::operator=(ResultsWriter&&) noexcept = default;
ResultsWriter::~ResultsWriter() = default;

const std::string& ResultsWriter::path() const { return state_->path; }

Result<ResultsWriter> ResultsWriter::Create(const std::string& dir, const RunHeader& header,
                                            Folder folder) {
  bool made = false;
  if (const Status ready = MakeFolder(dir, folder, &made); !ready.ok()) return ready.error();
  auto state = std::make_unique<State>();
  state->dir = dir;
  state->path = (fs::path(dir) / kResultsFile).string();
  if (const Status opened = state->Open(O_CREAT); !opened.ok()) {
    if (made) rmdir(dir.c_str());  // which fails where another run has put its file there
    return opened.error();
  }
  // Behind the lock: what MakeFolder saw may have become another run's file meanwhile.
  struct stat facts = {};
  if (fstat(state->fd(), &facts) == 0 && facts.st_size > 0 && !IsStump(state->path)) {
    return Error{fmt::format("{}: another run has begun here", state->path)};
  }
  Status begun = state->CutTo(0);
  if (begun.ok()) begun = state->Write(ToJson(header), true);
  if (!begun.ok()) {
    // Nothing half-written: there is no record yet.
    unlink(state->path.c_str());
    if (made) rmdir(dir.c_str());
    return begun.error();
  }
  SyncNames(dir);
  return ResultsWriter(std::move(state));
}

Result<ResultsWriter> ResultsWriter::Resume(const std::string& dir, RunRecord* record) {
  auto state = std::make_unique<State>();
  state->dir = dir;
  state->path = (fs::path(dir) / kResultsFile).string();
  if (const Status opened = state->Open(0); !opened.ok()) return opened.error();
  Result<RunRecord> read = ReadResults(state->path);
  if (!read.ok()) return read.error();
  *record = *std::move(read);

  // Where the lines end that stay: the header's and one for each cell.
  std::ifstream in(state->path, std::ios::binary);
  std::string text;
  off_t end = 0;
  bool newline = true;
  for (size_t line = 0; line < 1 + record->cells.size() && std::getline(in, text); ++line) {
    newline = !in.eof();
    end += static_cast<off_t>(text.size()) + (newline ? 1 : 0);
  }
  if (const Status cut = state->CutTo(end); !cut.ok()) return cut.error();
  if (!newline) {
    if (const Status wrote = state->Write("", true); !wrote.ok()) return wrote.error();
  }
  record->summary.reset();
  return ResultsWriter(std::move(state));
}

Status ResultsWriter::Append(const CellResult& cell) { return state_->Write(ToJson(cell), false); }

Status ResultsWriter::Finish(const Totals& totals, double seconds) {
  return state_->Write(SummaryJson(totals, seconds), true);
}

}  // namespace assay
