// Every layout of every method: the inverse gives every component back, and what cannot be held is
// refused. A bijection is not yet the layout: golden_test and vendor_test hold the bytes.
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>

#include "harness/units/scheme.h"
#include "kernels/layouts/layouts.h"
#include "kernels/layouts/test_images.h"

namespace assay::kernels {
namespace {

constexpr DType kTypes[] = {DType::kF32,    DType::kF16,  DType::kBF16, DType::kF8E4M3,
                            DType::kF8E8M0, DType::kI32,  DType::kI8,   DType::kU8,
                            DType::kQ4_1,   DType::kQ8_0, DType::kQ6K,  DType::kI64};

// One entry of the table by what it does: methods that share a rule are tested once.
std::vector<Layout> Distinct() {
  std::map<std::tuple<std::string_view, std::string_view, decltype(Layout::bytes),
                      decltype(Layout::pack)>,
           Layout>
      distinct;
  for (const Layout& layout : Layouts()) {
    distinct.try_emplace({layout.tag, layout.part, layout.bytes, layout.pack}, layout);
  }
  std::vector<Layout> layouts;
  for (const auto& [key, layout] : distinct) layouts.push_back(layout);
  return layouts;
}

// An order of K, whichever of the counts the layout takes K to be.
std::vector<int32_t> SomeOrder(int64_t count) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = 0; i + 1 < order.size(); i += 2) std::swap(order[i], order[order.size() - 1 - i]);
  return order;
}

// Shapes of the extents that the layout takes, with every parameter that one of them may want.
std::vector<StoredShape> ShapesOf(const Layout& layout, int64_t rows, int64_t columns,
                                  const std::vector<std::vector<int32_t>>& orders) {
  std::vector<StoredShape> shapes;
  for (const DType dtype : kTypes) {
    StoredShape shape{dtype, rows, columns};
    shape.nope = 2, shape.v = 1, shape.group = 16;
    shape.k = 16 * std::max(rows, columns);
    if (layout.bytes(shape) >= 0) shapes.push_back(shape);
    for (const auto& order : orders) {
      shape.order = order;
      if (!order.empty() && layout.tag == "marlin" && layout.bytes(shape) >= 0) {
        shapes.push_back(shape);
      }
    }
  }
  return shapes;
}

class EveryLayout : public ::testing::TestWithParam<Layout> {};

TEST_P(EveryLayout, UnpackIsTheInverseOfPackForEveryShape) {
  const Layout& layout = GetParam();
  uint32_t seed = 1;
  int taken = 0;
  for (int64_t rows : {0, 1, 2, 3, 8, 15, 16, 18, 33, 66, 132}) {
    for (int64_t columns : {0, 1, 2, 3, 4, 5, 8, 9, 12, 16, 31, 33, 65}) {
      const std::vector<std::vector<int32_t>> orders = {
          SomeOrder(rows * 8), SomeOrder(rows * 4), SomeOrder(columns * 8), SomeOrder(columns * 4)};
      for (const StoredShape& shape : ShapesOf(layout, rows, columns, orders)) {
        Image in =
            RandomBytes(static_cast<size_t>(rows * columns * SizeOf(shape.dtype).count()), ++seed);
        if (layout.objection != nullptr) {  // no negative scales
          for (std::byte& b : in) b &= std::byte{0x7F};
          ASSERT_EQ(layout.objection(shape, in.data()), nullptr);
        }
        const int64_t bytes = layout.bytes(shape);
        ASSERT_GE(bytes, static_cast<int64_t>(in.size()));
        if (layout.tag == "row") {
          ASSERT_EQ(bytes, static_cast<int64_t>(in.size()));
        }
        const Image packed = Pack(layout.pack, shape, in, bytes);
        ASSERT_EQ(Pack(layout.unpack, shape, packed, static_cast<int64_t>(in.size())), in)
            << rows << " x " << columns << " " << NameOf(shape.dtype);
        ++taken;
      }
    }
  }
  EXPECT_GE(taken, 10) << "the layout took hardly a shape";
}

TEST_P(EveryLayout, RefusesShapesThatItCannotHold) {
  const Layout& layout = GetParam();
  const int64_t huge = std::numeric_limits<int64_t>::max();
  for (const DType dtype : kTypes) {
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{-1, 4},
                                                                                {4, -1},
                                                                                {-2, -2},
                                                                                {huge, huge},
                                                                                {6, huge - 1},
                                                                                {huge - 1, 6},
                                                                                {huge / 2, 4},
                                                                                {huge - 1, 2},
                                                                                {-6, 0}}) {
      StoredShape shape{dtype, rows, columns};
      shape.nope = 2, shape.v = 1, shape.group = 16, shape.k = 64;
      EXPECT_EQ(layout.bytes(shape), -1) << NameOf(dtype) << " " << rows << " x " << columns;
    }
    // No overflow where nothing is there: sanitizers look at this.
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{huge, 0}, {0, huge}, {huge - 1, 0}, {0, 0}}) {
      StoredShape shape{dtype, rows, columns};
      shape.nope = 2, shape.v = 1, shape.group = huge, shape.k = huge;
      EXPECT_LE(layout.bytes(shape), 8) << NameOf(dtype) << " " << rows << " x " << columns;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, EveryLayout, ::testing::ValuesIn(Distinct()), [](const auto& test) {
  std::string name = std::string(test.param.tag) + "_" + std::string(test.param.method) + "_" +
                     std::string(test.param.part) + "_" + std::to_string(test.index);
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return name;
});

TEST(Distinct, CoversTheTable) {
  std::set<std::string_view> tags, tested;
  for (const Layout& layout : Layouts()) tags.insert(layout.tag);
  for (const Layout& layout : Distinct()) tested.insert(layout.tag);
  EXPECT_EQ(tags, tested);
  EXPECT_GE(Distinct().size(), 60U);
}

// Broken bytes of an engine: the inverse reads and writes its own memory only.
TEST_P(EveryLayout, UnpacksAnyBytesWithinItsBuffers) {
  const Layout& layout = GetParam();
  const std::vector<std::vector<int32_t>> orders = {SomeOrder(24 * 8), SomeOrder(24 * 4)};
  for (const StoredShape& shape : ShapesOf(layout, 24, 24, orders)) {
    const auto bytes = layout.bytes(shape);
    for (uint32_t seed = 1; seed < 4; ++seed) {
      const Image any = RandomBytes(static_cast<size_t>(bytes), seed);
      Pack(layout.unpack, shape, any, 24 * 24 * SizeOf(shape.dtype).count());
    }
  }
  if (layout.part == "g_idx") {
    const StoredShape shape{DType::kI32, 24, 1};
    Pack(layout.unpack, shape, RandomBytes(24 * 8, 5), 24 * 4);
  }
}

}  // namespace
}  // namespace assay::kernels
