// The documented engine, built with the documented line, gives what it must, bit for bit; each of
// its deliberate mistakes shows.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "harness/abi/child.h"
#include "harness/abi/contract.h"
#include "harness/abi/describe.h"

namespace assay::abi {
namespace {

constexpr int64_t kN = 12, kK = 32, kTokens = 3;
using Matrix = std::vector<uint16_t>;  // bf16

uint16_t ToBf16(double value) {
  const auto rounded = static_cast<float>(RoundTo(value, DType::kBF16));
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded) >> 16);
}
float FromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// No two rows or columns alike, no value 0, sums that need rounding.
Matrix Values(int64_t rows, int64_t columns, double phase) {
  Matrix values;
  for (int64_t i = 0; i < rows * columns; ++i) {
    values.push_back(ToBf16(std::sin(0.7 * static_cast<double>(i) + phase) + 1.25));
  }
  return values;
}

// Part `index` of `parts` along an axis of a row-major matrix.
Matrix Part(const Matrix& whole, int64_t columns, bool by_columns, int index, int parts) {
  const int64_t rows = static_cast<int64_t>(whole.size()) / columns;
  Matrix part;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t extent = by_columns ? columns : rows;
      const int64_t at = by_columns ? column : row;
      if (at * parts / extent != index) continue;
      part.push_back(whole[static_cast<size_t>(row * columns + column)]);
    }
  }
  return part;
}

// x [T, K] times w [N, K] transposed, in float, one accumulator.
std::vector<float> Product(const Matrix& x, const Matrix& w, int64_t k) {
  std::vector<float> y;
  for (size_t t = 0; t < x.size(); t += static_cast<size_t>(k)) {
    for (size_t n = 0; n < w.size(); n += static_cast<size_t>(k)) {
      float sum = 0;
      for (size_t i = 0; i < static_cast<size_t>(k); ++i) {
        sum += FromBf16(x[t + i]) * FromBf16(w[n + i]);
      }
      y.push_back(sum);
    }
  }
  return y;
}

