#include "harness/store/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <vector>

namespace assay {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kSuffix = ".tmp";

std::string FolderOf(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

Error Cannot(const std::string& path, int code) {
  return Error{fmt::format("cannot write {}: {}", path, std::strerror(code)),
               ErrorKind::kEnvironment};
}

// 0, or errno.
int WriteAndSync(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : ENOSPC;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return fsync(fd) != 0 && errno != EINVAL && errno != EROFS ? errno : 0;
}

// A process that may still be writing. Its number may by now be another's: then the file stays.
bool IsAlive(const std::string& number) {
  const long pid = std::strtol(number.c_str(), nullptr, 10);
  return pid > 0 && pid <= std::numeric_limits<pid_t>::max() && pid != getpid() &&
         (kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH);
}

}  // namespace

void SyncNames(const std::string& dir) {
  const int fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

Status WriteWhole(const std::string& path, std::string_view text) {
  const std::string beside = fmt::format("{}.{}{}", path, getpid(), kSuffix);
  const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return Cannot(path, errno);
  int code = WriteAndSync(fd, text);
  if (close(fd) != 0 && code == 0) code = errno;
  if (code == 0 && std::rename(beside.c_str(), path.c_str()) != 0) code = errno;
  if (code != 0) {
    unlink(beside.c_str());
    return Cannot(path, code);
  }
  SyncNames(FolderOf(path));
  return Ok();
}

Status MoveIntoPlace(const std::string& beside, const std::string& path) {
  const int fd = open(beside.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Cannot(path, errno);
  const int code = fsync(fd) != 0 && errno != EINVAL && errno != EROFS ? errno : 0;
  close(fd);
  if (code != 0) return Cannot(path, code);
  if (std::rename(beside.c_str(), path.c_str()) != 0) return Cannot(path, errno);
  SyncNames(FolderOf(path));
  return Ok();
}

void RemoveLeftovers(const std::string& path) {
  const std::string start = fs::path(path).filename().string() + ".";
  std::error_code failed, ignored;
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator entry(FolderOf(path), failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(start) || !name.ends_with(kSuffix)) continue;
    const std::string_view number = std::string_view(name).substr(
        start.size(), name.size() - std::min(name.size(), start.size() + kSuffix.size()));
    const bool digits = !number.empty() && std::all_of(number.begin(), number.end(),
                                                       [](char c) { return c >= '0' && c <= '9'; });
    if (digits && !IsAlive(std::string(number))) leftovers.push_back(entry->path());
  }
  for (const fs::path& leftover : leftovers) fs::remove(leftover, ignored);
}

}  // namespace assay
