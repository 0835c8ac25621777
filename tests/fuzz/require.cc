#include "tests/fuzz/require.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace assay::fuzz {
namespace {

constexpr size_t kLongestMessage = 4096;

// Gone when the process ends in order.
class Folder {
 public:
  Folder() {
    // In memory where there is such a place: each input is a file.
    const char* base = std::getenv("TEST_TMPDIR");
    if (access("/dev/shm", W_OK | X_OK) == 0) base = "/dev/shm";
    path_ = std::string(base != nullptr ? base : "/tmp") + "/fuzzXXXXXX";
    if (mkdtemp(path_.data()) == nullptr) Broken("no folder for files", path_);
  }
  ~Folder() {
    if (!last_.empty()) unlink(last_.c_str());
    rmdir(path_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& File(const char* name) {
    const std::string file = path_ + "/" + name;
    if (file != last_ && !last_.empty()) unlink(last_.c_str());
    return last_ = file;
  }

 private:
  std::string path_, last_;
};

}  // namespace

void Broken(std::string_view what, std::string_view detail) {
  std::fprintf(stderr, "%.*s: %.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(detail.size()), detail.data());
  std::abort();
}

void RequireOneLine(const Error& error) {
  if (error.message.empty()) Broken("an error without a message", "");
  if (error.message.size() > kLongestMessage) Broken("an endless message", error.message);
  for (const char c : error.message) {
    if (c >= 0 && c < ' ') Broken("a message of several lines", error.message);
  }
}

const char* FileOf(const char* name, const uint8_t* data, size_t size) {
  static Folder folder;
  const std::string& path = folder.File(name);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  size_t done = 0;
  while (fd >= 0 && done < size) {
    const ssize_t count = write(fd, data + done, size - done);
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  if (fd < 0 || done < size || close(fd) != 0) Broken("cannot write", path);
  return path.c_str();
}

}  // namespace assay::fuzz
