// Every method on layers that are made here, whole and cut: the whole's weights are those that the
// codes mean, and a rank's shard, cut by what the parts say of their axes, has its part of them.
#include "reference/methods/made.h"

#include <numeric>
#include <set>

namespace assay::reference {
namespace {

using testing_support::AllRows;
using testing_support::Differing;
using testing_support::Made;
using testing_support::MadeIds;
using testing_support::MakeLayer;
using testing_support::MustOpen;
using testing_support::Parts;

std::unique_ptr<Decoder> Open(const Made& made) {
  return MustOpen(made.parts, made.config, made.rows, made.columns);
}

TEST(Made, EveryMethodReadsWhatTheCodesMean) {
  EXPECT_GT(MadeIds().size(), 45u);
  for (const std::string& id : MadeIds()) {
    const Made made = MakeLayer(id);
    const auto decoder = Open(made);
    EXPECT_EQ(decoder->method(), id);
    EXPECT_EQ(Differing(AllRows(*decoder), made.expected), 0) << id;
    EXPECT_TRUE(decoder->CheckValues().ok()) << id;
    EXPECT_TRUE(decoder->quantised()) << id;
  }
}

// A byte of the first tensor changed is a weight changed: the comparison sees it.
TEST(Made, AChangedCodeIsSeen) {
  for (const std::string& id : MadeIds()) {
    Made made = MakeLayer(id);
    const std::string weight = Open(made)->parts()[0].file_suffix;
    made.parts.Own(weight)[0] ^= std::byte{1};
    EXPECT_EQ(Differing(AllRows(*Open(made)), made.expected), 1) << id;
  }
}

// So many values of one axis of a stored tensor, from where on, for logical elements [begin, end).
struct Cut {
  int64_t begin = 0, count = 0;
};
Cut CutAxis(int64_t stored, int64_t elements, int64_t per_unit, int64_t begin, int64_t end,
            int64_t extent) {
  Cut cut;
  cut.begin = begin / elements * per_unit;
  // A whole number of units, or all that there is.
  cut.count = end == extent ? stored - cut.begin : end / elements * per_unit - cut.begin;
  return cut;
}

// Rows [n0, n1) and columns [k0, k1) of the weight.
struct Window {
  int64_t n0 = 0, n1 = 0, k0 = 0, k1 = 0;
};

void CutPart(const StoredPart& part, const Made& made, const Window& w, Parts* to) {
  const TensorView& view = *part.view;
  const int64_t rows = view.shape.empty() ? 1 : view.shape[0];
  int64_t columns = 1;
  for (size_t i = 1; i < view.shape.size(); ++i) columns *= view.shape[i];
  const auto cut = [&](Along along, int64_t stored, int64_t elements, int64_t per_unit) {
    switch (along) {
      case Along::kRows:
        return CutAxis(stored, elements, per_unit, w.n0, w.n1, made.rows);
      case Along::kColumns:
        return CutAxis(stored, elements, per_unit, w.k0, w.k1, made.columns);
      case Along::kNone:
        break;
    }
    return Cut{0, stored};
  };
  const Cut down = cut(part.row_along, rows, part.elements_per_row, part.rows_per_unit);
  const Cut across =
      cut(part.column_along, columns, part.elements_per_column, part.columns_per_unit);
  const int64_t size = SizeOf(view.dtype).count();
  std::vector<std::byte> bytes;
  for (int64_t r = down.begin; r < down.begin + down.count; ++r) {
    const auto* from = view.bytes.data() + (r * columns + across.begin) * size;
    bytes.insert(bytes.end(), from, from + across.count * size);
  }
  // As a loader gives shards: grids of two dimensions.
  to->Put(part.file_suffix, view.dtype, {down.count, across.count}, bytes);
}

// The least common unit of the parts along an axis of the weight.
int64_t UnitAlong(const Decoder& decoder, Along along) {
  int64_t unit = 1;
  for (const StoredPart& part : decoder.parts()) {
    if (part.row_along == along) unit = std::lcm(unit, part.elements_per_row);
    if (part.column_along == along) unit = std::lcm(unit, part.elements_per_column);
  }
  return unit;
}

std::vector<double> Expected(const Made& made, const Window& w) {
  std::vector<double> values;
  for (int64_t n = w.n0; n < w.n1; ++n) {
    for (int64_t k = w.k0; k < w.k1; ++k) {
      values.push_back(made.expected[static_cast<size_t>(n * made.columns + k)]);
    }
  }
  return values;
}

// Both sides of a cut at one unit: neither begins the tensor and ends it.
std::vector<Window> Windows(const Made& made, const Decoder& whole) {
  std::vector<Window> windows;
  const int64_t n = UnitAlong(whole, Along::kRows), k = UnitAlong(whole, Along::kColumns);
  if (n < made.rows) {
    windows.push_back({0, n, 0, made.columns});
    windows.push_back({n, made.rows, 0, made.columns});
  }
  if (k < made.columns) {
    windows.push_back({0, made.rows, 0, k});
    windows.push_back({0, made.rows, k, made.columns});
  }
  return windows;
}

TEST(Made, ShardsCutAsThePartsSayHaveTheirWeights) {
  int row_cuts = 0, column_cuts = 0;
  for (const std::string& id : MadeIds()) {
    const Made made = MakeLayer(id);
    const auto whole = Open(made);
    for (const Window& w : Windows(made, *whole)) {
      Parts shard;
      for (const StoredPart& part : whole->parts()) CutPart(part, made, w, &shard);
      const auto decoder = MustOpen(shard, made.config, w.n1 - w.n0, w.k1 - w.k0, whole.get());
      EXPECT_EQ(decoder->method(), id);
      EXPECT_EQ(Differing(AllRows(*decoder), Expected(made, w)), 0)
          << id << " rows " << w.n0 << ".." << w.n1 << " columns " << w.k0 << ".." << w.k1;
      ++(w.k1 - w.k0 < made.columns ? column_cuts : row_cuts);
    }
  }
  // All but one-group's along K: its row is one unit.
  EXPECT_EQ(row_cuts, 2 * static_cast<int>(MadeIds().size()));
  EXPECT_EQ(column_cuts, row_cuts - 2);
}

// Parts' axes told otherwise give other weights or none: the test above would see it.
TEST(Made, OtherAxesGiveOtherWeights) {
  const std::pair<const char*, const char*> cases[] = {
      {"gptq-int4-g32-actorder", "scales"},  // groups cut though g_idx numbers them all
      {"ct-int4-g32-actorder-group", "weight_scale"},
      {"ct-int4-g32", "weight_scale"},  // groups kept though nothing numbers them
      {"awq-int4-g32-asym", "qzeros"},
  };
  for (const auto& [id, suffix] : cases) {
    const Made made = MakeLayer(id);
    const auto whole = Open(made);
    const Window w = {0, made.rows, 64, made.columns};
    Parts shard;
    for (StoredPart part : whole->parts()) {
      if (part.file_suffix == suffix) {
        const bool transposed = part.view->shape[1] != made.columns / 32;
        Along& along = transposed ? part.row_along : part.column_along;
        int64_t& elements = transposed ? part.elements_per_row : part.elements_per_column;
        along = along == Along::kNone ? Along::kColumns : Along::kNone;
        elements = 32;
      }
      CutPart(part, made, w, &shard);
    }
    const auto decoder = OpenDecoder(shard, made.config, w.n1 - w.n0, w.k1 - w.k0, whole.get());
    EXPECT_TRUE(!decoder || Differing(AllRows(**decoder), Expected(made, w)) > 0) << id;
  }
}

// Without the whole a shard's first group number could be a mistake of the file.
TEST(Made, AShardsNumbersAreTheWholesOnes) {
  const Made made = MakeLayer("gptq-int4-g32");
  const auto whole = Open(made);
  Parts shard;
  const Window w = {0, made.rows, 96, made.columns};
  for (const StoredPart& part : whole->parts()) CutPart(part, made, w, &shard);
  EXPECT_FALSE(OpenDecoder(shard, made.config, made.rows, made.columns - 96).ok());
  const auto decoder = MustOpen(shard, made.config, made.rows, made.columns - 96, whole.get());
  EXPECT_EQ(Differing(AllRows(*decoder), Expected(made, w)), 0);
  // And a shard of another method than the whole's is none.
  const Made another = MakeLayer("ct-int4-g32");
  const auto other = Open(another);
  EXPECT_FALSE(OpenDecoder(shard, made.config, made.rows, made.columns - 96, other.get()).ok());
}

TEST(Made, PartsComeInTheOrderOfComponents) {
  const std::vector<std::string> order = {
      "weight",      "scale",       "zero",       "g_idx",     "global_scale", "scale_second",
      "zero_second", "input_scale", "input_zero", "deq_scale", "quant_bias",   "scale_bias"};
  std::set<std::string> seen;
  for (const std::string& id : MadeIds()) {
    const Made made = MakeLayer(id);
    const auto decoder = Open(made);
    ptrdiff_t last = -1;
    for (const StoredPart& part : decoder->parts()) {
      const auto at = std::find(order.begin(), order.end(), part.suffix) - order.begin();
      EXPECT_GT(at, last) << id << " " << part.suffix;
      last = at;
      seen.insert(part.suffix);
      EXPECT_EQ(part.view, made.parts.Find(part.file_suffix)) << id;
    }
  }
  EXPECT_EQ(seen.size(), order.size());
}

}  // namespace
}  // namespace assay::reference
