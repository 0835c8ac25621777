#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "harness/store/results.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kBetweenSyncs{1};

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

Status MakeFolder(const std::string& dir, ResultsWriter::Folder folder) {
  std::error_code code;
  fs::create_directories(dir, code);
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

// A lock of the process, not of the file description: children that are forked while cells run do
// not hold it on after the run is killed.
Status Lock(int fd, const std::string& path) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (fcntl(fd, F_SETLK, &lock) == 0) return Ok();
  if (errno == EACCES || errno == EAGAIN) {
    return Error{fmt::format("{}: another run is writing here", path), ErrorKind::kEnvironment};
  }
  // File systems without locks exist; a run must be possible there too.
  return Ok();
}

// Without this a file that was synced may still lack its name after a power cut.
void SyncFolder(const std::string& dir) {
  const int fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

}  // namespace

struct ResultsWriter::State {
  std::string dir, path;
  int fd = -1;
  off_t end = 0;  // behind the last whole line
  Clock::time_point synced = Clock::now();

  ~State() {
    if (fd >= 0) close(fd);
  }

  Status Open(int flags) {
    fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0644);
    if (fd < 0) return Cannot("write", path, errno);
    return Lock(fd, path);
  }

  Status CutTo(off_t size) {
    if (ftruncate(fd, size) != 0) return Cannot("shorten", path, errno);
    end = size;
    return Ok();
  }

  Status Write(std::string line, bool sync) {
    line += '\n';
    size_t done = 0;
    while (done < line.size()) {
      const ssize_t count = write(fd, line.data() + done, line.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        const int code = count < 0 ? errno : ENOSPC;
        // Half a line in the middle would make the file unreadable once the next one follows.
        if (done > 0 && ftruncate(fd, end) != 0) return Cannot("shorten", path, errno);
        return Cannot("write", path, code);
      }
      done += static_cast<size_t>(count);
    }
    end += static_cast<off_t>(line.size());
    if (!sync && Clock::now() - synced < kBetweenSyncs) return Ok();
    synced = Clock::now();
    // EINVAL, EROFS: a pipe or a special file, where there is nothing to sync.
    if (fsync(fd) != 0 && errno != EINVAL && errno != EROFS) return Cannot("write", path, errno);
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
  if (const Status made = MakeFolder(dir, folder); !made.ok()) return made.error();
  auto state = std::make_unique<State>();
  state->dir = dir;
  state->path = (fs::path(dir) / kResultsFile).string();
  if (const Status opened = state->Open(O_CREAT); !opened.ok()) return opened.error();
  // Behind the lock: what MakeFolder saw may have become another run's file meanwhile.
  struct stat facts = {};
  if (fstat(state->fd, &facts) == 0 && facts.st_size > 0 && !IsStump(state->path)) {
    return Error{fmt::format("{}: another run has begun here", state->path)};
  }
  // Closing any descriptor of the file, as IsStump does, drops a process's lock on it.
  if (const Status locked = Lock(state->fd, state->path); !locked.ok()) return locked.error();
  if (const Status cut = state->CutTo(0); !cut.ok()) return cut.error();
  if (const Status wrote = state->Write(ToJson(header), true); !wrote.ok()) return wrote.error();
  SyncFolder(dir);
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
  in.close();  // and with it the lock
  if (const Status locked = Lock(state->fd, state->path); !locked.ok()) return locked.error();
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
