// Process control of the parent: starts a function in a child, reads what it prints, and sees to
// it that it and all it started are gone when it ends or its time is up.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "harness/units/status.h"

namespace assay::abi {

// A file descriptor that is closed with its owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

struct Watched {
  bool timed_out = false;
  bool status_known = false;  // false where somebody else reaped the child
  int status = 0;             // as waitpid gives it
  std::string output;         // the first kOutputBytes of what was printed
  int left_behind = 0;        // processes that outlived the child and were killed
  double ms = 0;
};

inline constexpr size_t kOutputBytes = size_t{64} << 10;

// Forks and calls `child` there with the writing end of a pipe and the parent's process id; it must
// not return. Error: the system gave no pipe or no process.
Result<Watched> RunWatched(const std::function<void(int output, pid_t parent)>& child,
                           int64_t time_limit_ms);

}  // namespace assay::abi
