// Both ends of the model: the embedding, whose rows the ranks share, and the gathered logits.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/collectives/collectives.h"
#include "kernels/engines/native/blocks.h"
#include "kernels/engines/native/contract_types.h"
#include "kernels/engines/native/ops.h"
#include "kernels/loaders/engine_error.h"
#include "kernels/loaders/parameters.h"
#include "kernels/methods/methods.h"

namespace assay::kernels::native {
namespace {

// One row of the table as fp32, exactly.
class RowReader {
 public:
  explicit RowReader(const Part& table) : table_(table) {
    const DType dtype = table.shape.dtype;
    row_bytes_ = table.shape.columns * SizeOf(dtype).count();
    columns_ = table.shape.columns * ElementsOf(dtype).count();
    if (!IsBlock(dtype)) return;
    method_ = FindMethod(MethodName(dtype));
    if (method_ != nullptr) return;
    throw EngineError(ASSAY_UNSUPPORTED,
                      fmt::format("embed.weight: no lookup in a table of {}", NameOf(dtype)));
  }
  int64_t columns() const { return columns_; }
  void Read(int64_t row, float* out) const {
    const std::byte* from = table_.bytes.data() + row * row_bytes_;
    if (method_ != nullptr) {
      method_->decode(from, nullptr, 1, columns_, out);
    } else {
      ToFloats(table_.shape.dtype, from, columns_, out);
    }
  }

 private:
  const Part& table_;
  const Method* method_ = nullptr;
  int64_t row_bytes_ = 0, columns_ = 0;
};

// Rows of the tokens that this rank's part of the vocabulary holds, zero for the others.
Matrix MaskedLookup(Session& s, int rank, const std::vector<int32_t>& tokens) {
  const Part& table = s.rank(rank).parameters.Get("embed").parameter->parts.at("weight");
  const RowReader reader(table);
  const int64_t first = rank * table.shape.rows;
  Matrix rows(s.memory(), static_cast<int64_t>(tokens.size()), reader.columns(), kEmbedType);
  for (int64_t i = 0; i < rows.rows; ++i) {
    const int64_t local = tokens[static_cast<size_t>(i)] - first;
    if (local < 0 || local >= table.shape.rows) {
      std::fill_n(rows.row(i), rows.columns, 0.0f);
    } else {
      reader.Read(local, rows.row(i));
    }
  }
  rows.Round();  // a table may be finer than what it is promised to give
  return rows;
}

}  // namespace

Matrices EmbedBlock(Session& s, const std::vector<int32_t>& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < s.config().vocab) continue;
    throw EngineError(ASSAY_FAILED, fmt::format("token {} at {}; allowed is 0 to {}", tokens[i], i,
                                                s.config().vocab - 1));
  }
  Matrices parts;
  for (int rank = 0; rank < s.tp(); ++rank) parts.push_back(MaskedLookup(s, rank, tokens));
  // Exact: all terms of the sum but one are zero.
  return AllReduce(s, "embed", parts, s.tp());
}

Matrix LogitsBlock(Session& s, const Matrices& normed) {
  std::vector<const float*> parts;
  Matrices shards;
  for (int rank = 0; rank < s.tp(); ++rank) {
    shards.push_back(LinearOp(s, rank, "logits", normed[static_cast<size_t>(rank)]));
  }
  for (const Matrix& shard : shards) parts.push_back(shard.data());
  Matrix whole(s.memory(), shards.front().rows, s.config().vocab, kLogitsType);
  GatherColumns(parts, whole.rows, shards.front().columns, whole.columns, whole.data());
  s.dispatcher().RecordUntiered("logits", -1, kGatherName);
  return s.Finish("logits", -1, std::move(whole));
}

}  // namespace assay::kernels::native
