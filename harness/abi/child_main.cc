#include "harness/abi/child_main.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "harness/abi/guarded.h"
#include "harness/abi/recorder.h"
#include "harness/abi/session.h"
#include "harness/abi/transfer.h"

namespace assay::abi {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Their shadow memory takes terabytes of address space.
constexpr bool kLimitsAddressSpace = false;
#else
constexpr bool kLimitsAddressSpace = true;
#endif

constexpr size_t kDescribeAtMost = size_t{4} << 20;

// Away from the low numbers that careless code closes.
constexpr int kHighDescriptor = 500;

RecordWriter* fault_writer = nullptr;

void Put(std::array<std::byte, 512>* meta, size_t* at, const void* data, size_t size) {
  std::memcpy(meta->data() + *at, data, size);
  *at += size;
}

// Says which buffer's guard page was touched, then lets the signal have its way: the handler is
// gone by now (SA_RESETHAND), and the instruction faults again. Allocates nothing: the heap may be
// what is broken.
void OnFault(int number, siginfo_t* info, void*) {
  int64_t distance = 0;
  const bool sent = info->si_code <= 0;
  const GuardedBuffer* buffer =
      sent ? nullptr : GuardedBuffer::FindByGuard(info->si_addr, &distance);
  if (buffer != nullptr) {
    std::array<std::byte, 512> meta;
    size_t size = 0;
    const int64_t length = static_cast<int64_t>(std::min<size_t>(buffer->label().size(), 400));
    Put(&meta, &size, &distance, sizeof distance);
    Put(&meta, &size, &length, sizeof length);
    Put(&meta, &size, buffer->label().data(), static_cast<size_t>(length));
    fault_writer->Write(RecordType::kFault, {meta.data(), size}, {});
  }
  if (sent) raise(number);
}

void InstallHandlers(RecordWriter* writer) {
  // Not SIGILL and SIGTRAP: an emulator of missing instructions may live there.
  for (int number : {SIGHUP, SIGINT, SIGQUIT, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGPIPE, SIGALRM,
                     SIGTERM, SIGCHLD, SIGXCPU, SIGXFSZ}) {
    signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  fault_writer = writer;
  static std::array<std::byte, 1 << 16> stack;  // a stack overflow has none of its own
  stack_t alternative{};
  alternative.ss_sp = stack.data();
  alternative.ss_size = stack.size();
  sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
}

void Limit(int what, rlim_t soft, rlim_t hard) {
  struct rlimit limit {};
  if (getrlimit(static_cast<__rlimit_resource_t>(what), &limit) == 0) {
    soft = std::min(soft, limit.rlim_max);
    hard = std::min(hard, limit.rlim_max);
  }
  limit = {soft, hard};
  setrlimit(static_cast<__rlimit_resource_t>(what), &limit);
}

// Bytes of address space in use; 0 if it is not to be had.
uint64_t AddressSpace() {
  unsigned long long pages = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%llu", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void SetLimits(const Script& script, Recorder* recorder) {
  Limit(RLIMIT_CORE, 0, 0);
  // The parent's clock decides. This is for a child whose parent was stopped: all CPUs, all the
  // time, and some.
  const auto cpus = static_cast<rlim_t>(std::max<long>(1, sysconf(_SC_NPROCESSORS_ONLN)));
  const rlim_t seconds = static_cast<rlim_t>(std::max<int64_t>(0, script.time_limit_ms)) / 1000;
  Limit(RLIMIT_CPU, (seconds + 2) * cpus, (seconds + 4) * cpus);
  if (script.memory_limit_bytes <= 0) return;
  if (!kLimitsAddressSpace) return recorder->Note("no memory limit: built with a sanitizer");
  const uint64_t used = AddressSpace();
  if (used == 0) return recorder->Note("no memory limit: /proc/self/statm cannot be read");
  const rlim_t bytes = used + static_cast<uint64_t>(script.memory_limit_bytes);
  Limit(RLIMIT_AS, bytes, bytes);
}

// stdin is empty, stdout and stderr go to the pipe, and nothing else of the parent's is open but
// the transfer, whose new number is returned. -1: it did not work.
int ArrangeDescriptors(int transfer, int output) {
  int kept = fcntl(transfer, F_DUPFD_CLOEXEC, kHighDescriptor);
  if (kept < 0) kept = fcntl(transfer, F_DUPFD_CLOEXEC, 3);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (kept < 0 || null < 0) return -1;
  if (dup2(null, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0) return -1;
  // An older kernel has no close_range: then the parent's files stay open, which only matters to
  // an engine that writes to descriptors it did not open.
  if (kept > 3) syscall(SYS_close_range, 3u, static_cast<unsigned>(kept - 1), 0u);
  syscall(SYS_close_range, static_cast<unsigned>(kept + 1), ~0u, 0u);
  // So that a line that was printed before a crash is not lost. With a buffer of its own: without
  // one, a stream that the parent has used already stays fully buffered.
  static std::array<char, BUFSIZ> buffer;
  setvbuf(stdout, buffer.data(), _IOLBF, buffer.size());
  return kept;
}

// Finds the engine's table; an older engine's missing members are NULL.
Stop FindEngine(const Script& script, assay_engine* engine) {
  const auto failed = [](std::string message) {
    return Stop{Ending::kFailed, Phase::kStart, std::move(message)};
  };
  const assay_engine* table = script.engine;
  if (table == nullptr) {
    void* library = dlopen(script.library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return failed(fmt::format("cannot load the engine: {}", dlerror()));
    void* symbol = dlsym(library, "assay_engine_get");
    if (symbol == nullptr) {
      return failed(fmt::format("{} does not export assay_engine_get", script.library));
    }
    table = reinterpret_cast<assay_engine_get_fn>(symbol)(ASSAY_ABI_VERSION);
    if (table == nullptr) {
      return {Ending::kUnsupported, Phase::kStart,
              fmt::format("{} does not speak version {} of the ABI", script.library,
                          ASSAY_ABI_VERSION)};
    }
  }
  if (table->size < offsetof(assay_engine, describe)) {
    return failed(fmt::format("the engine's table says that it has {} bytes", table->size));
  }
  std::memcpy(engine, table, std::min(table->size, sizeof *engine));
  if (engine->version == 0 || engine->version > ASSAY_ABI_VERSION) {
    return {Ending::kUnsupported, Phase::kStart,
            fmt::format("the engine speaks version {} of the ABI, this harness 1 to {}",
                        engine->version, ASSAY_ABI_VERSION)};
  }
  return {};
}

std::string_view Bounded(const char* text, size_t at_most) {
  if (text == nullptr) return "";
  return {text, strnlen(text, at_most)};
}

void SayHello(const assay_engine& engine, RecordWriter* writer, Recorder* recorder) {
  recorder->Mark(Phase::kStart, "describe");
  MetaWriter meta;
  meta.Put(Bounded(engine.name, 255));
  meta.Put(Bounded(engine.revision, 255));
  meta.Put(Bounded(engine.describe == nullptr ? nullptr : engine.describe(), kDescribeAtMost));
  writer->Write(RecordType::kHello, meta.bytes(), {});
}

// Both passes; the first thing that stops one, or the first rule broken.
Stop RunPasses(const assay_engine& engine, const Script& script, Recorder* recorder,
               assay_error* error) {
  constexpr std::array kPoisons = {Poison::kNaN, Poison::kLarge};
  for (size_t pass = 0; pass < kPoisons.size(); ++pass) {
    recorder->BeginPass(static_cast<int>(pass));
    Session session(engine, script, kPoisons[pass], recorder);
    Stop stop = session.Run();
    *error = session.error();
    if (stop.stopped() && (pass == 0 || stop.ending == Ending::kOutOfMemory)) return stop;
    if (stop.stopped()) {
      recorder->Violation(fmt::format("only in the second pass, {}", stop.message));
      break;
    }
  }
  if (recorder->first_violation().empty()) recorder->CompareKeys();
  if (recorder->first_violation().empty()) return {};
  return {Ending::kDirty, Phase::kDone, recorder->first_violation()};
}

void OnExit(int status, void*) {
  std::fflush(nullptr);
  // Before the parent's own exit handlers, which are none of the child's business.
  _exit(status);
}

}  // namespace

void ChildMain(const Script& script, int transfer, int output, pid_t parent) noexcept {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  on_exit(OnExit, nullptr);
  const int kept = ArrangeDescriptors(transfer, output);
  RecordWriter writer(kept < 0 ? transfer : kept, kTransferBytes);
  Recorder recorder(&writer);
  InstallHandlers(&writer);
  assay_error error{};
  Stop stop;
  try {
    recorder.Mark(Phase::kStart, "loading the engine");
    SetLimits(script, &recorder);
    assay_engine engine{};
    stop = kept < 0 ? Stop{Ending::kInfra, Phase::kStart, "the child has no descriptors left"}
                    : FindEngine(script, &engine);
    if (!stop.stopped()) {
      SayHello(engine, &writer, &recorder);
      stop = RunPasses(engine, script, &recorder, &error);
    }
  } catch (const std::bad_alloc&) {
    stop = {Ending::kOutOfMemory, Phase::kRun, "out of memory"};
  }
  recorder.End(stop.ending, stop.phase, stop.message, error);
  std::fflush(nullptr);
  _exit(0);
}

}  // namespace assay::abi