template <class T>
std::vector<std::byte> Bytes(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// One linear op cut by rows (column parallel, output bf16) or by columns (row parallel, a partial
// sum in fp32), with all that its script points to.
struct Cell {
  Matrix weight = Values(kN, kK, 0), input = Values(kTokens, kK, 1);
  std::vector<Matrix> inputs, shards;  // by rank
  Script script;
  bool by_columns;

  Cell(const std::string& library, bool cut_columns, int tp) : by_columns(cut_columns) {
    const std::string tap = by_columns ? "L0.mlp.down" : "L0.mlp.gate";
    script.library = library;
    script.tp = script.attn_tp = tp;
    script.method = "bf16";
    script.tier = "scalar";
    script.plan = tap + ".weight " + (by_columns ? "k" : "n") + "[tp] <- model.w\n";
    script.tensors = {Bf16("model.w", -1, {kN, kK}, weight)};
    for (int rank = 0; rank < tp; ++rank) {
      shards.push_back(Part(weight, kK, by_columns, rank, tp));
      inputs.push_back(by_columns ? Part(input, kK, true, rank, tp) : input);
    }
    for (int rank = 0; rank < tp; ++rank) {
      script.exports.push_back({tap + ".weight", rank});
      OpCall op;
      op.rank = rank;
      op.tap = tap;
      op.inputs = {Bf16("x", rank, {kTokens, by_columns ? kK / tp : kK}, inputs[rank])};
      op.output.name = tap;
      op.output.rank = rank;
      op.output.dtype = by_columns ? DType::kF32 : DType::kBF16;
      op.output.shape = {kTokens, by_columns ? kN : kN / tp};
      script.ops.push_back(op);
    }
  }
  Cell(const Cell&) = delete;

  static HostTensor Bf16(std::string name, int rank, std::vector<int64_t> shape,
                         const Matrix& values) {
    return {std::move(name),
            rank,
            DType::kBF16,
            std::move(shape),
            reinterpret_cast<const std::byte*>(values.data()),
            values.size() * sizeof(uint16_t)};
  }

  std::vector<std::byte> ExpectedOutput(int rank) const {
    const int64_t k = by_columns ? kK / script.tp : kK;
    const std::vector<float> sums = Product(inputs[rank], shards[rank], k);
    if (by_columns) return Bytes(sums);
    Matrix rounded;
    for (float sum : sums) rounded.push_back(ToBf16(sum));
    return Bytes(rounded);
  }
};

std::string Library(const char* name) {
  return std::string("harness/abi/example/lib") + name + ".so";
}

TEST(Example, ColumnAndRowParallelAtAnyDegree) {
  for (bool by_columns : {false, true}) {
    for (int tp : {1, 2, 4}) {
      const Cell cell(Library("example"), by_columns, tp);
      const Outcome outcome = RunInChild(cell.script);
      ASSERT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
      EXPECT_EQ(outcome.engine_name, "example");
      ASSERT_EQ(outcome.trace.taps.size(), static_cast<size_t>(tp));
      for (int rank = 0; rank < tp; ++rank) {
        const std::string tap = cell.script.ops[0].tap;
        const ExportedShard& shard = outcome.trace.shards.at({tap + ".weight", rank});
        EXPECT_EQ(shard.layout, "row");
        EXPECT_EQ(shard.columns, by_columns ? kK / tp : kK);
        EXPECT_EQ(shard.bytes, Bytes(cell.shards[rank])) << tap << " tp " << tp << " rank " << rank;
        EXPECT_EQ(outcome.trace.taps.at({0, tap, rank}).bytes, cell.ExpectedOutput(rank))
            << tap << " tp " << tp << " rank " << rank;
      }
      ASSERT_EQ(outcome.trace.executed.size(), static_cast<size_t>(tp));
      EXPECT_EQ(outcome.trace.executed[0].kernel, "dot_bf16");
    }
  }
}

TEST(Example, DescribesItselfSoThatTheHarnessUnderstands) {
  const Cell cell(Library("example"), false, 1);
  const Outcome outcome = RunInChild(cell.script);
  const auto facts = ParseDescribe(outcome.describe_json);
  ASSERT_TRUE(facts.ok()) << facts.error().message;
  EXPECT_TRUE(facts->unknown_keys.empty());
  ASSERT_TRUE(facts->contract.has_value());
  EXPECT_EQ(facts->contract->lanes, 1);
  EXPECT_EQ(facts->contract->RoundingOf("mlp.down", "partial"), DType::kF32);
  EXPECT_EQ(facts->contract->RoundingOf("mlp.gate", "linear"), DType::kBF16);
  EXPECT_NE(facts->FindKernel("dot_bf16"), nullptr);
  EXPECT_EQ(facts->FindKernel(outcome.trace.executed.at(0).kernel)->tier,
            outcome.trace.executed.at(0).tier);
}

TEST(Example, AttentionRanksReplicasAndPadding) {
  Cell cell(Library("example"), false, 4);
  cell.script.attn_tp = 4;
  cell.script.ops.clear();
  cell.script.plan =
      "L0.attn.k.weight n[attn_tp]/2 <- model.w\n"
      "L0.attn.out.weight k[attn_tp] <- model.w\n"
      "logits.weight n[tp] pad 4 <- model.w\n"
      "L0.moe.shared.weight whole <- model.w\n";
  cell.script.exports = {{"L0.attn.k.weight", 1},
                         {"L0.attn.k.weight", 2},
                         {"L0.attn.out.weight", 3},
                         {"logits.weight", 3},
                         {"L0.moe.shared.weight", 3}};
  const Outcome outcome = RunInChild(cell.script);
  ASSERT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
  const auto& shards = outcome.trace.shards;
  EXPECT_EQ(shards.at({"L0.attn.k.weight", 1}).bytes, Bytes(Part(cell.weight, kK, false, 0, 2)));
  EXPECT_EQ(shards.at({"L0.attn.k.weight", 2}).bytes, Bytes(Part(cell.weight, kK, false, 1, 2)));
  EXPECT_EQ(shards.at({"L0.attn.out.weight", 3}).bytes, Bytes(Part(cell.weight, kK, true, 3, 4)));
  EXPECT_EQ(shards.at({"L0.moe.shared.weight", 3}).bytes, Bytes(cell.weight));
  // 12 rows and 4 of padding among 4 ranks: the last has nothing but zeros.
  EXPECT_EQ(shards.at({"logits.weight", 3}).bytes, Bytes(Matrix(4 * kK, 0)));
}

TEST(Example, RefusesWhatDoesNotDivideAndSaysWhy) {
  const Cell cell(Library("example"), false, 5);
  const Outcome outcome = RunInChild(cell.script);
  EXPECT_EQ(outcome.ending, Ending::kRefused) << outcome.message;
  EXPECT_EQ(outcome.phase, Phase::kLoad);
  EXPECT_STREQ(outcome.error.tensor, "model.w");
  EXPECT_STREQ(outcome.error.axis, "n");
  EXPECT_EQ(outcome.error.got, kN);
}

TEST(Example, SaysWhatItCannotDo) {
  Cell quantised(Library("example"), false, 1);
  quantised.script.method = "ct-int4-g32";
  EXPECT_EQ(RunInChild(quantised.script).ending, Ending::kUnsupported);
  Cell biased(Library("example"), false, 1);
  biased.script.plan += "L0.mlp.gate.bias n[tp] <- model.b\n";
  EXPECT_EQ(RunInChild(biased.script).ending, Ending::kUnsupported);
  Cell norm(Library("example"), false, 1);
  norm.script.ops[0].tap = "L0.input_norm";
  EXPECT_EQ(RunInChild(norm.script).ending, Ending::kUnsupported);
}

TEST(Mistakes, TheDroppedTailShowsInEverySum) {
  for (bool by_columns : {false, true}) {
    const Cell cell(Library("example_tail"), by_columns, 2);
    const Outcome outcome = RunInChild(cell.script);
    ASSERT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
    for (int rank = 0; rank < 2; ++rank) {
      const std::string tap = cell.script.ops[0].tap;
      EXPECT_EQ(outcome.trace.shards.at({tap + ".weight", rank}).bytes, Bytes(cell.shards[rank]));
      EXPECT_NE(outcome.trace.taps.at({0, tap, rank}).bytes, cell.ExpectedOutput(rank));
    }
  }
}

TEST(Mistakes, RankZerosPartOnEveryRankShowsInTheShardOfRankOne) {
  for (bool by_columns : {false, true}) {
    const Cell cell(Library("example_rank"), by_columns, 2);
    const Outcome outcome = RunInChild(cell.script);
    ASSERT_EQ(outcome.ending, Ending::kFinished) << outcome.message;
    const std::string tap = cell.script.ops[0].tap;
    EXPECT_EQ(outcome.trace.shards.at({tap + ".weight", 0}).bytes, Bytes(cell.shards[0]));
    EXPECT_EQ(outcome.trace.shards.at({tap + ".weight", 1}).bytes, Bytes(cell.shards[0]));
    EXPECT_EQ(outcome.trace.taps.at({0, tap, 0}).bytes, cell.ExpectedOutput(0));
    EXPECT_NE(outcome.trace.taps.at({0, tap, 1}).bytes, cell.ExpectedOutput(1));
  }
}

// What README.md quotes is what example_engine.c says: each indented C line of it is a line there.
TEST(ExampleDocument, QuotesTheEngineAsItIs) {
  std::ifstream source_file("harness/abi/example/example_engine.c");
  std::ifstream text_file("harness/abi/example/README.md");
  std::stringstream source;
  source << source_file.rdbuf();
  int quoted = 0;
  bool in_code = false;
  for (std::string line; std::getline(text_file, line);) {
    if (line.rfind("```", 0) == 0) {
      in_code = line == "```c";
      continue;
    }
    if (!in_code || line.find("...") != std::string::npos || line.size() < 4) continue;
    ++quoted;
    EXPECT_NE(source.str().find(line + "\n"), std::string::npos) << line;
  }
  EXPECT_GE(quoted, 20);
}

}  // namespace
}  // namespace assay::abi
