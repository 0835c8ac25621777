// Preloaded into the program under test: at its k-th call that changes a file, the process is
// killed, or the disk is full or cannot be written from then on. Every moment of a run that can
// leave something behind is such a call, so counting them reaches each; and a count is the same in
// each run, which a time is not. Forked children are let alone.
//
//   ASSAY_TEST_FILES=kill-before:K | kill-within:K | kill-after:K | full:K | read-only:K
//   ASSAY_TEST_COUNT=FILE   the number of calls is written there when the process ends, and how
//                           many of the last ones synced a folder, which may fail without harm
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

enum class Mode { kNone, kKillBefore, kKillWithin, kKillAfter, kFull, kReadOnly };

struct State {
  pid_t pid = 0;
  Mode mode = Mode::kNone;
  long at = 0;
  long calls = 0;
  long last_folder_syncs = 0;
};
State state;

template <class Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

[[noreturn]] void Die() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

__attribute__((constructor)) void Begin() {
  state.pid = getpid();
  const char* text = std::getenv("ASSAY_TEST_FILES");
  const char* colon = text != nullptr ? std::strchr(text, ':') : nullptr;
  if (colon == nullptr) return;
  const struct {
    const char* name;
    Mode mode;
  } modes[] = {{"kill-before", Mode::kKillBefore},
               {"kill-within", Mode::kKillWithin},
               {"kill-after", Mode::kKillAfter},
               {"full", Mode::kFull},
               {"read-only", Mode::kReadOnly}};
  for (const auto& each : modes) {
    if (std::strncmp(text, each.name, static_cast<size_t>(colon - text)) == 0) {
      state.mode = each.mode;
    }
  }
  state.at = std::atol(colon + 1);
}

__attribute__((destructor)) void End() {
  const char* path = std::getenv("ASSAY_TEST_COUNT");
  if (path == nullptr || getpid() != state.pid) return;
  if (FILE* file = std::fopen(path, "w")) {
    std::fprintf(file, "%ld %ld\n", state.calls, state.last_folder_syncs);
    std::fclose(file);
  }
}

bool Counts() { return getpid() == state.pid; }

// Counts a call; 0, or the errno that it is to fail with.
int Before() {
  ++state.calls;
  state.last_folder_syncs = 0;
  if (state.mode == Mode::kKillBefore && state.calls == state.at) Die();
  const bool failing = state.calls >= state.at;
  if (state.mode == Mode::kFull && failing) return ENOSPC;
  if (state.mode == Mode::kReadOnly && failing) return EROFS;
  return 0;
}

void After() {
  const bool kills = state.mode == Mode::kKillAfter || state.mode == Mode::kKillWithin;
  if (kills && state.calls == state.at) Die();
}

template <class Function, class... Arguments>
int Call(const char* name, Arguments... arguments) {
  const auto real = Real<Function>(name);
  if (!Counts()) return real(arguments...);
  if (const int code = Before()) {
    errno = code;
    return -1;
  }
  const int result = real(arguments...);
  const int code = errno;
  After();
  errno = code;
  return result;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  using Function = int (*)(const char*, int, ...);
  if ((flags & O_CREAT) == 0) return Real<Function>("open")(path, flags, mode);
  return Call<Function>("open", path, flags, mode);
}

ssize_t write(int fd, const void* data, size_t size) {
  using Function = ssize_t (*)(int, const void*, size_t);
  const auto real = Real<Function>("write");
  if (!Counts() || fd <= STDERR_FILENO) return real(fd, data, size);
  const int failed = Before();
  if (failed == EROFS || (failed != 0 && size < 2)) {
    errno = failed;
    return -1;
  }
  // A disk that fills up, or a kill, may come in the middle.
  const bool torn = state.mode == Mode::kKillWithin && state.calls == state.at;
  if (failed != 0 && state.calls > state.at) {
    errno = failed;
    return -1;
  }
  const ssize_t written = real(fd, data, torn || failed != 0 ? size / 2 : size);
  const int code = errno;
  After();
  errno = code;
  return written;
}

// A full disk still takes names away and makes files shorter.
int ftruncate(int fd, off_t size) noexcept {
  const auto real = Real<int (*)(int, off_t)>("ftruncate");
  if (!Counts() || state.mode == Mode::kFull) return real(fd, size);
  return Call<int (*)(int, off_t)>("ftruncate", fd, size);
}
int unlink(const char* path) noexcept {
  if (state.mode == Mode::kFull) return Real<int (*)(const char*)>("unlink")(path);
  return Call<int (*)(const char*)>("unlink", path);
}
int rmdir(const char* path) noexcept {
  if (state.mode == Mode::kFull) return Real<int (*)(const char*)>("rmdir")(path);
  return Call<int (*)(const char*)>("rmdir", path);
}

int mkdir(const char* path, mode_t mode) noexcept {
  return Call<int (*)(const char*, mode_t)>("mkdir", path, mode);
}
int fsync(int fd) {
  struct stat facts;
  const long before = state.last_folder_syncs;
  const bool folder = fstat(fd, &facts) == 0 && S_ISDIR(facts.st_mode);
  const int result = Call<int (*)(int)>("fsync", fd);
  const int code = errno;
  if (folder && Counts()) state.last_folder_syncs = before + 1;
  errno = code;
  return result;
}
int rename(const char* from, const char* to) noexcept {
  return Call<int (*)(const char*, const char*)>("rename", from, to);
}

}  // extern "C"
