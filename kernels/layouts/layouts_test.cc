#include "kernels/layouts/layouts.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "harness/units/scheme.h"
#include "kernels/layouts/aiter.h"
#include "kernels/layouts/test_images.h"

namespace assay::kernels {
namespace {

// The same matrix, filled up by hand with codes whose value is 0, packs to the same bytes.
struct Tail {
  std::string_view tag, method, part;
  StoredShape shape, whole;
  int filler;
};
const Tail kTails[] = {
    {"vnni", "modelslim-w8a8", "weight", {DType::kI8, 3, 5}, {DType::kI8, 16, 8}, 0},
    {"amx", "bf16", "weight", {DType::kBF16, 3, 5}, {DType::kBF16, 16, 32}, 0},
    {"vllm-cpu-moe-vec", "bf16", "weight", {DType::kBF16, 3, 5}, {DType::kBF16, 16, 5}, 0},
    {"marlin", "ct-int4-g32", "weight", {DType::kI32, 5, 1}, {DType::kI32, 64, 2}, 0x88},
    {"marlin", "ct-int8-g32", "weight", {DType::kI32, 5, 1}, {DType::kI32, 64, 4}, 0x80},
    {"marlin", "ct-int4-g32-asym", "weight", {DType::kI32, 5, 1}, {DType::kI32, 64, 2}, 0},
    {"marlin", "gptq-int4-g32", "weight", {DType::kI32, 1, 5}, {DType::kI32, 2, 64}, 0x88},
    {"marlin", "ct-fp8-channel", "weight", {DType::kF8E4M3, 5, 3}, {DType::kF8E4M3, 64, 16}, 0},
    {"marlin", "ct-mxfp4", "weight", {DType::kU8, 5, 3}, {DType::kU8, 64, 8}, 0},
    {"marlin", "ct-mxfp4", "scale", {DType::kU8, 5, 3}, {DType::kU8, 64, 3}, 0},
    {"marlin", "ct-int4-g32", "scale", {DType::kBF16, 5, 3}, {DType::kBF16, 64, 3}, 0},
    {"marlin", "ct-int4-g32-asym", "zero", {DType::kI32, 5, 3}, {DType::kI32, 8, 3}, 0},
    {"marlin", "awq-int4-g32-asym", "zero", {DType::kI32, 3, 5}, {DType::kI32, 3, 8}, 0},
    {"aiter-klane", "ct-mxfp4", "weight", {DType::kU8, 5, 3}, {DType::kU8, 16, 64}, 0},
    {"aiter-klane", "ct-mxfp4", "scale", {DType::kU8, 5, 3}, {DType::kU8, 32, 8}, 0x7F},
    {"aiter-separated", "ct-mxfp4", "scale", {DType::kU8, 5, 3}, {DType::kU8, 256, 8}, 0},
    {"aiter-int4", "ct-int4-g32", "weight", {DType::kI32, 5, 3}, {DType::kI32, 16, 4}, 0x88},
    {"aiter-int4", "ct-int4-g32", "scale", {DType::kBF16, 5, 3}, {DType::kBF16, 5, 4}, 0},
    {"blockscale-128x4", "ct-nvfp4", "scale", {DType::kU8, 5, 3}, {DType::kU8, 128, 4}, 0},
    {"triton-hopper", "ct-mxfp4", "weight", {DType::kU8, 5, 3}, {DType::kU8, 16, 32}, 0},
    {"triton-hopper", "ct-mxfp4", "scale", {DType::kU8, 5, 3}, {DType::kU8, 256, 4}, 0},
    {"ascend-w4a8", "modelslim-w4a8", "weight", {DType::kI8, 5, 3}, {DType::kI8, 8, 3}, 0},
    {"ascend-w4a8", "ct-int4-channel", "weight", {DType::kI32, 5, 3}, {DType::kI32, 8, 3}, 0x88},
    {"rows16", "ct-int4-g64", "weight", {DType::kI32, 5, 3}, {DType::kI32, 16, 4}, 0x88},
};

Image FilledUp(const StoredShape& shape, const StoredShape& whole, int filler, const Image& in) {
  const int64_t size = SizeOf(shape.dtype).count();
  Image out(static_cast<size_t>(whole.rows * whole.columns * size), static_cast<std::byte>(filler));
  for (int64_t r = 0; r < shape.rows; ++r) {
    const auto from = in.begin() + r * shape.columns * size;
    std::copy(from, from + shape.columns * size, out.begin() + r * whole.columns * size);
  }
  return out;
}

TEST(Padding, HasCodesOfValueZero) {
  uint32_t seed = 7;
  for (const Tail& tail : kTails) {
    const Layout* layout = FindLayout(tail.tag, tail.method, tail.part);
    ASSERT_NE(layout, nullptr) << tail.tag << " " << tail.method;
    const int64_t values = tail.shape.rows * tail.shape.columns;
    const Image in =
        RandomBytes(static_cast<size_t>(values * SizeOf(tail.shape.dtype).count()), ++seed);
    const int64_t bytes = layout->bytes(tail.shape);
    const Image packed = Pack(layout->pack, tail.shape, in, bytes);
    const Image whole = FilledUp(tail.shape, tail.whole, tail.filler, in);
    ASSERT_GE(layout->bytes(tail.whole), bytes);
    Image filled = Pack(layout->pack, tail.whole, whole, layout->bytes(tail.whole));
    filled.resize(packed.size());
    EXPECT_EQ(packed, filled) << tail.tag << " " << tail.method << " " << tail.part;
    const Image other = FilledUp(tail.shape, tail.whole, tail.filler ^ 0x11, in);
    Image control = Pack(layout->pack, tail.whole, other, layout->bytes(tail.whole));
    control.resize(packed.size());
    EXPECT_NE(packed, control) << "the filler shows: " << tail.tag;
  }
}

TEST(FindLayout, RowIsThereForEveryMethodAndPart) {
  for (const std::string& method : KnownSchemes()) {
    for (const char* part : {"weight", "scale", "zero", "g_idx", "bias", "input_scale"}) {
      const Layout* row = FindLayout("row", method, part);
      ASSERT_NE(row, nullptr);
      EXPECT_EQ(row->bytes({DType::kI32, 3, 5}), 60);
      EXPECT_EQ(row->bytes({DType::kQ6K, 3, 5}), 15 * 210);
    }
  }
  EXPECT_NE(FindLayout("row", "a method that nobody knows", "part"), nullptr);
}

TEST(FindLayout, KnowsOnlyWhatIsInTheTable) {
  EXPECT_EQ(FindLayout("rows16", "bf16", "weight"), nullptr);
  EXPECT_EQ(FindLayout("rows16", "gguf-q4_1", "scale"), nullptr);
  EXPECT_EQ(FindLayout("ROW", "bf16", "weight"), nullptr);
  EXPECT_EQ(FindLayout("marlin", "ct-int5-g32", "weight"), nullptr);
  EXPECT_EQ(FindLayout("marlin", "gptq-int4-g32-asym", "weight"), nullptr);
  EXPECT_EQ(FindLayout("marlin", "gptq-int4-g32", "g_idx"), nullptr);
  EXPECT_EQ(FindLayout("marlin", "ct-int4-g32", "zero"), nullptr);
  EXPECT_EQ(FindLayout("vnni", "ct-mxfp4", "weight"), nullptr);
  EXPECT_EQ(FindLayout("mla-absorb", "ct-int4-g32", "weight"), nullptr);
  EXPECT_EQ(FindLayout("marlin", "no-such-method", "weight"), nullptr);
  EXPECT_NE(FindLayout("marlin", "ct-int4-g96", "weight"), nullptr) << "any size";
}

using Strings = std::vector<std::string_view>;

TEST(Tags, ListsWhatAppliesToAPart) {
  EXPECT_EQ(Tags("bf16", "weight"), (Strings{"row", "vnni", "amx", "ktile", "vllm-cpu-moe-vec",
                                             "gate-up-rows", "aiter-klane", "mla-absorb"}));
  EXPECT_EQ(Tags("ct-int4-g32", "weight"), (Strings{"row", "rows16", "ktile", "gate-up-rows",
                                                    "marlin", "marlin-padded", "aiter-int4"}));
  EXPECT_EQ(Tags("ct-int4-g32", "scale"),
            (Strings{"row", "rows16", "gate-up-rows", "marlin", "marlin-padded", "aiter-int4"}));
  EXPECT_EQ(Tags("awq-int4-g32-asym", "zero"), (Strings{"row", "marlin"}));
  EXPECT_EQ(Tags("gguf-q4_k", "weight"), (Strings{"row", "ktile", "gate-up-rows"}));
  EXPECT_EQ(Tags("modelslim-w4a8", "weight"), (Strings{"row", "ascend-w4a8"}));
  EXPECT_EQ(Tags("no-such-method", "weight"), (Strings{"row"}));
  for (const std::string& method : KnownSchemes()) {
    for (const char* part : {"weight", "scale", "zero", "g_idx", "act", "bias"}) {
      const Strings tags = Tags(method, part);
      EXPECT_EQ(std::set<std::string_view>(tags.begin(), tags.end()).size(), tags.size());
      for (const std::string_view tag : tags) EXPECT_NE(FindLayout(tag, method, part), nullptr);
    }
  }
}

TEST(LayoutOfPart, LeavesInRowWhatATagDoesNotMove) {
  EXPECT_EQ(LayoutOfPart("marlin", "ct-int4-g32", "scale")->tag, "marlin");
  EXPECT_EQ(LayoutOfPart("marlin", "ct-int4-g32", "input_scale")->tag, "row");
  EXPECT_EQ(LayoutOfPart("blockscale-128x4", "ct-nvfp4", "weight")->tag, "row");
  EXPECT_EQ(LayoutOfPart("marlin", "bf16", "weight"), nullptr);
  EXPECT_EQ(LayoutOfPart("no-such-tag", "bf16", "weight"), nullptr);
  EXPECT_EQ(LayoutOfPart("row", "bf16", "bias")->tag, "row");
}

TEST(Aiter, TheModeDecidesAndA8W4Wins) {
  const AiterLayouts interleaved = {"aiter-interleaved", "aiter-klane"};
  const AiterLayouts separated = {"aiter-separated", "aiter-separated"};
  EXPECT_EQ(AiterLayoutFor(std::nullopt, {false, false}), interleaved);  // A16W4
  EXPECT_EQ(AiterLayoutFor(std::nullopt, {true, false}), interleaved);   // A8W4
  EXPECT_EQ(AiterLayoutFor(std::nullopt, {false, true}), separated);     // A4W4
  EXPECT_EQ(AiterLayoutFor(std::nullopt, {true, true}), interleaved);    // A8W4
  EXPECT_EQ(AiterModeFor({true, true}), AiterMode::kA8W4);
  for (const bool a8w4 : {false, true}) {
    for (const bool a4w4 : {false, true}) {
      EXPECT_EQ(AiterLayoutFor(AiterMode::kA16W4, {a8w4, a4w4}), interleaved);
      EXPECT_EQ(AiterLayoutFor(AiterMode::kA8W4, {a8w4, a4w4}), interleaved);
      EXPECT_EQ(AiterLayoutFor(AiterMode::kA4W4, {a8w4, a4w4}), separated);
    }
  }
}

}  // namespace
}  // namespace assay::kernels
