#include "harness/checkpoint/unix_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "harness/checkpoint/shown.h"

namespace assay {

Error SystemError(std::string_view path, std::string_view what) {
  const int code = errno;
  // A name that is not there or may not be read is the user's input; the rest is the machine.
  const bool input = code == ENOENT || code == ENOTDIR || code == EACCES || code == EISDIR ||
                     code == ELOOP || code == ENAMETOOLONG;
  return Error{fmt::format("{}: cannot {}: {}", ShownPath(path), what,
                           std::generic_category().message(code)),
               input ? ErrorKind::kBadInput : ErrorKind::kEnvironment};
}

UnixFile::UnixFile(std::string path, int descriptor, size_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

UnixFile::UnixFile(UnixFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

UnixFile::~UnixFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

Result<UnixFile> UnixFile::OpenForReading(const std::string& path) {
  if (path.find('\0') != path.npos) {
    return Error{fmt::format("{}: a path cannot contain a zero byte", ShownPath(path))};
  }
  // Without O_NONBLOCK opening a named pipe would wait for a writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return SystemError(path, "open");
  UnixFile file(path, descriptor, 0);
  struct stat status;
  if (fstat(descriptor, &status) != 0) return SystemError(path, "stat");
  if (!S_ISREG(status.st_mode)) {
    return Error{fmt::format("{}: not a regular file", ShownPath(path))};
  }
  file.size_ = static_cast<size_t>(status.st_size);
  return file;
}

Result<UnixFile> UnixFile::CreateNew(const std::string& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return SystemError(path, "create");
  return UnixFile(path, descriptor, 0);
}

Result<std::string> UnixFile::ReadAll() const {
  std::string text(size_, '\0');
  size_t done = 0;
  while (done < size_) {
    const ssize_t count = pread(descriptor_, text.data() + done, size_ - done, done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(path_, "read");
    if (count == 0) {
      return Error{fmt::format("{}: ended at byte {} of {}; it shrank while it was read",
                               ShownPath(path_), done, size_)};
    }
    done += static_cast<size_t>(count);
  }
  return text;
}

Result<void*> UnixFile::Map() const {
  if (size_ == 0) return static_cast<void*>(nullptr);
  void* mapping = mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor_, 0);
  if (mapping == MAP_FAILED) return SystemError(path_, fmt::format("map {} bytes", size_));
  return mapping;
}

Status UnixFile::WriteAt(uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    constexpr size_t kMaxChunk = size_t{1} << 30;  // Linux writes at most 2 GiB - 4 KiB at once
    const ssize_t count = pwrite(descriptor_, bytes.data(), std::min(bytes.size(), kMaxChunk),
                                 static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return SystemError(path_, "write");  // 0: no progress, for ever
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return Ok();
}

Status UnixFile::Sync() const {
  return fsync(descriptor_) == 0 ? Ok() : Status(SystemError(path_, "sync"));
}

Status SyncFolder(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return SystemError(folder, "open");
  const int result = fsync(descriptor);
  const Status status = result == 0 || errno == EINVAL  // some file systems sync no folders
                            ? Ok()
                            : Status(SystemError(folder, "sync"));
  close(descriptor);
  return status;
}

}  // namespace assay
