// Each rule that an engine can break without crashing, or by touching a guard page, is found.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>

#include "harness/abi/child.h"
#include "harness/abi/engine_for_tests.h"

namespace assay::abi {
namespace {

using RunOpFunction = int (*)(assay_session*, const assay_op*, assay_error*);

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

Outcome RunWith(RunOpFunction run_op) {
  assay_engine engine = GoodEngine();
  engine.run_op = run_op;
  TestScript test(&engine);
  return RunInChild(test.script);
}

void ExpectDirty(const Outcome& outcome, std::string_view part) {
  EXPECT_EQ(outcome.ending, Ending::kDirty) << NameOf(outcome.ending) << ": " << outcome.message;
  EXPECT_TRUE(Contains(outcome.message, part)) << outcome.message;
}

float* Output(const assay_op* request) { return static_cast<float*>(request->outputs[0].data); }

TEST(Dirty, TheGoodEngineIsNot) {
  const Outcome outcome = RunWith(TestRunOp);
  EXPECT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
}

TEST(Dirty, WritesRightBehindTheOutput) {
  const Outcome outcome = RunWith([](assay_session* session, const assay_op* op, assay_error* e) {
    Output(op)[6] = 1;
    return TestRunOp(session, op, e);
  });
  ExpectDirty(outcome, "wrote 4 bytes past the end of output w of rank 0");
  EXPECT_EQ(outcome.trace.taps.size(), 2u);
}

TEST(Dirty, WritesFarBehindTheOutput) {
  const Outcome outcome = RunWith([](assay_session* session, const assay_op* op, assay_error* e) {
    Output(op)[16] = 1;  // the output's 24 bytes are followed by 40 of margin
    return TestRunOp(session, op, e);
  });
  EXPECT_EQ(outcome.ending, Ending::kCrashed) << outcome.message;
  EXPECT_EQ(outcome.signal, SIGSEGV);
  EXPECT_TRUE(Contains(outcome.message, "touched byte 40 past the end of output w of rank 0"))
      << outcome.message;
}

TEST(Dirty, ReadsFarBehindAnInput) {
  const Outcome outcome = RunWith([](assay_session*, const assay_op* op, assay_error*) {
    Output(op)[0] = static_cast<const float*>(op->inputs[0].data)[16];
    return static_cast<int>(ASSAY_OK);
  });
  EXPECT_EQ(outcome.ending, Ending::kCrashed) << outcome.message;
  EXPECT_TRUE(Contains(outcome.message, "past the end of input x of rank 0")) << outcome.message;
}

TEST(Dirty, ReadsRightBehindAnInput) {
  ExpectDirty(RunWith([](assay_session* session, const assay_op* op, assay_error* e) {
                TestRunOp(session, op, e);
                Output(op)[4] = static_cast<const float*>(op->inputs[0].data)[10];
                return static_cast<int>(ASSAY_OK);
              }),
              "left element 4 of tap w of rank 0 in step 0 unwritten");
  ExpectDirty(RunWith([](assay_session* session, const assay_op* op, assay_error* e) {
                TestRunOp(session, op, e);
                Output(op)[4] = 2 * static_cast<const float*>(op->inputs[0].data)[10];
                return static_cast<int>(ASSAY_OK);
              }),
              "element 4 of tap w of rank 0 in step 0 depends on memory");
}

TEST(Dirty, WritesBeforeTheOutput) {
  ExpectDirty(RunWith([](assay_session* session, const assay_op* op, assay_error* e) {
                Output(op)[-1] = 0;
                return TestRunOp(session, op, e);
              }),
              "wrote 4 bytes before the start of output w of rank 0");
}

TEST(Dirty, LeavesAnElementUnwritten) {
  ExpectDirty(RunWith([](assay_session* session, const assay_op* op, assay_error* e) {
                const float before = Output(op)[5];
                TestRunOp(session, op, e);
                std::memcpy(Output(op) + 5, &before, sizeof before);
                return static_cast<int>(ASSAY_OK);
              }),
              "left element 5 of tap w of rank 0 in step 0 unwritten");
}

TEST(Dirty, AddsToTheOutputInsteadOfWritingIt) {
  ExpectDirty(RunWith([](assay_session* session, const assay_op* op, assay_error* e) {
                const float before = Output(op)[0];
                TestRunOp(session, op, e);
                Output(op)[0] += before;
                return static_cast<int>(ASSAY_OK);
              }),
              "element 0 of tap w of rank 0");
}

// NaN is lost in a comparison: only the second poison shows it.
TEST(Dirty, TakesTheMaximumWithPoison) {
  ExpectDirty(RunWith([](assay_session* session, const assay_op* op, assay_error* e) {
                const float before = Output(op)[0];
                TestRunOp(session, op, e);
                if (before > Output(op)[0]) Output(op)[0] = before;
                return static_cast<int>(ASSAY_OK);
              }),
              "element 0 of tap w of rank 0");
}

TEST(Dirty, ChangesAnInput) {
  ExpectDirty(RunWith([](assay_session* session, const assay_op* op, assay_error* e) {
                TestRunOp(session, op, e);
                static_cast<float*>(op->inputs[0].data)[2] += 1;
                return static_cast<int>(ASSAY_OK);
              }),
              "op w on rank 0: changed input x of rank 0 at byte");
}

TEST(Dirty, ChangesATensorOfLoad) {
  assay_engine engine = GoodEngine();
  engine.load = [](assay_session* session, const assay_load* request, assay_error* error) {
    const int status = TestLoad(session, request, error);
    static_cast<float*>(request->tensors[0].data)[0] = 0;
    return status;
  };
  TestScript test(&engine);
  const Outcome outcome = RunInChild(test.script);
  ExpectDirty(outcome, "load of rank 0: changed tensor model.w at byte");
  EXPECT_EQ(outcome.trace.taps.size(), 2u);
}

TEST(Dirty, KeepsAPointerToATensorOfLoad) {
  static const float* kept = nullptr;
  assay_engine engine = GoodEngine();
  engine.load = [](assay_session* session, const assay_load* request, assay_error* error) {
    kept = static_cast<const float*>(request->tensors[0].data);
    return TestLoad(session, request, error);
  };
  engine.run_op = [](assay_session* session, const assay_op* op, assay_error* error) {
    Of(session)->weight.assign(kept, kept + 15);
    return TestRunOp(session, op, error);
  };
  TestScript test(&engine);
  ExpectDirty(RunInChild(test.script), "keeps a pointer to load()'s tensors");
}

TEST(Dirty, LargeTensorsAreHandedOverUncopiedAndTheNotesSaySo) {
  std::vector<float> large(kCopiedTensorBytes / sizeof(float) + 5, 1.0f);
  static const void* expected = nullptr;
  expected = large.data();
  assay_engine engine = GoodEngine();
  engine.load = [](assay_session* session, const assay_load* request, assay_error* error) {
    if (request->tensors[0].data != expected) return static_cast<int>(ASSAY_FAILED);
    assay_tensor part = request->tensors[0];
    part.shape[0] = 3;
    assay_load smaller = *request;
    smaller.tensors = &part;
    return TestLoad(session, &smaller, error);
  };
  TestScript test(&engine);
  const auto rows = static_cast<int64_t>(large.size() / 5);
  large.resize(static_cast<size_t>(rows) * 5);
  test.script.tensors = {TestScript::Tensor("model.w", -1, {rows, 5}, large)};
  const Outcome outcome = RunInChild(test.script);
  EXPECT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
  ASSERT_EQ(outcome.notes.size(), 1u);
  EXPECT_TRUE(Contains(outcome.notes[0], "uncopied")) << outcome.notes[0];
}

TEST(Dirty, AnswersOtherwiseInTheSecondPass) {
  static int opened = 0;
  opened = 0;
  assay_engine engine = GoodEngine();
  engine.open = [](const assay_open* open, const assay_host* host, assay_session** session,
                   assay_error* error) {
    ++opened;
    return opened == 2 ? static_cast<int>(ASSAY_REFUSED) : TestOpen(open, host, session, error);
  };
  TestScript test(&engine);
  ExpectDirty(RunInChild(test.script), "only in the second pass, open: refused");
}

TEST(Dirty, OverflowsTheErrorStructure) {
  assay_engine engine = GoodEngine();
  engine.open = [](const assay_open*, const assay_host*, assay_session**, assay_error* error) {
    std::memset(static_cast<void*>(error), 'x', sizeof *error);
    error->size = ~size_t{0};
    return static_cast<int>(ASSAY_FAILED);
  };
  TestScript test(&engine);
  const Outcome unended = RunInChild(test.script);
  EXPECT_EQ(unended.ending, Ending::kFailed);
  EXPECT_EQ(std::strlen(unended.error.message), sizeof unended.error.message - 1);
  EXPECT_EQ(std::strlen(unended.error.axis), sizeof unended.error.axis - 1);

  engine.open = [](const assay_open*, const assay_host*, assay_session**, assay_error* error) {
    std::memset(static_cast<void*>(error), 'x', sizeof *error + 1);
    return static_cast<int>(ASSAY_FAILED);
  };
  TestScript beyond(&engine);
  const Outcome overflow = RunInChild(beyond.script);
  EXPECT_EQ(overflow.ending, Ending::kCrashed);
  EXPECT_TRUE(Contains(overflow.message, "past the end of the error structure"))
      << overflow.message;
}

// ---- Taps, shards and records that are not what they say ----

Outcome RunWithTap(void (*spoil)(assay_tensor*)) {
  static void (*spoiler)(assay_tensor*) = nullptr;
  spoiler = spoil;
  return RunWith([](assay_session* session, const assay_op* op, assay_error* error) {
    float values[2] = {1, 2};
    assay_tensor tap = FloatTap("L0.mlp.out", op->rank, values, 2);
    spoiler(&tap);
    GiveTap(session, tap);
    return TestRunOp(session, op, error);
  });
}

TEST(HostileTap, AGoodOneIsTaken) {
  const Outcome outcome = RunWithTap([](assay_tensor*) {});
  EXPECT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
  EXPECT_EQ(Floats(outcome.trace.taps.at({0, "L0.mlp.out", 1}).bytes), (std::vector<float>{1, 2}));
}

TEST(HostileTap, EachIsFoundAndNotTaken) {
  static const std::string enormous(1 << 20, 'n');
  struct Row {
    void (*spoil)(assay_tensor*);
    const char* said;
  };
  const Row rows[] = {
      {[](assay_tensor* tap) { tap->ndim = 9; }, "9 dimensions"},
      {[](assay_tensor* tap) { tap->shape[0] = -2; }, "negative"},
      {[](assay_tensor* tap) {
         tap->ndim = 4;
         for (int64_t& extent : tap->shape) extent = int64_t{1} << 40;
       },
       "too large"},
      {[](assay_tensor* tap) { tap->bytes = 4; }, "4 bytes"},
      {[](assay_tensor* tap) { tap->bytes = ~uint64_t{0}; }, "bytes"},
      {[](assay_tensor* tap) { tap->data = nullptr; }, "without data"},
      {[](assay_tensor* tap) { tap->dtype = 1000; }, "type 1000"},
      {[](assay_tensor* tap) { tap->dtype = ASSAY_U8; }, "type 11"},
      {[](assay_tensor* tap) { tap->rank = 2; }, "rank 2"},
      {[](assay_tensor* tap) { tap->rank = -2; }, "rank -2"},
      {[](assay_tensor* tap) { tap->name = nullptr; }, "NULL"},
      {[](assay_tensor* tap) { tap->name = ""; }, "bad name"},
      {[](assay_tensor* tap) { tap->name = "a b\n"; }, "a?b?"},
      {[](assay_tensor* tap) { tap->name = enormous.c_str(); }, "bad name"},
      {[](assay_tensor* tap) { tap->size = 8; }, "too small"},
  };
  for (const Row& row : rows) {
    const Outcome outcome = RunWithTap(row.spoil);
    ExpectDirty(outcome, row.said);
    EXPECT_EQ(outcome.trace.taps.size(), 2u) << row.said;
    EXPECT_LT(outcome.message.size(), 300u);
  }
}

TEST(HostileTap, TwiceWithDifferentValues) {
  const auto run = [](RunOpFunction function) { return RunWith(function); };
  const Outcome same = run([](assay_session* session, const assay_op* op, assay_error* error) {
    float value = 1;
    for (int i = 0; i < 2; ++i) GiveTap(session, FloatTap("L0.mlp.out", op->rank, &value, 1));
    return TestRunOp(session, op, error);
  });
  EXPECT_EQ(same.ending, Ending::kFinished) << same.message;
  ExpectDirty(run([](assay_session* session, const assay_op* op, assay_error* error) {
                for (float value : {1.0f, 2.0f}) {
                  GiveTap(session, FloatTap("L0.mlp.out", op->rank, &value, 1));
                }
                return TestRunOp(session, op, error);
              }),
              "gave tap L0.mlp.out of rank 0 in step 0 twice");
}

TEST(HostileTap, OnlyInOnePass) {
  static int opened = 0;
  static int wanted = 0;
  for (int pass : {1, 2}) {
    opened = 0;
    wanted = pass;
    assay_engine engine = GoodEngine();
    engine.open = [](const assay_open* open, const assay_host* host, assay_session** session,
                     assay_error* error) {
      ++opened;
      return TestOpen(open, host, session, error);
    };
    engine.run_op = [](assay_session* session, const assay_op* op, assay_error* error) {
      float value = 1;
      if (opened == wanted) GiveTap(session, FloatTap("L0.mlp.out", op->rank, &value, 1));
      return TestRunOp(session, op, error);
    };
    TestScript test(&engine);
    ExpectDirty(RunInChild(test.script),
                pass == 1 ? "only in the first pass" : "only in the second pass");
  }
}

TEST(HostileShard, EachIsFoundAndNotTaken) {
  static void (*spoiler)(assay_shard*) = nullptr;
  struct Row {
    void (*spoil)(assay_shard*);
    const char* said;
  };
  const Row rows[] = {
      {[](assay_shard* shard) { shard->layout = nullptr; }, "layout"},
      {[](assay_shard* shard) { shard->dtype = 99; }, "99"},
      {[](assay_shard* shard) { shard->columns = -1; }, "negative"},
      {[](assay_shard* shard) { shard->first_row = 1; }, "beyond"},
      {[](assay_shard* shard) { shard->data = nullptr; }, "no data"},
      {[](assay_shard* shard) { shard->bytes -= 4; }, "56 bytes"},
  };
  for (const Row& row : rows) {
    spoiler = row.spoil;
    assay_engine engine = GoodEngine();
    engine.export_shard = [](assay_session* session, int32_t rank, const char* component,
                             assay_shard* out, assay_error* error) {
      const int status = TestExport(session, rank, component, out, error);
      if (status == ASSAY_OK) spoiler(out);
      return status;
    };
    TestScript test(&engine);
    const Outcome outcome = RunInChild(test.script);
    ExpectDirty(outcome, row.said);
    EXPECT_TRUE(outcome.trace.shards.empty());
  }
}

TEST(HostileRecord, StrangeExecutedRecords) {
  ExpectDirty(RunWith([](assay_session* session, const assay_op* op, assay_error* error) {
                assay_executed record{};
                record.size = sizeof record;
                record.tap = "w";
                record.rank = 7;
                Of(session)->host->executed(Of(session)->host->context, &record);
                return TestRunOp(session, op, error);
              }),
              "rank 7");
}

// ---- The host's memory ----

int UseHostMemory(assay_session* session, void (*use)(const assay_host*, float*)) {
  const assay_host* host = Of(session)->host;
  auto* memory = static_cast<float*>(host->alloc(host->context, 24, 8));
  if (memory == nullptr) return ASSAY_FAILED;
  use(host, memory);
  return ASSAY_OK;
}

TEST(HostMemory, EndsAtAGuardPageAndIsPoisoned) {
  const Outcome outcome = RunWith([](assay_session* session, const assay_op* op, assay_error* e) {
    UseHostMemory(session, [](const assay_host* host, float* memory) {
      for (int i = 0; i < 6; ++i) memory[i] = 1;
      host->free(host->context, memory);
      host->free(host->context, nullptr);
      // An alignment that is none, or beyond a page: NULL, and nobody's fault.
      if (host->alloc(host->context, 8, 3) != nullptr) std::abort();
      if (host->alloc(host->context, 8, 8192) != nullptr) std::abort();
    });
    return TestRunOp(session, op, e);
  });
  EXPECT_EQ(outcome.ending, Ending::kFinished) << outcome.message;

  const Outcome beyond = RunWith([](assay_session* session, const assay_op*, assay_error*) {
    return UseHostMemory(session, [](const assay_host*, float* memory) { memory[6] = 1; });
  });
  EXPECT_EQ(beyond.ending, Ending::kCrashed);
  EXPECT_TRUE(Contains(beyond.message, "touched byte 0 past the end of host memory 0"))
      << beyond.message;

  ExpectDirty(RunWith([](assay_session* session, const assay_op* op, assay_error* e) {
                UseHostMemory(session, [](const assay_host*, float* memory) { memory[-2] = 1; });
                return TestRunOp(session, op, e);
              }),
              "wrote 4 bytes before the start of host memory 0");
  ExpectDirty(RunWith([](assay_session* session, const assay_op* op, assay_error* e) {
                TestRunOp(session, op, e);
                static float* out = nullptr;
                out = Output(op);
                UseHostMemory(session, [](const assay_host*, float* memory) { *out += *memory; });
                return static_cast<int>(ASSAY_OK);
              }),
              "element 0 of tap w");
}

TEST(HostMemory, FreeOfSomethingElse) {
  ExpectDirty(RunWith([](assay_session* session, const assay_op* op, assay_error* e) {
                int mine = 0;
                Of(session)->host->free(Of(session)->host->context, &mine);
                return TestRunOp(session, op, e);
              }),
              "freed a pointer");
}

}  // namespace
}  // namespace assay::abi
