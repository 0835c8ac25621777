#include "kernels/methods/out_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace assay::kernels {
namespace {

namespace fs = std::filesystem;

Error Failed(const std::string& path, std::string_view what) {
  return {fmt::format("{}: cannot {}: {}", path, what, std::strerror(errno)),
          ErrorKind::kEnvironment};
}

Status SyncFolder(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return Failed(path, "open the folder");
  const bool good = fsync(descriptor) == 0;
  const Status status = good ? Ok() : Status(Failed(path, "sync the folder"));
  close(descriptor);
  return status;
}

}  // namespace

Result<OutFile> OutFile::Create(const std::string& path) {
  constexpr mode_t kMode = 0666;
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
  if (descriptor < 0) return Failed(path, "create");
  return OutFile(path, descriptor);
}

OutFile::OutFile(OutFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

OutFile::~OutFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

Status OutFile::WriteAt(int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Failed(path_, "write");  // 0: no progress, for ever
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += count;
  }
  return Ok();
}

Status OutFile::Finish() {
  const bool synced = fsync(descriptor_) == 0;
  if (!synced) return Failed(path_, "sync");
  if (close(std::exchange(descriptor_, -1)) != 0) return Failed(path_, "close");
  return Ok();
}

Status WriteWhole(const std::string& path, std::string_view text) {
  Result<OutFile> file = OutFile::Create(path);
  if (!file.ok()) return file.error();
  if (Status good = file->WriteAt(0, std::as_bytes(std::span(text))); !good.ok()) return good;
  return file->Finish();
}

Result<NewFolder> NewFolder::Create(const std::string& path) {
  std::string plain = path;
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  std::error_code error;
  const bool there = fs::exists(fs::symlink_status(plain, error));
  if (there && !(fs::is_directory(plain, error) && fs::is_empty(plain, error) && !error)) {
    return Error{fmt::format("{}: it is there already and no empty folder", plain)};
  }
  static std::atomic<int> count = 0;
  const std::string beside = fmt::format("{}.partial-{}-{}", plain, getpid(), count++);
  fs::create_directory(beside, error);
  if (error) {
    return Error{fmt::format("{}: cannot make the folder: {}", beside, error.message()),
                 ErrorKind::kEnvironment};
  }
  return NewFolder(plain, beside);
}

NewFolder::NewFolder(NewFolder&& other) noexcept
    : path_(std::move(other.path_)), beside_(std::exchange(other.beside_, "")) {}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!beside_.empty()) fs::remove_all(beside_, ignored);
}

Status NewFolder::Commit() {
  if (Status good = SyncFolder(beside_); !good.ok()) return good;
  // Over an empty folder too.
  if (std::rename(beside_.c_str(), path_.c_str()) != 0) {
    return Failed(path_, "rename a finished folder to");
  }
  beside_.clear();
  const fs::path parent = fs::path(path_).parent_path();
  return SyncFolder(parent.empty() ? "." : parent.string());
}

}  // namespace assay::kernels
