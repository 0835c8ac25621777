// GGUF's blocks and MXFP4 against other people's dequantisation, and what a mistake would cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "harness/checkpoint/gguf.h"
#include "harness/checkpoint/safetensors.h"
#include "reference/golden_file.h"
#include "reference/methods/method.h"
#include "reference/test_support.h"

namespace assay::reference {
namespace {

// gguf-py dequantises in float32, with one or two roundings (the goldens' README).
constexpr double kStated = 0x1p-21;

class Parts : public PartFinder {
 public:
  Parts(const TensorView* weight, const TensorView* scale) : weight_(weight), scale_(scale) {}
  const TensorView* Find(std::string_view suffix) const override {
    return suffix == "weight" ? weight_ : suffix == "scale" ? scale_ : nullptr;
  }
  std::string Name() const override { return "layer"; }

 private:
  const TensorView* weight_;
  const TensorView* scale_;
};

std::unique_ptr<Decoder> Open(const TensorView& weight, const TensorView* scale, int64_t rows,
                              int64_t columns) {
  auto decoder = OpenDecoder(Parts(&weight, scale), {}, rows, columns);
  if (!decoder) {
    ADD_FAILURE() << weight.name << ": " << decoder.error().message;
    std::abort();
  }
  return std::move(*decoder);
}

std::vector<double> AllRows(const Decoder& decoder) {
  std::vector<double> all(static_cast<size_t>(decoder.rows() * decoder.columns()));
  for (int64_t n = 0; n < decoder.rows(); ++n) {
    decoder.Row(n, all.data() + n * decoder.columns());
  }
  return all;
}

// Largest |difference| of any block over 2^-21 of the block's largest value.
double WorstOfBlocks(const std::vector<double>& found, const std::vector<double>& expected,
                     size_t block) {
  double worst = 0;
  for (size_t begin = 0; begin < expected.size(); begin += block) {
    double largest = 0, difference = 0;
    for (size_t i = begin; i < begin + block; ++i) {
      largest = std::max(largest, std::fabs(expected[i]));
      difference = std::max(difference, std::fabs(found[i] - expected[i]));
    }
    if (difference > 0) worst = std::max(worst, difference / (kStated * largest));
  }
  return worst;
}

struct Formats {
  std::unique_ptr<GgufFile> file;
  GoldenTensors expected;
};
Formats OpenFormats() {
  auto file = GgufFile::Open("goldens/formats/formats.gguf");
  auto expected = ReadGoldenTensors("goldens/formats/gguf-expected.safetensors");
  if (!file || !expected) {
    ADD_FAILURE() << (file.ok() ? expected.error().message : file.error().message);
    std::abort();
  }
  return {std::move(*file), std::move(*expected)};
}

TEST(GgufBlocks, EqualTheLibrarysOfEveryType) {
  const Formats formats = OpenFormats();
  std::set<DType> seen;
  for (const auto& [name, golden] : formats.expected) {
    if (name.starts_with("input.")) continue;
    const TensorView* view = formats.file->Find(name);
    ASSERT_NE(view, nullptr) << name;
    const int64_t rows = golden.value.rows(), columns = golden.value.columns();
    const auto decoder = Open(*view, nullptr, rows, columns);
    const auto block = static_cast<size_t>(ElementsOf(view->dtype).count());
    EXPECT_LE(WorstOfBlocks(AllRows(*decoder), golden.value.data, block), 1) << name;
    EXPECT_TRUE(decoder->CheckValues().ok()) << name;
    if (!IsBlock(view->dtype)) continue;
    EXPECT_TRUE(decoder->quantised());
    EXPECT_EQ(decoder->parts()[0].unit, "block");
    EXPECT_EQ(decoder->parts()[0].elements_per_column, static_cast<int64_t>(block));
    seen.insert(view->dtype);
  }
  EXPECT_EQ(seen.size(), 12u);
}

// A tensor's blocks changed one by one, decoded as if nothing had happened.
double CostOf(const Formats& formats, const std::string& name,
              void (*change)(std::byte* block, const std::byte* next)) {
  const TensorView* view = formats.file->Find(name);
  const Tensor& golden = formats.expected.at(name).value;
  std::vector<std::byte> bytes(view->bytes.begin(), view->bytes.end());
  const auto size = static_cast<size_t>(SizeOf(view->dtype).count());
  for (size_t at = 0; at < bytes.size(); at += size) {
    change(bytes.data() + at, view->bytes.data() + (at + size) % bytes.size());
  }
  TensorView changed = *view;
  changed.bytes = bytes;
  const auto decoder = Open(changed, nullptr, golden.rows(), golden.columns());
  return WorstOfBlocks(AllRows(*decoder), golden.data,
                       static_cast<size_t>(ElementsOf(view->dtype).count()));
}

constexpr double kFarAbove = 1e5;

TEST(GgufBlocks, MistakesStandFarAboveTheBound) {
  const Formats formats = OpenFormats();
  const auto same = [](std::byte*, const std::byte*) {};
  const auto swapped = [](std::byte* block, const std::byte*) {
    for (size_t i = 4; i < 20; ++i) block[i] = block[i] << 4 | block[i] >> 4;
  };
  const auto no_minimum = [](std::byte* block, const std::byte*) {
    block[2] = block[3] = std::byte{0};
  };
  const auto neighbours = [](std::byte* block, const std::byte* next) {
    std::memcpy(block, next, 4);
  };
  // As if bytes held neighbouring elements: codes of 0, 16, 1, 17, … taken for 0, 1, 2, 3, …
  const auto interleaved = [](std::byte* block, const std::byte*) {
    uint8_t codes[32];
    for (size_t j = 0; j < 16; ++j) {
      codes[2 * j] = std::to_integer<uint8_t>(block[4 + j] & std::byte{15});
      codes[2 * j + 1] = std::to_integer<uint8_t>(block[4 + j] >> 4);
    }
    for (size_t j = 0; j < 16; ++j) {
      block[4 + j] = static_cast<std::byte>(codes[j] | codes[j + 16] << 4);
    }
  };
  for (const char* name : {"raw.q4_1", "quantised.q4_1"}) {
    EXPECT_LE(CostOf(formats, name, same), 1) << name;
    EXPECT_GT(CostOf(formats, name, swapped), kFarAbove) << name;
    EXPECT_GT(CostOf(formats, name, no_minimum), kFarAbove) << name;
    EXPECT_GT(CostOf(formats, name, neighbours), kFarAbove) << name;
    EXPECT_GT(CostOf(formats, name, interleaved), kFarAbove) << name;
  }
}

TEST(GgufBlocks, MinimaAreTermsOfTheirOwn) {
  const Formats formats = OpenFormats();
  for (const char* name : {"raw.q4_1", "raw.q5_1", "raw.q2_k", "raw.q4_k", "raw.q5_k"}) {
    const Tensor& golden = formats.expected.at(name).value;
    const auto decoder = Open(*formats.file->Find(name), nullptr, golden.rows(), golden.columns());
    std::vector<double> w(static_cast<size_t>(golden.columns())), m = w;
    for (int64_t n = 0; n < golden.rows(); ++n) {
      decoder->Row(n, w.data());
      ASSERT_TRUE(decoder->Minima(n, m.data())) << name;
      // Constant over each 32 (or part of it), and w − m a small integer times one step.
      for (size_t begin = 0; begin < w.size(); begin += 16) {
        double step = 0;
        for (size_t k = begin; k < begin + 16; ++k) {
          EXPECT_EQ(m[k], m[begin]) << name;
          const double scaled = std::fabs(w[k] - m[k]);
          if (scaled > 0 && (step == 0 || scaled < step)) step = scaled;
        }
        for (size_t k = begin; k < begin + 16 && step > 0; ++k) {
          // The smallest code that occurs is 1 to 31 steps.
          bool whole = false;
          for (int code = 1; code < 32; ++code) {
            const double ratio = (w[k] - m[k]) / step * code;
            whole = whole || ratio == std::round(ratio);
          }
          EXPECT_TRUE(whole) << name << " row " << n << " element " << k;
        }
      }
    }
  }
  std::vector<double> none(160);
  const auto q4_0 = Open(*formats.file->Find("raw.q4_0"), nullptr, 3, 160);
  EXPECT_FALSE(q4_0->Minima(0, none.data()));
}

TEST(GgufBlocks, OtherShapesAndNanScalesAreErrorsThatNameThem) {
  const Formats formats = OpenFormats();
  const TensorView* view = formats.file->Find("raw.q8_0");
  const auto error = [&](int64_t rows, int64_t columns) {
    const auto decoder = OpenDecoder(Parts(view, nullptr), {}, rows, columns);
    return decoder.ok() ? std::string("none") : decoder.error().message;
  };
  EXPECT_EQ(error(3, 160), "none");
  EXPECT_NE(error(3, 161).find("blocks of 32"), std::string::npos) << error(3, 161);
  EXPECT_NE(error(4, 160).find("[4, 5]"), std::string::npos) << error(4, 160);

  const TensorView* mxfp4 = formats.file->Find("raw.mxfp4");
  std::vector<std::byte> bytes(mxfp4->bytes.begin(), mxfp4->bytes.end());
  bytes[17 * 7] = std::byte{255};  // row 1, block 2
  TensorView changed = *mxfp4;
  changed.bytes = bytes;
  const Status refused = Open(changed, nullptr, 3, 160)->CheckValues();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kRefused);
  EXPECT_NE(refused.error().message.find("row 1, block 2"), std::string::npos)
      << refused.error().message;
}

// Where each type has its scales, found here by what they do: a half that is NaN spoils a block.
TEST(GgufBlocks, ScalesThatAreNoNumbersAreRefusedAndOnlyThey) {
  const Formats formats = OpenFormats();
  for (const auto& [name, golden] : formats.expected) {
    const TensorView* view = formats.file->Find(name);
    if (!name.starts_with("raw.") || view->dtype == DType::kMxfp4Block) continue;
    const int64_t rows = golden.value.rows(), columns = golden.value.columns();
    const auto size = static_cast<size_t>(SizeOf(view->dtype).count());
    int refused = 0;
    for (size_t at = 0; at + 2 <= size; at += 2) {
      for (const uint16_t bits : {uint16_t{0x7e00}, uint16_t{0xfc00}}) {
        std::vector<std::byte> bytes(view->bytes.begin(), view->bytes.end());
        std::memcpy(bytes.data() + size + at, &bits, 2);
        TensorView changed = *view;
        changed.bytes = bytes;
        const auto decoder = Open(changed, nullptr, rows, columns);
        bool finite = true;
        for (const double value : AllRows(*decoder)) finite = finite && std::isfinite(value);
        const Status status = decoder->CheckValues();
        EXPECT_EQ(status.ok(), finite) << name << " byte " << at;
        if (status.ok()) continue;
        ++refused;
        EXPECT_EQ(status.error().kind, ErrorKind::kRefused);
        EXPECT_NE(status.error().message.find("block 1"), std::string::npos)
            << status.error().message;
      }
    }
    const bool minimum = view->dtype == DType::kQ4_1 || view->dtype == DType::kQ5_1 ||
                         view->dtype == DType::kQ2K || view->dtype == DType::kQ4K ||
                         view->dtype == DType::kQ5K;
    const int scales = view->dtype == DType::kNvfp4Block || !IsBlock(view->dtype) ? 0 : 1;
    EXPECT_EQ(refused, 2 * (scales + (minimum ? 1 : 0))) << name;
  }
}

TEST(Mxfp4, EqualsTheLibraryExactly) {
  const auto file = SafetensorsFile::Open("goldens/formats/deepseek-v4-mxfp4.safetensors");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto decoder = Open(*(*file)->Find("weight"), (*file)->Find("scale"), 24, 160);
  std::vector<double> expected(24 * 160);
  DecodeFloats(*(*file)->Find("expected"), 0, 24 * 160, expected.data());
  EXPECT_EQ(AllRows(*decoder), expected);
  EXPECT_TRUE(decoder->quantised());
  EXPECT_TRUE(decoder->CheckValues().ok());
  ASSERT_EQ(decoder->parts().size(), 2u);
  EXPECT_EQ(decoder->parts()[0].unit, "word");
  EXPECT_EQ(decoder->parts()[0].elements_per_column, 2);
  EXPECT_EQ(decoder->parts()[1].unit, "group");
  EXPECT_EQ(decoder->parts()[1].elements_per_column, 32);
}

MemorySource OneRow(uint8_t first_scale, uint8_t second_scale) {
  MemorySource source;
  std::vector<std::byte> codes(32);
  for (size_t i = 0; i < 32; ++i)
    codes[i] = static_cast<std::byte>((i % 8) * 2 | (i % 8 * 2 + 1) << 4);
  source.Put("w", DType::kI8, {1, 32}, codes);
  source.Put("s", DType::kF8E8M0, {1, 2},
             {static_cast<std::byte>(first_scale), static_cast<std::byte>(second_scale)});
  return source;
}

TEST(Mxfp4, LowNibblesAreEvenElementsAndScalesReachBothEnds) {
  const MemorySource source = OneRow(0, 254);
  const auto decoder = Open(*source.Find("w"), source.Find("s"), 1, 64);
  const std::vector<double> row = AllRows(*decoder);
  const double sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (size_t k = 0; k < 64; ++k) {
    const double size = sizes[k % 8] * std::ldexp(1.0, k < 32 ? -127 : 127);
    EXPECT_EQ(row[k], k % 16 < 8 ? size : -size) << k;
  }
  EXPECT_TRUE(std::signbit(row[8]));  // code 8 is −0
}

TEST(Mxfp4, ContradictionsAndNanScalesAreErrorsThatNameThem) {
  MemorySource source = OneRow(127, 255);
  const auto decoder = Open(*source.Find("w"), source.Find("s"), 1, 64);
  const Status refused = decoder->CheckValues();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kRefused);
  EXPECT_NE(refused.error().message.find("row 0, group 1"), std::string::npos);
  const auto error = [&](int64_t rows, int64_t columns) {
    const auto opened = OpenDecoder(Parts(source.Find("w"), source.Find("s")), {}, rows, columns);
    return opened.ok() ? std::string("none") : opened.error().message;
  };
  EXPECT_EQ(error(1, 64), "none");
  EXPECT_NE(error(1, 65).find("groups of 32"), std::string::npos);
  EXPECT_NE(error(1, 96).find("[1, 48]"), std::string::npos) << error(1, 96);
  source.Put("s", DType::kU8, {1, 2}, std::vector<std::byte>(2));
  EXPECT_NE(error(1, 64).find("F8_E8M0"), std::string::npos) << error(1, 64);
  // Two codes a byte are I8 there; U8 is nobody's.
  source = OneRow(127, 127);
  EXPECT_EQ(error(1, 64), "none");
  source.Put("w", DType::kU8, {1, 32}, std::vector<std::byte>(32));
  EXPECT_EQ(OpenDecoder(Parts(source.Find("w"), source.Find("s")), {}, 1, 64).error().kind,
            ErrorKind::kUnsupported);
  source = OneRow(127, 127);
  // An I8 weight without a scale is no method that is known.
  EXPECT_EQ(OpenDecoder(Parts(source.Find("w"), nullptr), {}, 1, 32).error().kind,
            ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace assay::reference
