// Weights of quantised checkpoints, of engines' own shards and of repacked layers that other
// people's code made, decoded and compared with values computed here from their bytes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "reference/methods/vectors.h"

namespace assay::reference {
namespace {

using testing_support::AllRows;
using testing_support::ConfigOf;
using testing_support::Differing;
using testing_support::MustOpen;
using testing_support::Parts;
using testing_support::SameDouble;
using testing_support::Slab;

std::unique_ptr<SafetensorsFile> MustOpenFile(const std::string& path) {
  auto file = SafetensorsFile::Open("goldens/" + path);
  if (!file) {
    ADD_FAILURE() << file.error().message;
    std::abort();
  }
  return std::move(*file);
}

std::vector<double> Table(const char* name) {
  const auto file = testing_support::OpenFile("float-tables");
  const TensorView& view = *file->Find(name);
  std::vector<double> values(static_cast<size_t>(view.shape[0]));
  DecodeFloats(view, 0, view.shape[0], values.data());
  return values;
}

unsigned Byte(const TensorView& view, int64_t at) {
  return std::to_integer<unsigned>(view.bytes[static_cast<size_t>(at)]);
}
double Bf16(const TensorView& view, int64_t at) {
  const uint32_t bits = (Byte(view, 2 * at) | Byte(view, 2 * at + 1) << 8) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
double Fp32(const TensorView& view, int64_t at) {
  float value;
  std::memcpy(&value, view.bytes.data() + 4 * at, sizeof value);
  return value;
}

void ExpectMatrix(const Decoder& decoder, const std::function<double(int64_t, int64_t)>& value,
                  const std::string& name) {
  std::vector<double> row(static_cast<size_t>(decoder.columns()));
  int64_t differing = 0;
  for (int64_t n = 0; n < decoder.rows(); ++n) {
    decoder.Row(n, row.data());
    for (int64_t k = 0; k < decoder.columns(); ++k) {
      differing += !SameDouble(row[static_cast<size_t>(k)], value(n, k));
    }
  }
  EXPECT_EQ(differing, 0) << name;
}

TEST(Quantised, EveryInt4WeightOfK2Mini) {
  const std::string suffix = "weight_packed";
  int seen = 0;
  const auto first = MustOpenFile("quantised/k2-mini-int4-g32/model-00001-of-00002.safetensors");
  const auto second = MustOpenFile("quantised/k2-mini-int4-g32/model-00002-of-00002.safetensors");
  const auto find = [&](const std::string& name) {
    const TensorView* view = first->Find(name);
    return view != nullptr ? view : second->Find(name);
  };
  std::vector<std::string> names = first->Names();
  for (const std::string& name : second->Names()) names.push_back(name);
  for (const std::string& name : names) {
    if (!name.ends_with(suffix)) continue;
    const std::string module = name.substr(0, name.size() - suffix.size());
    Parts parts;
    for (const char* part : {"weight_packed", "weight_scale", "weight_shape"}) {
      parts.Set(part, *find(module + part));
    }
    const TensorView &packed = parts.At("weight_packed"), &scale = parts.At("weight_scale");
    const int64_t rows = packed.shape[0], columns = packed.shape[1] * 8;
    const auto decoder = MustOpen(parts, ConfigOf("ct-int4-g32"), rows, columns);
    EXPECT_EQ(decoder->method(), "ct-int4-g32");
    // A little-endian word's nibbles are its bytes' nibbles, low ones first.
    ExpectMatrix(
        *decoder,
        [&](int64_t n, int64_t k) {
          const unsigned byte = Byte(packed, (n * columns + k) / 2);
          const int code = static_cast<int>(k % 2 == 0 ? byte % 16 : byte / 16) - 8;
          return code * Bf16(scale, (n * columns + k) / 32);
        },
        module);
    if (module == "model.layers.2.mlp.experts.0.down_proj.") {
      // By hand: the first word is 0x68db9786, the first scale 0x3c5c.
      std::vector<double> row(static_cast<size_t>(columns));
      decoder->Row(0, row.data());
      const double step = 0.013427734375;
      const int codes[] = {-2, 0, -1, 1, 3, 5, 0, -2};
      for (size_t k = 0; k < 8; ++k) EXPECT_EQ(row[k], codes[k] * step);
    }
    ++seen;
  }
  EXPECT_EQ(seen, 2 * 6 * 3);
}

TEST(Quantised, EveryFp8WeightOfQwen3MoeMini) {
  const std::string suffix = "weight_scale_inv";
  const auto file = MustOpenFile("quantised/qwen3moe-mini-fp8/model.safetensors");
  const std::vector<double> e4m3 = Table("e4m3fn");
  int seen = 0, partial = 0;
  for (const std::string& name : file->Names()) {
    if (!name.ends_with(suffix)) continue;
    const std::string module = name.substr(0, name.size() - suffix.size());
    const Parts parts(*file, module);
    const TensorView &weight = *parts.Find("weight"), &scale = *parts.Find(suffix);
    const int64_t rows = weight.shape[0], columns = weight.shape[1];
    const auto decoder = MustOpen(parts, ConfigOf("deepseek-fp8-block32"), rows, columns);
    ExpectMatrix(
        *decoder,
        [&](int64_t n, int64_t k) {
          return e4m3[Byte(weight, n * columns + k)] *
                 Fp32(scale, n / 32 * scale.shape[1] + k / 32);
        },
        module);
    partial += rows % 32 != 0 || columns % 32 != 0;
    ++seen;
  }
  EXPECT_EQ(seen, 3 * (4 + 7 * 3));
  EXPECT_EQ(partial, seen);  // H is 80
  const Parts parts(*file, "model.layers.0.mlp.experts.0.down_proj.");
  std::vector<double> row(192);
  MustOpen(parts, ConfigOf("deepseek-fp8-block32"), 80, 192)->Row(0, row.data());
  EXPECT_EQ(row[0], -18 * double{0.0011509486939758062f});  // by hand: code 0xd9
}

TEST(Quantised, EveryMxfp4ExpertOfGptOssMini) {
  const std::string suffix = "_blocks";
  const auto file = MustOpenFile("quantised/gptoss-mini-mxfp4/model.safetensors");
  const std::vector<double> e2m1 = Table("e2m1");
  int seen = 0;
  for (const std::string& name : file->Names()) {
    if (!name.ends_with(suffix)) continue;
    const std::string module = name.substr(0, name.size() - suffix.size());
    const TensorView &blocks = *file->Find(name), &scales = *file->Find(module + "_scales");
    const int64_t rows = blocks.shape[1], columns = blocks.shape[2] * 32;
    for (int64_t e = 0; e < blocks.shape[0]; ++e) {
      Parts parts;
      parts.Set("blocks", Slab(blocks, e));
      parts.Set("scales", Slab(scales, e));
      const auto value = [&](int64_t n, int64_t k) {
        const int64_t at = (e * rows + n) * columns + k;
        const unsigned byte = Byte(blocks, at / 2);
        return e2m1[k % 2 == 0 ? byte % 16 : byte / 16] *
               std::ldexp(1.0, static_cast<int>(Byte(scales, at / 32)) - 127);
      };
      ExpectMatrix(*MustOpen(parts, ConfigOf("gptoss-mxfp4"), rows, columns), value, name);
      // As two dimensions too.
      parts.At("blocks").shape = {rows, columns / 2};
      const auto decoder = MustOpen(parts, ConfigOf("gptoss-mxfp4"), rows, columns);
      ExpectMatrix(*decoder, value, name);
      EXPECT_EQ(decoder->method(), "gptoss-mxfp4");
      ++seen;
      if (module != "model.layers.0.mlp.experts.down_proj" || e != 0) continue;
      // By hand: bytes 44 a4, scale 0x79.
      std::vector<double> row(static_cast<size_t>(columns));
      decoder->Row(0, row.data());
      EXPECT_EQ((std::vector<double>(row.begin(), row.begin() + 4)),
                (std::vector<double>{2. / 64, 2. / 64, 2. / 64, -1. / 64}));
    }
  }
  EXPECT_EQ(seen, 3 * 2 * 5);
}

// One layer a format as an engine's ranks hold it after loading: o and down, cut along K.
TEST(EngineShards, ColumnsOfARankAreThoseOfTheWhole) {
  const std::pair<const char*, const char*> formats[] = {
      {"awq-int4-g32", "awq-int4-g32-asym"},    {"ct-int4-channel", "ct-int4-channel"},
      {"ct-int4-g32-asym", "ct-int4-g32-asym"}, {"ct-int4-g32-sym", "ct-int4-g32"},
      {"ct-w8a8-channel", "ct-w8a8-channel"},   {"fp8-block16", "deepseek-fp8-block16"},
      {"fp8-block32", "deepseek-fp8-block32"},  {"gptq-int4-g32", "gptq-int4-g32"}};
  for (const auto& [folder, id] : formats) {
    const std::string path = std::string("shards/linear-") + folder;
    const auto file = MustOpenFile(path + "/checkpoint.safetensors");
    const auto shards = MustOpenFile(path + "/tp2.safetensors");
    const std::pair<const char*, int64_t> layers[] = {{"o_proj.", 128}, {"down_proj.", 256}};
    for (const auto& [layer, columns] : layers) {
      constexpr int64_t kRows = 128;
      const Parts parts_of_whole(*file, layer);
      const auto whole = MustOpen(parts_of_whole, ConfigOf(id), kRows, columns);
      EXPECT_EQ(whole->method(), id);
      const std::vector<double> all = AllRows(*whole);
      std::vector<double> ranks[2];
      for (int rank = 0; rank < 2; ++rank) {
        Parts parts(*shards, fmt::format("rank{}.{}", rank, layer));
        parts.Remove("weight_shape");  // of the whole
        const auto decoder = MustOpen(parts, ConfigOf(id), kRows, columns / 2, whole.get());
        ranks[rank] = AllRows(*decoder);
      }
      for (int rank = 0; rank < 2; ++rank) {
        std::vector<double> expected;
        for (int64_t n = 0; n < kRows; ++n) {
          const auto from = all.begin() + n * columns + rank * columns / 2;
          expected.insert(expected.end(), from, from + columns / 2);
        }
        EXPECT_EQ(Differing(ranks[rank], expected), 0) << folder << " " << layer << rank;
        EXPECT_GT(Differing(ranks[1 - rank], expected), kRows * columns / 4) << folder;
      }
    }
  }
}

// vllm-ascend makes ModelSlim's bytes from one int4 a byte, then transposes them: two rows a byte,
// signed codes, the low nibble the even row.
TEST(Ascend, W4A8BytesMadeFromInt4AreReadBack) {
  const auto file = MustOpenFile("layouts/ascend-w4a8-from-compressed-tensors.safetensors");
  for (const char* name : {"w13", "w2"}) {
    const std::string in = std::string("in.") + name, out = std::string("out.") + name;
    const TensorView &codes = *file->Find(in + "_weight"), &words = *file->Find(out + "_weight");
    const TensorView& scales = *file->Find(in + "_weight_scale");
    const int64_t rows = codes.shape[1], columns = codes.shape[2];
    for (int64_t e = 0; e < codes.shape[0]; ++e) {
      const TensorView operator_bytes = Slab(words, e), int4 = Slab(codes, e);
      std::vector<std::byte> bytes;  // [K, N/2] back to [N/2, K]
      for (int64_t pair = 0; pair < rows / 2; ++pair) {
        for (int64_t k = 0; k < columns; ++k) {
          bytes.push_back(operator_bytes.bytes[static_cast<size_t>(k * rows / 2 + pair)]);
        }
      }
      Parts parts;
      parts.Put("weight", DType::kI8, {rows / 2, columns}, bytes);
      parts.Set("weight_scale", Slab(scales, e));
      const auto value = [&](int64_t n, int64_t k) {
        const auto code = static_cast<int8_t>(Byte(int4, n * columns + k));
        return code * Bf16(parts.At("weight_scale"), n);
      };
      const auto decoder = MustOpen(parts, ConfigOf("modelslim-w4a8"), rows, columns);
      EXPECT_EQ(decoder->method(), "modelslim-w4a8");
      ExpectMatrix(*decoder, value, name);
      // The other nibble first is another matrix.
      const std::vector<double> right = AllRows(*decoder);
      for (std::byte& byte : parts.Own("weight")) byte = byte << 4 | byte >> 4;
      const auto swapped = MustOpen(parts, ConfigOf("modelslim-w4a8"), rows, columns);
      EXPECT_GT(Differing(AllRows(*swapped), right), rows * columns / 2);
    }
  }
}

TEST(Ascend, ModelSlimsOwnW4A8) {
  const auto file = MustOpenFile("layouts/modelslim-w4a8.safetensors");
  for (const char* name : {"w13", "w2"}) {
    const std::string in = std::string("in.") + name + "_";
    const TensorView& words = *file->Find(std::string("out.") + name + "_weight");
    const int64_t rows = 2 * file->Find(in + "weight")->shape[1], columns = words.shape[1];
    for (int64_t e = 0; e < words.shape[0]; ++e) {
      Parts parts;
      for (const char* suffix : {"weight", "weight_scale", "scale_bias"}) {
        parts.Set(suffix, Slab(*file->Find(in + suffix), e));
      }
      const auto decoder = MustOpen(parts, ConfigOf("modelslim-w4a8"), rows, columns);
      // The operator's words: eight codes of the output axis, the first in the lowest bits.
      ExpectMatrix(
          *decoder,
          [&](int64_t n, int64_t k) {
            const int64_t at = (e * columns + k) * rows + n;
            const int nibble = static_cast<int>(Byte(words, at / 2) >> (at % 2 * 4) & 15u);
            return ((nibble ^ 8) - 8) * Fp32(parts.At("weight_scale"), n);
          },
          name);
      EXPECT_EQ(decoder->parts().back().suffix, "scale_bias");
      EXPECT_EQ(decoder->parts().back().whole_row, std::string(name) == "w13");
    }
  }
}

// Eight bits a code in GPTQ's words, as vLLM packs them, symmetric.
TEST(Gptq, EightBitCodesAreTheLibrarys) {
  const auto file = MustOpenFile("layouts/marlin-int8-g128.safetensors");
  constexpr int64_t kRows = 128, kColumns = 256;
  Parts parts;
  parts.Set("qweight", *file->Find("qweight"));
  parts.Set("scales", *file->Find("scales"));
  parts.Put("qzeros", DType::kI32, {2, kRows / 4}, std::vector<uint32_t>(64, 0x7f7f7f7fu));
  const TensorView& codes = *file->Find("codes");  // [K, N]
  const auto decoder = MustOpen(parts, ConfigOf("gptq-int8-g128"), kRows, kColumns);
  EXPECT_EQ(decoder->method(), "gptq-int8-g128");
  ExpectMatrix(
      *decoder,
      [&](int64_t n, int64_t k) {
        double scale;
        DecodeFloats(parts.At("scales"), k / 128 * kRows + n, 1, &scale);
        return (static_cast<int>(Byte(codes, k * kRows + n)) - 128) * scale;
      },
      "int8");
}

}  // namespace
}  // namespace assay::reference
