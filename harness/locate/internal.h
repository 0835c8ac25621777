// What the files of this room share; nobody else includes it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/judge/judge.h"
#include "harness/locate/locate.h"

namespace assay::locate {

// Stored values of a shard as integers of their bits, row major; of blocks, each byte.
struct Values {
  int64_t rows = 0, columns = 0;
  int width = 0;  // bytes of a value
  std::vector<uint64_t> bits;
  uint64_t at(int64_t row, int64_t column) const { return bits[row * columns + column]; }
};
Values Unpack(std::span<const std::byte> bytes, int64_t rows, int64_t columns, DType dtype);
// Columns of Values that one stored value makes: 1, or the bytes of a block.
int64_t PartsOf(DType dtype);
// Bits as the number that they stand for; words as integers.
double NumberOf(uint64_t bits, DType dtype);
std::string HexOf(uint64_t bits, DType dtype);

// "L1.moe.e5.down.scale" -> "L1.moe.e5.down" and ".scale".
std::string ParameterOf(std::string_view component);
std::string SuffixOf(std::string_view component);
// Without layer and expert: "moe.down.scale".
std::string KindOf(std::string_view component);
// The op that reads a component; nullptr: none.
const reference::Node* ConsumerOf(const reference::Oracle& oracle, std::string_view component);

struct ShardCase {
  const reference::Oracle* oracle = nullptr;
  reference::Where where;
  std::string component;
  const reference::Slice* expected = nullptr;
  Values want, got;
  const reference::Oracle* decoy = nullptr;  // over what was loaded before; may be null
  // A rank that is to hold the same rows and columns, and does.
  std::optional<int> right_replica = {};
  // What a column of `want` is: a stored value's unit, or a byte of a block.
  std::string unit() const { return want.columns == columns() ? expected->unit : "byte"; }
  int64_t columns() const { return static_cast<int64_t>(expected->columns.size()); }
};
// What kind of mistake made `got` of `want`.
Signature ShardSignature(const ShardCase& wrong);

struct OpCase {
  const judge::JudgeRequest* request = nullptr;
  const judge::OpJudgement* judgement = nullptr;
  // Set where the signature names the rank whose summand is missing or doubled: the culprit, while
  // the judgement's rank is only where the wrong sum was seen.
  std::optional<int>* culprit = nullptr;
};
Signature OpSignature(const OpCase& wrong);
// Ids that no router may give: out of range, twice, not ascending.
bool IsIllegalChoice(const Signature& signature);

// The error field of an op's output, and whether another value would explain it.
class Field {
 public:
  Field(const judge::OpJudgement& judgement, DType out);
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  double oracle(int64_t i) const { return judgement_.oracle.data[i]; }
  double kernel(int64_t i) const { return judgement_.kernel.data[i]; }
  bool wrong(int64_t i) const { return wrong_[i] != 0; }
  // What rounding a value to the output's type may move it by.
  double HalfUlp(double value) const;
  int64_t wrong_count() const { return count_; }
  // Whether the kernel's value is `other` within this op's bound. `factor`: the bound of a value
  // that was multiplied after its sum grows with it.
  bool Explains(int64_t i, double other, double factor = 1) const;
  // How far from `other` it may be for that.
  double Slack(int64_t i, double other, double factor = 1) const;
  // All wrong elements are so explained.
  template <class F>
  bool ExplainsAll(F other, double factor = 1) const {
    for (int64_t i = 0; i < rows_ * columns_; ++i) {
      if (wrong(i) && !Explains(i, other(i), factor)) return false;
    }
    return count_ > 0;
  }

 private:
  const judge::OpJudgement& judgement_;
  int64_t rows_ = 0, columns_ = 0, count_ = 0;
  double u_out_ = 0;
  std::vector<uint8_t> wrong_;
};

// The inputs of a judged op as tensors, converted by judge's rules where the engine shows them or
// the harness gave them; empty where one is missing.
std::vector<reference::Tensor> ShownInputs(const judge::JudgeRequest& request,
                                           const judge::OpJudgement& judgement);
// The partials that a kReduce on this rank adds, and the ranks they are from.
struct Partials {
  std::vector<int> ranks;
  std::vector<reference::Tensor> values;  // as far as the judgement's output reaches
  std::vector<reference::Tensor> whole;
};
Partials ShownPartials(const judge::JudgeRequest& request, const judge::OpJudgement& judgement);

// The tap of a rank, else the one for all ranks, else what was given; nullptr: none of them.
const TapValue* FindTap(const judge::JudgeRequest& request, const std::string& tap, int rank,
                        int step);
// Type that an op's values were rounded to; of activations' codes and scales, F32.
DType OutputType(const judge::JudgeRequest& request, const reference::Node& node);

// The structure of the error alone: which rows and columns, which relation to the right values.
std::optional<Signature> FieldSignature(const Field& field, int tp);
// t if the output lacks the last t of K.
std::optional<Signature> TailSignature(const OpCase& wrong, const Field& field);
std::optional<Signature> ReduceSignature(const OpCase& wrong, const Field& field);
std::optional<Signature> ActivationSignature(const OpCase& wrong, const Field& field);
// Cut off instead of rounded, or wrong in the last place at all.
std::optional<Signature> LastPlace(const Field& field, DType out);
// Rows that are other rows' results, or those at one place of each tile.
std::optional<Signature> TokenRow(const Field& field);
// Of an x_q or x_scale.
Signature CodesSignature(const OpCase& wrong);

// Where an op is first wrong: unit, index in the whole tap, local_index in the rank's part.
Status SetElement(const judge::JudgeRequest& request, const judge::OpJudgement& judgement,
                  Divergence* divergence);
// Pictures of the error; nullopt: there is nothing to draw.
std::optional<ErrorMap> MapOf(const judge::OpJudgement& judgement);
std::optional<ErrorMap> MapOf(const ShardCase& wrong);

// One entry for each (kind, rank, signature): the first keeps its coordinates, the others are
// counted in its evidence.
struct Found {
  Divergence divergence;
  std::string kind;
  int64_t order = 0;  // data flow
  int step = 0;
};
std::vector<Divergence> Group(std::vector<Found> found);

}  // namespace assay::locate
