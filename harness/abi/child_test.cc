// Engines that behave are recorded; engines that crash, hang or answer oddly cost one outcome.
#include "harness/abi/child.h"

#include <dirent.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <stdexcept>

#include "harness/abi/engine_for_tests.h"

namespace assay::abi {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

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

TEST(Child, RecordsWhatAGoodEngineGives) {
  const assay_engine engine = GoodEngine();
  TestScript test(&engine);
  test.script.runs = {{"layer", 0, {1, 2}, 0, {}}, {"layer", 0, {3}, 2, {}}};
  ReduceCall reduce;
  reduce.tap = "w.sum";
  reduce.inputs = {TestScript::Tensor("w.sum", 0, {10}, test.x),
                   TestScript::Tensor("w.sum", 1, {10}, test.x)};
  reduce.output = TestScript::Output("w.sum", -1, {10});
  test.script.reduces = {reduce};
  const Outcome outcome = RunInChild(test.script);
  ASSERT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
  EXPECT_EQ(outcome.phase, Phase::kDone);
  EXPECT_EQ(outcome.message, "");
  EXPECT_EQ(outcome.engine_name, "good");
  EXPECT_EQ(outcome.engine_revision, "r1");
  EXPECT_EQ(outcome.describe_json, R"({"ops":["linear"]})");
  EXPECT_TRUE(outcome.notes.empty());
  EXPECT_GT(outcome.ms, 0);

  const EngineTrace& trace = outcome.trace;
  ASSERT_EQ(trace.taps.size(), 2u + 4u + 1u);
  // x[0] = {3, 2, 1, 0, -1}, W[0] = {-7 ... -3}: by hand.
  EXPECT_EQ(Floats(trace.taps.at({0, "w", 0}).bytes)[0], -21 - 12 - 5 + 3);
  EXPECT_EQ(trace.taps.at({0, "w", 1}).shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(trace.taps.at({0, "w", 1}).bytes, trace.taps.at({0, "w", 0}).bytes);
  EXPECT_EQ(Floats(trace.taps.at({1, "L0.residual_mlp", 1}).bytes), std::vector<float>{2});
  EXPECT_EQ(Floats(trace.taps.at({0, "w.sum", -1}).bytes)[9], 2 * test.x[9]);

  ASSERT_EQ(trace.shards.size(), 2u);  // v.weight is not supported, and that is no finding
  const ExportedShard& shard = trace.shards.at({"w.weight", 1});
  EXPECT_EQ(shard.layout, "row");
  EXPECT_EQ(shard.rows, 3);
  EXPECT_EQ(Floats(shard.bytes), test.w);

  ASSERT_EQ(trace.executed.size(), 2u);  // of the first pass alone
  EXPECT_EQ(trace.executed[1].kernel, "plain");
  EXPECT_EQ(trace.executed[1].rank, 1);
}

TEST(Child, DecoysAreLoadedFirst) {
  assay_engine engine = GoodEngine();
  TestScript test(&engine);
  const std::vector<float> other(15, 99.0F);
  test.script.decoys = {TestScript::Tensor("model.w", -1, {3, 5}, other)};
  const Outcome honest = RunInChild(test.script);
  ASSERT_EQ(honest.ending, Ending::kFinished) << honest.message;
  EXPECT_EQ(Floats(honest.trace.shards.at({"w.weight", 1}).bytes), test.w);
  // One that takes its first load for its last.
  engine.load = [](assay_session* session, const assay_load* request, assay_error* error) {
    return Of(session)->weight.empty() ? TestLoad(session, request, error) : ASSAY_OK;
  };
  const Outcome stale = RunInChild(test.script);
  ASSERT_EQ(stale.ending, Ending::kFinished) << stale.message;
  EXPECT_EQ(Floats(stale.trace.shards.at({"w.weight", 1}).bytes), other);
  // One that cannot load twice says in which load.
  engine.load = [](assay_session* session, const assay_load* request, assay_error* error) {
    if (!Of(session)->weight.empty() && request->rank == 0) return int{ASSAY_FAILED};
    return TestLoad(session, request, error);
  };
  const Outcome failed = RunInChild(test.script);
  EXPECT_EQ(failed.ending, Ending::kFailed);
  EXPECT_TRUE(Contains(failed.message, "second load of rank 0")) << failed.message;
}

TEST(Child, WhatTheSelectorChoseAndEmptyShards) {
  assay_engine engine = GoodEngine();
  engine.export_shard = [](assay_session* session, int32_t rank, const char* component,
                           assay_shard* out, assay_error* error) {
    const int status = TestExport(session, rank, component, out, error);
    if (status != ASSAY_OK || rank == 0) return status;
    // Rank 1 holds nothing of it.
    out->total_rows = out->rows = 0;
    out->data = nullptr;
    out->bytes = 0;
    out->method = "ct-int4-g32";
    out->kernel = "linear";
    return int{ASSAY_OK};
  };
  TestScript test(&engine);
  const Outcome outcome = RunInChild(test.script);
  ASSERT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
  const ExportedShard& told = outcome.trace.shards.at({"w.weight", 1});
  EXPECT_EQ(told.method, "ct-int4-g32");
  EXPECT_EQ(told.kernel, "linear");
  EXPECT_EQ(told.rows, 0);
  EXPECT_TRUE(told.bytes.empty());
  const ExportedShard& silent = outcome.trace.shards.at({"w.weight", 0});
  EXPECT_EQ(silent.method, "");
  EXPECT_EQ(silent.kernel, "");
}

TEST(Child, BlocksAreStoredValues) {
  assay_engine engine = GoodEngine();
  engine.export_shard = [](assay_session* session, int32_t, const char*, assay_shard* out,
                           assay_error*) {
    out->layout = "row";
    out->dtype = ASSAY_Q4_1;
    out->total_rows = out->rows = 1;
    out->columns = 3;  // of 20 bytes: the 15 floats of the weight
    out->data = Of(session)->weight.data();
    out->bytes = 60;
    return int{ASSAY_OK};
  };
  TestScript test(&engine);
  const Outcome outcome = RunInChild(test.script);
  ASSERT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
  EXPECT_EQ(outcome.trace.shards.at({"w.weight", 0}).dtype, DType::kQ4_1);
  EXPECT_EQ(Floats(outcome.trace.shards.at({"w.weight", 0}).bytes), test.w);
  // What differs between the passes is named by its byte.
  engine.load = [](assay_session* session, const assay_load* request, assay_error* error) {
    const int status = TestLoad(session, request, error);
    static float other = 0;
    Of(session)->weight[7] = other += 1;
    return status;
  };
  const Outcome dirty = RunInChild(test.script);
  EXPECT_EQ(dirty.ending, Ending::kDirty) << dirty.message;
  // A type that nobody knows.
  engine.export_shard = [](assay_session* session, int32_t, const char*, assay_shard* out,
                           assay_error*) {
    out->layout = "row";
    out->dtype = ASSAY_NVFP4 + 1;
    out->data = Of(session)->weight.data();
    return int{ASSAY_OK};
  };
  EXPECT_TRUE(Contains(RunInChild(test.script).message, "its type 28 is unknown"));
}

TEST(Child, AReduceScatterHasAnOutputForEachRank) {
  assay_engine engine = GoodEngine();
  engine.reduce = [](assay_session*, const assay_reduce* request, assay_error*) {
    if (std::string_view(request->kind) != "reduce_scatter" || request->output != nullptr) {
      return int{ASSAY_FAILED};
    }
    for (uint32_t r = 0; r < request->output_count; ++r) {
      const assay_tensor& out = request->outputs[r];
      for (int64_t i = 0; i < out.shape[0]; ++i) {
        static_cast<float*>(out.data)[i] = static_cast<float>(100 * r + i);
      }
    }
    return int{ASSAY_OK};
  };
  TestScript test(&engine);
  ReduceCall call;
  call.tap = "w.sum";
  call.kind = "reduce_scatter";
  call.inputs = {TestScript::Tensor("w.sum", 0, {10}, test.x),
                 TestScript::Tensor("w.sum", 1, {10}, test.x)};
  call.outputs = {TestScript::Output("w.sum", 0, {6}), TestScript::Output("w.sum", 1, {4})};
  test.script.reduces = {call};
  const Outcome outcome = RunInChild(test.script);
  ASSERT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
  EXPECT_EQ(Floats(outcome.trace.taps.at({0, "w.sum", 0}).bytes)[5], 5);
  EXPECT_EQ(Floats(outcome.trace.taps.at({0, "w.sum", 1}).bytes),
            (std::vector<float>{100, 101, 102, 103}));
}

TEST(Child, ReadsHowAnOpRanIfTheRecordHasIt) {
  assay_engine engine = GoodEngine();
  engine.run_op = [](assay_session* session, const assay_op* request, assay_error*) {
    Multiply(*Of(session), request->inputs[0], static_cast<float*>(request->outputs[0].data));
    assay_executed executed{};
    executed.size = sizeof executed;
    executed.tap = request->tap;
    executed.rank = request->rank;
    executed.how = "emulated (portable intrinsics)";
    // Rank 1 was compiled before there was such a member: what lies there is not read.
    if (request->rank == 1) executed.size = offsetof(assay_executed, how);
    Of(session)->host->executed(Of(session)->host->context, &executed);
    return int{ASSAY_OK};
  };
  TestScript test(&engine);
  const Outcome outcome = RunInChild(test.script);
  ASSERT_EQ(outcome.trace.executed.size(), 2u) << outcome.message;
  EXPECT_EQ(outcome.trace.executed[0].how, "emulated (portable intrinsics)");
  EXPECT_EQ(outcome.trace.executed[1].how, "");
}

TEST(Child, TakesActivationCodesAsTaps) {
  assay_engine engine = GoodEngine();
  engine.run = [](assay_session* session, const assay_run*, assay_error*) {
    int8_t codes[3] = {-127, 0, 5};
    assay_tensor tap = FloatTap("w.x_q", 0, nullptr, 3);
    tap.dtype = ASSAY_I8;
    tap.data = codes;
    tap.bytes = sizeof codes;
    GiveTap(session, tap);
    return int{ASSAY_OK};
  };
  TestScript test(&engine);
  test.script.runs = {{"layer", 0, {1, 2}, 0, {}}};
  const Outcome outcome = RunInChild(test.script);
  ASSERT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
  EXPECT_EQ(outcome.trace.taps.at({0, "w.x_q", 0}).bytes[0], std::byte(0x81));
}

TEST(Child, CallsOfTheSameOpAreSteps) {
  const assay_engine engine = GoodEngine();
  TestScript test(&engine);
  test.script.ops.push_back(test.script.ops[0]);
  const std::vector<float> one(test.w.begin(), test.w.begin() + 5);
  test.script.ops.back().inputs = {TestScript::Tensor("x", 0, {1, 5}, one)};
  test.script.ops.back().output.shape = {1, 3};
  const Outcome outcome = RunInChild(test.script);
  ASSERT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
  EXPECT_EQ(outcome.trace.taps.count({1, "w", 0}), 1u);
  EXPECT_EQ(outcome.trace.taps.count({1, "w", 1}), 0u);
}

TEST(Child, LeavesNothingBehind) {
  const auto descriptors = [] {
    int count = 0;
    DIR* directory = opendir("/proc/self/fd");
    while (readdir(directory) != nullptr) ++count;
    closedir(directory);
    return count;
  };
  const assay_engine engine = GoodEngine();
  TestScript test(&engine);
  const int before = descriptors();
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(RunInChild(test.script).ending, Ending::kFinished);
  }
  EXPECT_EQ(descriptors(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Child, CostsLessThanFiveMilliseconds) {
  const assay_engine engine = GoodEngine();
  TestScript test(&engine);
  double best_ms = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 30; ++i) best_ms = std::min(best_ms, RunInChild(test.script).ms);
  EXPECT_LT(best_ms, kSanitized ? 500 : 5);
}

// ---- What an engine may answer ----

TEST(Child, StatusesBecomeEndings) {
  struct Row {
    int status;
    Ending ending;
    const char* said;
  };
  static int status = 0;
  for (const Row& row :
       {Row{ASSAY_UNSUPPORTED, Ending::kUnsupported, "not supported"},
        Row{ASSAY_REFUSED, Ending::kRefused, "refused"},
        Row{ASSAY_FAILED, Ending::kFailed, "failed"}, Row{77, Ending::kFailed, "unknown status 77"},
        Row{-1, Ending::kFailed, "unknown status -1"}}) {
    status = row.status;
    const Outcome outcome = RunSpoiled([](assay_engine* engine, Script*) {
      engine->load = [](assay_session*, const assay_load*, assay_error* error) {
        std::strcpy(error->message, "two\nlines");
        std::strcpy(error->tensor, "model.w");
        error->got = 2048;
        error->expected = 4096;
        return status;
      };
    });
    EXPECT_EQ(outcome.ending, row.ending) << NameOf(outcome.ending);
    EXPECT_EQ(outcome.phase, Phase::kLoad);
    EXPECT_TRUE(Contains(outcome.message, row.said)) << outcome.message;
    EXPECT_TRUE(Contains(outcome.message, "load of rank 0")) << outcome.message;
    EXPECT_STREQ(outcome.error.message, "two lines");
    EXPECT_STREQ(outcome.error.tensor, "model.w");
    EXPECT_EQ(outcome.error.got, 2048);
    EXPECT_EQ(outcome.error.expected, 4096);
  }
}

TEST(Child, MissingFunctionsMeanLess) {
  const Outcome no_load = RunSpoiled([](assay_engine* engine, Script*) { engine->load = nullptr; });
  EXPECT_EQ(no_load.ending, Ending::kUnsupported);
  EXPECT_EQ(no_load.phase, Phase::kLoad);
  const Outcome no_run = RunSpoiled([](assay_engine* engine, Script* script) {
    engine->run = nullptr;
    script->runs = {{"layer", 0, {1}, 0, {}}};
  });
  EXPECT_EQ(no_run.ending, Ending::kUnsupported);
  EXPECT_EQ(no_run.trace.taps.size(), 2u);  // the ops came before
  const Outcome no_export =
      RunSpoiled([](assay_engine* engine, Script*) { engine->export_shard = nullptr; });
  EXPECT_EQ(no_export.ending, Ending::kFinished) << no_export.message;
  EXPECT_TRUE(no_export.trace.shards.empty());
  const Outcome no_op = RunSpoiled([](assay_engine* engine, Script*) { engine->run_op = nullptr; });
  EXPECT_EQ(no_op.ending, Ending::kUnsupported);
}

TEST(Child, OneUnsupportedOpIsLeftOutAndNoted) {
  const Outcome outcome = RunSpoiled([](assay_engine* engine, Script*) {
    engine->run_op = [](assay_session* session, const assay_op* request, assay_error* error) {
      return request->rank == 0 ? ASSAY_UNSUPPORTED : TestRunOp(session, request, error);
    };
  });
  EXPECT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
  EXPECT_EQ(outcome.trace.taps.count({0, "w", 0}), 0u);
  EXPECT_EQ(outcome.trace.taps.count({0, "w", 1}), 1u);
  ASSERT_EQ(outcome.notes.size(), 1u);
  EXPECT_TRUE(Contains(outcome.notes[0], "op w on rank 0")) << outcome.notes[0];
}

TEST(Child, ATableOfAnOlderHeaderHasNullForWhatIsNewer) {
  const Outcome outcome = RunSpoiled([](assay_engine* engine, Script*) {
    engine->size = offsetof(assay_engine, reset);
    // Rubbish where the older table ended: not to be called.
    engine->close = reinterpret_cast<void (*)(assay_session*)>(8);
  });
  EXPECT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
  EXPECT_EQ(outcome.trace.taps.size(), 2u);
}

TEST(Child, ATableThatIsNoneIsAFailure) {
  const Outcome small = RunSpoiled([](assay_engine* engine, Script*) { engine->size = 8; });
  EXPECT_EQ(small.ending, Ending::kFailed);
  EXPECT_EQ(small.phase, Phase::kStart);
  const Outcome newer = RunSpoiled([](assay_engine* engine, Script*) { engine->version = 99; });
  EXPECT_EQ(newer.ending, Ending::kUnsupported);
  EXPECT_TRUE(Contains(newer.message, "99")) << newer.message;
}

TEST(Child, LibrariesThatCannotBeUsed) {
  Script script;
  script.library = "./no/such/engine.so";
  const Outcome missing = RunInChild(script);
  EXPECT_EQ(missing.ending, Ending::kFailed);
  EXPECT_EQ(missing.phase, Phase::kStart);
  EXPECT_TRUE(Contains(missing.message, "no/such/engine.so")) << missing.message;
  script.library = "libm.so.6";
  const Outcome other = RunInChild(script);
  EXPECT_EQ(other.ending, Ending::kFailed);
  EXPECT_TRUE(Contains(other.message, "assay_engine_get")) << other.message;
}

TEST(Child, AScriptThatContradictsItselfIsNotTheEnginesFault) {
  const auto message = [](const auto& spoil) {
    const Outcome outcome = RunSpoiled(spoil);
    EXPECT_EQ(outcome.ending, Ending::kInfra);
    return outcome.message;
  };
  EXPECT_TRUE(Contains(message([](assay_engine*, Script* s) { s->tensors[0].bytes = 8; }), "60"));
  EXPECT_TRUE(
      Contains(message([](assay_engine*, Script* s) { s->tensors[0].data = nullptr; }), "no data"));
  EXPECT_TRUE(Contains(message([](assay_engine*, Script* s) { s->ops[0].output.shape = {-1}; }),
                       "negative"));
  EXPECT_TRUE(Contains(message([](assay_engine*, Script* s) {
                         s->ops[0].output.shape = {1, 1, 1, 1, 1};
                       }),
                       "4"));
  EXPECT_TRUE(Contains(message([](assay_engine*, Script* s) { s->tp = 0; }), "tp"));
  EXPECT_TRUE(Contains(message([](assay_engine*, Script* s) { s->engine = nullptr; }), "library"));
}

// ---- Crashes ----

TEST(Child, SegfaultInLoad) {
  const Outcome outcome = RunSpoiled([](assay_engine* engine, Script*) {
    engine->load = [](assay_session*, const assay_load*, assay_error*) { return *nowhere; };
  });
  EXPECT_EQ(outcome.ending, Ending::kCrashed);
  EXPECT_EQ(outcome.signal, SIGSEGV);
  EXPECT_EQ(outcome.phase, Phase::kLoad);
  EXPECT_EQ(outcome.message, "died of SIGSEGV during load of rank 0");
  EXPECT_EQ(outcome.engine_name, "good");
}

TEST(Child, WhatCameBeforeACrashIsKept) {
  const Outcome outcome = RunSpoiled([](assay_engine* engine, Script*) {
    engine->run_op = [](assay_session* session, const assay_op* request, assay_error* error) {
      return request->rank == 1 ? *nowhere : TestRunOp(session, request, error);
    };
  });
  EXPECT_EQ(outcome.ending, Ending::kCrashed);
  EXPECT_EQ(outcome.phase, Phase::kRun);
  EXPECT_EQ(outcome.message, "died of SIGSEGV during op w on rank 1");
  EXPECT_EQ(outcome.trace.taps.count({0, "w", 0}), 1u);
  EXPECT_EQ(outcome.trace.shards.size(), 2u);
}

TEST(Child, AbortExceptionExitAndStackOverflow) {
  const Outcome aborted = RunSpoiled([](assay_engine* engine, Script*) {
    engine->open = [](const assay_open*, const assay_host*, assay_session**, assay_error*) -> int {
      std::printf("about to abort\n");
      std::abort();
    };
  });
  EXPECT_EQ(aborted.ending, Ending::kCrashed);
  EXPECT_EQ(aborted.signal, SIGABRT);
  EXPECT_EQ(aborted.phase, Phase::kOpen);
  EXPECT_TRUE(Contains(aborted.output, "about to abort\n")) << aborted.output;

  const Outcome threw = RunSpoiled([](assay_engine* engine, Script*) {
    engine->open = [](const assay_open*, const assay_host*, assay_session**, assay_error*) -> int {
      throw std::runtime_error("K is not a multiple of 64");
    };
  });
  EXPECT_EQ(threw.ending, Ending::kCrashed);
  EXPECT_EQ(threw.signal, SIGABRT);
  EXPECT_TRUE(Contains(threw.output, "K is not a multiple of 64")) << threw.output;

  const Outcome left = RunSpoiled([](assay_engine* engine, Script*) {
    engine->open = [](const assay_open*, const assay_host*, assay_session**, assay_error*) -> int {
      std::exit(0);
    };
  });
  EXPECT_EQ(left.ending, Ending::kCrashed);
  EXPECT_EQ(left.signal, 0);
  EXPECT_EQ(left.message, "called exit(0) during open");

  const Outcome raised = RunSpoiled([](assay_engine* engine, Script*) {
    engine->close = [](assay_session*) { raise(SIGSEGV); };
  });
  EXPECT_EQ(raised.ending, Ending::kCrashed);
  EXPECT_EQ(raised.signal, SIGSEGV);
  EXPECT_EQ(raised.phase, Phase::kDone);
}

TEST(Child, KilledFromOutsideIsNotTheEnginesCrash) {
  const Outcome outcome = RunSpoiled([](assay_engine* engine, Script*) {
    engine->close = [](assay_session*) { raise(SIGKILL); };
  });
  EXPECT_EQ(outcome.ending, Ending::kOutOfMemory);
  EXPECT_EQ(outcome.signal, SIGKILL);
}

}  // namespace
}  // namespace assay::abi
