#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "harness/checkpoint/safetensors.h"
#include "reference/golden_file.h"
#include "reference/methods/method.h"
#include "reference/test_support.h"

namespace assay::reference {
namespace {

class Parts : public PartFinder {
 public:
  explicit Parts(const TensorSource& source) : source_(source) {}
  const TensorView* Find(std::string_view suffix) const override { return source_.Find(suffix); }
  std::string Name() const override { return "layer"; }

 private:
  const TensorSource& source_;
};

QuantConfig Int4(int64_t group) {
  QuantConfig config;
  config.method = "compressed-tensors";
  config.format = "pack-quantized";
  config.weight_type = "int";
  config.bits = 4;
  config.group_size = group;
  config.strategy = group > 0 ? "group" : "channel";
  return config;
}

template <class T>
void Put(MemorySource* source, const std::string& name, DType dtype, std::vector<int64_t> shape,
         const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  source->Put(name, dtype, std::move(shape), std::move(bytes));
}

// Two rows of 16: row n, element k has code (k + n) % 16 − 8.
MemorySource TwoRows(int64_t groups) {
  MemorySource source;
  std::vector<uint32_t> words;
  for (uint32_t n = 0; n < 2; ++n) {
    for (uint32_t word = 0; word < 2; ++word) {
      uint32_t bits = 0;
      for (uint32_t i = 0; i < 8; ++i) bits |= ((word * 8 + i + n) % 16) << (4 * i);
      words.push_back(bits);
    }
  }
  Put(&source, "weight_packed", DType::kI32, {2, 2}, words);
  std::vector<float> scales;
  for (int64_t i = 0; i < 2 * groups; ++i) scales.push_back(std::ldexp(1.0f, static_cast<int>(i)));
  Put(&source, "weight_scale", DType::kF32, {2, groups}, scales);
  Put(&source, "weight_shape", DType::kI64, {2}, std::vector<int64_t>{2, 16});
  return source;
}

TEST(CtInt4, EqualsTheLibraryExactly) {
  const std::string path = "goldens/formats/ct-int4-g32-sym.safetensors";
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const TensorView* view = (*file)->Find("expected");
  std::vector<double> expected(13 * 160);
  DecodeFloats(*view, 0, 13 * 160, expected.data());
  // The file has no plain "weight", so its names are the suffixes.
  const auto decoder = OpenDecoder(Parts(**file), Int4(32), 13, 160);
  ASSERT_TRUE(decoder.ok()) << decoder.error().message;
  std::vector<double> row(160);
  for (int64_t n = 0; n < 13; ++n) {
    (*decoder)->Row(n, row.data());
    for (size_t k = 0; k < 160; ++k) {
      EXPECT_EQ(row[k], expected[static_cast<size_t>(n) * 160 + k]) << n << ", " << k;
    }
  }
  EXPECT_TRUE((*decoder)->quantised());
}

TEST(CtInt4, GroupsAndChannelsTakeTheirOwnScales) {
  for (const int64_t groups : {1, 2}) {
    const MemorySource source = TwoRows(groups);
    const auto decoder = OpenDecoder(Parts(source), Int4(groups == 1 ? 0 : 8), 2, 16);
    ASSERT_TRUE(decoder.ok()) << decoder.error().message;
    std::vector<double> row(16);
    for (int64_t n = 0; n < 2; ++n) {
      (*decoder)->Row(n, row.data());
      for (int64_t k = 0; k < 16; ++k) {
        const double scale = std::ldexp(1.0, static_cast<int>(n * groups + k * groups / 16));
        EXPECT_EQ(row[static_cast<size_t>(k)], static_cast<double>((k + n) % 16 - 8) * scale);
      }
    }
  }
}

TEST(CtInt4, ContradictionsAndVariantsAreErrorsThatNameThem) {
  const auto error = [](const MemorySource& source, const QuantConfig& config, int64_t rows,
                        int64_t columns) {
    const auto decoder = OpenDecoder(Parts(source), config, rows, columns);
    return decoder.ok() ? Error{"no error"} : decoder.error();
  };
  EXPECT_NE(error(TwoRows(2), Int4(8), 3, 16).message.find("[3, 2]"), std::string::npos);
  EXPECT_NE(error(TwoRows(2), Int4(4), 2, 16).message.find("[2, 4]"), std::string::npos);
  EXPECT_NE(error(TwoRows(2), Int4(7), 2, 16).message.find("groups of 7"), std::string::npos);
  MemorySource source = TwoRows(2);
  Put(&source, "weight_shape", DType::kI64, {2}, std::vector<int64_t>{2, 15});
  EXPECT_NE(error(source, Int4(8), 2, 16).message.find("[2, 15]"), std::string::npos);
  source = TwoRows(2);
  Put(&source, "weight_zero_point", DType::kI32, {1, 2}, std::vector<int32_t>{0, 0});
  EXPECT_NE(error(source, Int4(8), 2, 16).message.find("symmetric"), std::string::npos);
  QuantConfig config = Int4(8);
  config.symmetric = false;
  EXPECT_NE(error(TwoRows(2), config, 2, 16).message.find("weight_zero_point"), std::string::npos);
  config = Int4(8);
  config.bits = 8;
  EXPECT_NE(error(TwoRows(2), config, 2, 16).message.find("[2, 4]"), std::string::npos);
  config.bits = 9;
  EXPECT_EQ(error(TwoRows(2), config, 2, 16).kind, ErrorKind::kUnsupported);
  config = Int4(8);
  config.actorder = "group";
  EXPECT_NE(error(TwoRows(2), config, 2, 16).message.find("weight_g_idx"), std::string::npos);
  config = Int4(8);
  config.strategy = "tensor";
  EXPECT_EQ(error(TwoRows(2), config, 2, 16).kind, ErrorKind::kUnsupported);
  source = TwoRows(2);
  Put(&source, "weight", DType::kF32, {1}, std::vector<float>{0});
  EXPECT_NE(error(source, Int4(8), 2, 16).message.find("two methods"), std::string::npos);
  EXPECT_NE(error(MemorySource(), Int4(8), 2, 16).message.find("neither"), std::string::npos);
}

TEST(Plain, WidensEveryTypeExactly) {
  MemorySource source;
  Put(&source, "weight", DType::kBF16, {1, 3}, std::vector<uint16_t>{0x3f80, 0xc049, 0x0001});
  std::vector<double> row(3);
  (*OpenDecoder(Parts(source), {}, 1, 3))->Row(0, row.data());
  EXPECT_EQ(row, (std::vector<double>{1, -3.140625, std::ldexp(1.0, -133)}));
  Put(&source, "weight", DType::kF16, {1, 3}, std::vector<uint16_t>{0x3c00, 0x8001, 0x7bff});
  (*OpenDecoder(Parts(source), {}, 1, 3))->Row(0, row.data());
  EXPECT_EQ(row, (std::vector<double>{1, -std::ldexp(1.0, -24), 65504}));
  Put(&source, "weight", DType::kF32, {1, 3}, std::vector<float>{0.1f, -0.0f, 3e38f});
  (*OpenDecoder(Parts(source), {}, 1, 3))->Row(0, row.data());
  EXPECT_EQ(row, (std::vector<double>{0.1f, -0.0, 3e38f}));
}

TEST(Plain, OtherTypesAndScalesBesideItAreNotGuessed) {
  MemorySource source;
  Put(&source, "weight", DType::kF8E4M3, {1, 2}, std::vector<uint8_t>{1, 2});
  EXPECT_EQ(OpenDecoder(Parts(source), {}, 1, 2).error().kind, ErrorKind::kUnsupported);
  Put(&source, "weight", DType::kF32, {1, 2}, std::vector<float>{1, 2});
  EXPECT_TRUE(OpenDecoder(Parts(source), {}, 1, 2).ok());
  EXPECT_FALSE(OpenDecoder(Parts(source), {}, 2, 1).ok());
  Put(&source, "weight_scale_inv", DType::kF32, {1, 1}, std::vector<float>{2});
  EXPECT_EQ(OpenDecoder(Parts(source), {}, 1, 2).error().kind, ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace assay::reference
