// What an engine takes or leaves behind: time, memory, processes, output, descriptors.
#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "harness/abi/child.h"
#include "harness/abi/engine_for_tests.h"

namespace assay::abi {
namespace {

// Not known to the compiler to be null.
volatile int* volatile nowhere = nullptr;

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Runs an engine with one function spoiled.
template <class Spoil>
Outcome RunSpoiled(const Spoil& spoil) {
  assay_engine engine = GoodEngine();
  TestScript test(&engine);
  spoil(&engine, &test.script);
  return RunInChild(test.script);
}

TEST(Limits, EndlessLoopIsStopped) {
  const Outcome outcome = RunSpoiled([](assay_engine* engine, Script* script) {
    script->time_limit_ms = 200;
    engine->run_op = [](assay_session*, const assay_op*, assay_error*) -> int {
      for (;;) {
        if (nowhere != nullptr) return ASSAY_OK;
      }
    };
  });
  EXPECT_EQ(outcome.ending, Ending::kTimedOut);
  EXPECT_EQ(outcome.phase, Phase::kRun);
  EXPECT_GE(outcome.ms, 200);
  EXPECT_LT(outcome.ms, 5000);
  EXPECT_TRUE(Contains(outcome.message, "op w on rank 0")) << outcome.message;
  EXPECT_EQ(outcome.trace.shards.size(), 2u);
}

TEST(Limits, ClosingItsOutputDoesNotHideItsEnd) {
  const Outcome outcome = RunSpoiled([](assay_engine* engine, Script* script) {
    script->time_limit_ms = 5000;
    engine->open = [](const assay_open* open, const assay_host* host, assay_session** session,
                      assay_error* error) {
      for (int fd = 0; fd < 100; ++fd) close(fd);
      return TestOpen(open, host, session, error);
    };
  });
  EXPECT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr int64_t kLimit = int64_t{256} << 20;

TEST(Limits, HugeAllocationByAC_Engine) {
  const Outcome outcome = RunSpoiled([](assay_engine* engine, Script* script) {
    script->memory_limit_bytes = kLimit;
    engine->load = [](assay_session*, const assay_load*, assay_error*) -> int {
      void* volatile memory = std::malloc(size_t{4} << 30);
      return memory == nullptr ? ASSAY_FAILED : ASSAY_OK;
    };
  });
  EXPECT_EQ(outcome.ending, Ending::kOutOfMemory) << outcome.message;
  EXPECT_EQ(outcome.phase, Phase::kLoad);
}

TEST(Limits, HugeAllocationThatThrows) {
  const Outcome outcome = RunSpoiled([](assay_engine* engine, Script* script) {
    script->memory_limit_bytes = kLimit;
    engine->load = [](assay_session*, const assay_load*, assay_error*) -> int {
      std::vector<char> memory(size_t{4} << 30);
      return memory[7];
    };
  });
  EXPECT_EQ(outcome.ending, Ending::kOutOfMemory) << outcome.message;
}

TEST(Limits, HostMemoryBeyondTheLimit) {
  const Outcome outcome = RunSpoiled([](assay_engine* engine, Script* script) {
    script->memory_limit_bytes = kLimit;
    engine->load = [](assay_session* session, const assay_load*, assay_error*) -> int {
      const assay_host* host = Of(session)->host;
      return host->alloc(host->context, uint64_t{4} << 30, 64) == nullptr ? ASSAY_FAILED : ASSAY_OK;
    };
  });
  EXPECT_EQ(outcome.ending, Ending::kOutOfMemory) << outcome.message;
}

TEST(Limits, TheLimitLeavesRoomForWhatFits) {
  const Outcome outcome =
      RunSpoiled([](assay_engine*, Script* script) { script->memory_limit_bytes = kLimit; });
  EXPECT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
}
#endif

TEST(Limits, TenMegabytesOfOutputDoNotBlock) {
  const Outcome outcome = RunSpoiled([](assay_engine* engine, Script*) {
    engine->reset = nullptr;
    engine->open = [](const assay_open* open, const assay_host* host, assay_session** session,
                      assay_error* error) {
      const std::string line(999, 'a');
      for (int i = 0; i < 10000; ++i) std::fprintf(i % 2 ? stderr : stdout, "%s\n", line.c_str());
      return TestOpen(open, host, session, error);
    };
  });
  EXPECT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
  EXPECT_EQ(outcome.output.size(), size_t{64} << 10);
}

TEST(Limits, OutputIsTextWhateverItWas) {
  const Outcome outcome = RunSpoiled([](assay_engine* engine, Script*) {
    engine->close = [](assay_session*) { (void)!write(1, "a\0\xff\x1b[31m\xc3\xa4\n", 11); };
  });
  EXPECT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
  EXPECT_EQ(outcome.output.substr(0, 12),
            "a\?\?\?[31m\xc3\xa4\n"
            "a");
}

// The number of a process that an engine printed as "pid N".
pid_t PrintedPid(const Outcome& outcome) {
  const size_t at = outcome.output.find("pid ");
  return at == std::string::npos ? 0 : std::atoi(outcome.output.c_str() + at + 4);
}

void LeaveAProcess(bool leaves_group) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (leaves_group) setsid();
    for (;;) pause();
  }
  std::printf("pid %d\n", pid);
}

TEST(Limits, ProcessesThatItStartedDieWithIt) {
  for (bool leaves_group : {false, true}) {
    static bool leaves = false;
    leaves = leaves_group;
    const Outcome outcome = RunSpoiled([](assay_engine* engine, Script*) {
      engine->close = [](assay_session*) { LeaveAProcess(leaves); };
    });
    EXPECT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
    const pid_t pid = PrintedPid(outcome);
    ASSERT_GT(pid, 0) << outcome.output;
    EXPECT_EQ(kill(pid, 0), -1);
    EXPECT_EQ(errno, ESRCH);
    ASSERT_EQ(outcome.notes.size(), 1u);
    EXPECT_TRUE(Contains(outcome.notes[0], "left 2 processes")) << outcome.notes[0];
  }
}

TEST(Limits, DoesNotTouchOtherChildren) {
  const pid_t other = fork();
  if (other == 0) {
    for (;;) pause();
  }
  const Outcome outcome = RunSpoiled([](assay_engine*, Script*) {});
  EXPECT_EQ(outcome.ending, Ending::kFinished);
  EXPECT_TRUE(outcome.notes.empty());
  EXPECT_EQ(waitpid(other, nullptr, WNOHANG), 0) << "another child was reaped or killed";
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
}

TEST(Limits, AnEngineThatWritesToEveryDescriptorSpoilsOnlyItself) {
  const Outcome outcome = RunSpoiled([](assay_engine* engine, Script*) {
    engine->close = [](assay_session*) {
      const std::vector<char> rubbish(4096, 'x');
      for (int fd = 3; fd < 1024; ++fd) {
        (void)!pwrite(fd, rubbish.data(), rubbish.size(), 0);
      }
    };
  });
  EXPECT_EQ(outcome.ending, Ending::kDirty) << outcome.message;
  EXPECT_TRUE(Contains(outcome.message, "damaged")) << outcome.message;
}

}  // namespace
}  // namespace assay::abi
