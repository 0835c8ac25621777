#include "reference/methods/made.h"

#include <cmath>
#include <functional>
#include <numeric>

#include "harness/checkpoint/safetensors.h"
#include "reference/test_support.h"

namespace assay::reference::testing_support {
namespace {

// A multiple of every group, word and run of words, and of no block of 128.
constexpr int64_t kRows = 160, kColumns = 320;
constexpr int64_t kColumnsOfLargeGroups = 768;

// The layer before it is packed: what is stored as numbers.
struct Layer {
  Scheme scheme;
  int64_t rows = kRows, columns = kColumns;
  int64_t down = 1, across = 1;  // rows and columns of one scale
  std::vector<int> codes;        // [rows, columns]; of floating methods bit patterns
  std::vector<int64_t> group_of;
  std::vector<float> scales;  // [row groups, groups]; all values are bf16, fp16 and fp32 alike
  std::vector<int> zeros;
  uint64_t seed = 0;

  int64_t groups() const { return (columns + across - 1) / across; }
  int64_t row_groups() const { return (rows + down - 1) / down; }
  int64_t ScaleIndex(int64_t n, int64_t k) const {
    return n / down * groups() + group_of[static_cast<size_t>(k)];
  }
  int Code(int64_t n, int64_t k) const { return codes[static_cast<size_t>(n * columns + k)]; }
  int Pick(uint64_t what, int64_t i, int least, int most) const {
    const uint64_t mixed = Mix(seed ^ Mix(what) ^ static_cast<uint64_t>(i));
    return least + static_cast<int>(mixed % static_cast<uint64_t>(most - least + 1));
  }
};

Layer Draw(const std::string& id) {
  Layer layer;
  layer.scheme = *ParseScheme(id);
  const Scheme& scheme = layer.scheme;
  for (const char c : id) layer.seed = Mix(layer.seed ^ static_cast<uint64_t>(c));
  if (scheme.group > 64) layer.columns = kColumnsOfLargeGroups;
  layer.across = layer.columns;
  if (scheme.granularity == Granularity::kTensor) layer.down = layer.rows;
  if (scheme.granularity == Granularity::kGroup && scheme.group > 0) layer.across = scheme.group;
  if (scheme.granularity == Granularity::kBlock) {
    layer.down = scheme.block_n;
    layer.across = scheme.block_k;
  }
  const int levels = 1 << std::max(scheme.bits, 4);
  for (int64_t i = 0; i < layer.rows * layer.columns; ++i) {
    layer.codes.push_back(layer.Pick(1, i, 0, levels - 1) & ((1 << scheme.bits) - 1));
  }
  for (int64_t i = 0; i < layer.row_groups() * layer.groups(); ++i) {
    const float size = std::ldexp(1.0f, layer.Pick(2, i, -6, 0));
    layer.scales.push_back(size * (1.0f + static_cast<float>(layer.Pick(3, i, 0, 127)) / 128.0f));
    layer.zeros.push_back(layer.Pick(4, i, 0, (1 << scheme.bits) - 1));
  }
  for (int64_t k = 0; k < layer.columns; ++k) layer.group_of.push_back(k / layer.across);
  for (int64_t k = layer.columns - 1; scheme.actorder && k > 0; --k) {
    std::swap(layer.group_of[static_cast<size_t>(k)],
              layer.group_of[static_cast<size_t>(layer.Pick(5, k, 0, static_cast<int>(k)))]);
  }
  return layer;
}

// value(n, k) for the whole matrix.
std::vector<double> Matrix(const Layer& layer,
                           const std::function<double(int64_t, int64_t)>& value) {
  std::vector<double> matrix;
  for (int64_t n = 0; n < layer.rows; ++n) {
    for (int64_t k = 0; k < layer.columns; ++k) matrix.push_back(value(n, k));
  }
  return matrix;
}

// Codes one after the other, least significant bit first.
std::vector<uint32_t> Pack(const std::vector<int>& codes, int bits, bool old_packing) {
  std::vector<bool> stream;
  for (const int code : codes) {
    if (old_packing && static_cast<int>(stream.size() % 32) + bits > 32) {
      while (stream.size() % 32 != 0) stream.push_back(false);
    }
    for (int bit = 0; bit < bits; ++bit) stream.push_back((code >> bit & 1) != 0);
  }
  std::vector<uint32_t> words((stream.size() + 31) / 32);
  for (size_t i = 0; i < stream.size(); ++i) {
    if (stream[i]) words[i / 32] |= 1u << (i % 32);
  }
  return words;
}

std::vector<int32_t> Order(const Layer& layer) {
  return {layer.group_of.begin(), layer.group_of.end()};
}

// [a, b] as [b, a].
template <class T>
std::vector<T> Transpose(const std::vector<T>& grid, int64_t rows, int64_t columns) {
  std::vector<T> out;
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) out.push_back(grid[static_cast<size_t>(r * columns + c)]);
  }
  return out;
}

// Runs of `lines` packed one by one: line(i) gives the codes of one.
std::vector<uint32_t> PackLines(int64_t lines, int bits, bool old_packing,
                                const std::function<std::vector<int>(int64_t)>& line) {
  std::vector<uint32_t> all;
  for (int64_t i = 0; i < lines; ++i) {
    const std::vector<uint32_t> words = Pack(line(i), bits, old_packing);
    all.insert(all.end(), words.begin(), words.end());
  }
  return all;
}

void CtInt(const Layer& layer, Made* made) {
  const Scheme& s = layer.scheme;
  const int offset = 1 << (s.bits - 1);
  const auto packed = PackLines(layer.rows, s.bits, s.old_packing, [&](int64_t n) {
    std::vector<int> row;
    for (int64_t k = 0; k < layer.columns; ++k) row.push_back(layer.Code(n, k));
    return row;
  });
  made->parts.Put("weight_packed", DType::kI32,
                  {layer.rows, static_cast<int64_t>(packed.size()) / layer.rows}, packed);
  made->parts.Put("weight_scale", DType::kF32, {layer.rows, layer.groups()}, layer.scales);
  made->parts.Put("weight_shape", DType::kI64, {2},
                  std::vector<int64_t>{layer.rows, layer.columns});
  if (s.asymmetric) {
    const auto zeros = PackLines(layer.groups(), s.bits, s.old_packing, [&](int64_t g) {
      std::vector<int> column;
      for (int64_t n = 0; n < layer.rows; ++n) {
        column.push_back(layer.zeros[static_cast<size_t>(n * layer.groups() + g)]);
      }
      return column;
    });
    const int64_t words = static_cast<int64_t>(zeros.size()) / layer.groups();
    made->parts.Put("weight_zero_point", DType::kI32, {words, layer.groups()},
                    Transpose(zeros, layer.groups(), words));
  }
  if (s.actorder) made->parts.Put("weight_g_idx", DType::kI32, {layer.columns}, Order(layer));
  made->expected = Matrix(layer, [&](int64_t n, int64_t k) {
    const auto at = static_cast<size_t>(layer.ScaleIndex(n, k));
    const int zero = s.asymmetric ? layer.zeros[at] - offset : 0;
    return double{layer.scales[at]} * (layer.Code(n, k) - offset - zero);
  });
}

void Gptq(const Layer& layer, Made* made) {
  const Scheme& s = layer.scheme;
  const int symmetric = 1 << (s.bits - 1);
  // Logical zeros: what is stored, and 1 more in v1.
  const auto zero = [&](int64_t g, int64_t n) {
    const int stored = layer.zeros[static_cast<size_t>(n * layer.groups() + g)];
    return s.asymmetric ? stored + (s.v2 ? 0 : 1) : symmetric;
  };
  const auto words = PackLines(layer.rows, s.bits, false, [&](int64_t n) {
    std::vector<int> row;
    for (int64_t k = 0; k < layer.columns; ++k) row.push_back(layer.Code(n, k));
    return row;
  });
  const int64_t down = static_cast<int64_t>(words.size()) / layer.rows;
  made->parts.Put("qweight", DType::kI32, {down, layer.rows}, Transpose(words, layer.rows, down));
  const auto zeros = PackLines(layer.groups(), s.bits, false, [&](int64_t g) {
    std::vector<int> row;
    for (int64_t n = 0; n < layer.rows; ++n) row.push_back(zero(g, n) - (s.v2 ? 0 : 1));
    return row;
  });
  made->parts.Put("qzeros", DType::kI32,
                  {layer.groups(), static_cast<int64_t>(zeros.size()) / layer.groups()}, zeros);
  made->parts.Put("scales", DType::kF32, {layer.groups(), layer.rows},
                  Transpose(layer.scales, layer.rows, layer.groups()));
  made->parts.Put("g_idx", DType::kI32, {layer.columns}, Order(layer));
  made->expected = Matrix(layer, [&](int64_t n, int64_t k) {
    const int64_t g = layer.group_of[static_cast<size_t>(k)];
    return double{layer.scales[static_cast<size_t>(n * layer.groups() + g)]} *
           (layer.Code(n, k) - zero(g, n));
  });
}

void Awq(const Layer& layer, Made* made) {
  constexpr int64_t kColumnAt[] = {0, 2, 4, 6, 1, 3, 5, 7};
  constexpr int kMiddle = 8;
  const bool asymmetric = layer.scheme.asymmetric;
  const auto zero = [&](int64_t g, int64_t n) {
    return asymmetric ? layer.zeros[static_cast<size_t>(n * layer.groups() + g)] : kMiddle;
  };
  const auto ordered = [&](int64_t lines, const std::function<int(int64_t, int64_t)>& code) {
    return PackLines(lines, 4, false, [&](int64_t i) {
      std::vector<int> line;
      for (int64_t j = 0; j < layer.rows; ++j) {
        line.push_back(code(i, j / 8 * 8 + kColumnAt[j % 8]));
      }
      return line;
    });
  };
  made->parts.Put("qweight", DType::kI32, {layer.columns, layer.rows / 8},
                  ordered(layer.columns, [&](int64_t k, int64_t n) { return layer.Code(n, k); }));
  made->parts.Put("qzeros", DType::kI32, {layer.groups(), layer.rows / 8},
                  ordered(layer.groups(), zero));
  made->parts.Put("scales", DType::kF32, {layer.groups(), layer.rows},
                  Transpose(layer.scales, layer.rows, layer.groups()));
  made->expected = Matrix(layer, [&](int64_t n, int64_t k) {
    const auto at = static_cast<size_t>(layer.ScaleIndex(n, k));
    return double{layer.scales[at]} * (layer.Code(n, k) - zero(k / layer.across, n));
  });
}

// The values of all codes, as somebody else's table has them.
std::vector<double> Table(const char* name) {
  const auto file = SafetensorsFile::Open("goldens/formats/float-tables.safetensors");
  if (!file) {
    ADD_FAILURE() << file.error().message;
    std::abort();
  }
  const TensorView& view = *(*file)->Find(name);
  std::vector<double> values(view.bytes.size() / 8);
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}

std::vector<uint8_t> Bytes(const std::vector<int>& codes) { return {codes.begin(), codes.end()}; }

// int8 and FP8: one code a byte.
void EightBit(const Layer& layer, Made* made) {
  const Scheme& s = layer.scheme;
  const bool integers = s.family == MethodFamily::kCtW8a8;
  const bool mx = s.family == MethodFamily::kCtMxfp8;
  const std::vector<double> table = Table(s.fnuz ? "e4m3fnuz" : "e4m3fn");
  made->parts.Put("weight", integers ? DType::kI8 : DType::kF8E4M3, {layer.rows, layer.columns},
                  Bytes(layer.codes));
  std::vector<int64_t> shape = {layer.row_groups(), layer.groups()};
  if (s.granularity == Granularity::kTensor) shape = {1};
  std::vector<uint8_t> exponents;
  for (const int zero : layer.zeros) exponents.push_back(static_cast<uint8_t>(100 + zero % 50));
  if (mx) {
    made->parts.Put("weight_scale", DType::kU8, shape, exponents);
  } else {
    const bool inverse = s.family == MethodFamily::kDeepseekFp8;
    made->parts.Put(inverse ? "weight_scale_inv" : "weight_scale", DType::kF32, shape,
                    layer.scales);
  }
  if (s.asymmetric) made->parts.Put("weight_zero_point", DType::kI8, shape, Bytes(layer.zeros));
  made->expected = Matrix(layer, [&](int64_t n, int64_t k) {
    const auto at = static_cast<size_t>(layer.ScaleIndex(n, k));
    const int code = layer.Code(n, k);
    const double value =
        integers ? (code < 128 ? code : code - 256) : table[static_cast<size_t>(code)];
    const int zero = !s.asymmetric           ? 0
                     : layer.zeros[at] < 128 ? layer.zeros[at]
                                             : layer.zeros[at] - 256;
    return (value - zero) * (mx ? std::ldexp(1.0, exponents[at] - 127) : double{layer.scales[at]});
  });
}

// E2M1: two codes a byte, low nibble first.
void FourBitFloats(const Layer& layer, Made* made) {
  const MethodFamily family = layer.scheme.family;
  const std::vector<double> e2m1 = Table("e2m1"), e4m3 = Table("e4m3fn");
  std::vector<uint8_t> bytes, scales;
  for (size_t i = 0; i < layer.codes.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(layer.codes[i] | layer.codes[i + 1] << 4));
  }
  const bool nv = family == MethodFamily::kCtNvfp4 || family == MethodFamily::kModelOptNvfp4;
  for (size_t i = 0; i < layer.scales.size(); ++i) {
    const int byte = layer.Pick(6, static_cast<int64_t>(i), nv ? 1 : 0, nv ? 126 : 254);
    scales.push_back(static_cast<uint8_t>(byte));
  }
  const bool packed = family == MethodFamily::kCtMxfp4 || family == MethodFamily::kCtNvfp4;
  const bool oss = family == MethodFamily::kGptOssMxfp4;
  const bool v4 = family == MethodFamily::kDeepseekV4Mxfp4;
  std::vector<int64_t> shape = {layer.rows, layer.columns / 2};
  if (oss) shape = {layer.rows, layer.columns / 32, 16};
  made->parts.Put(packed ? "weight_packed"
                  : oss  ? "blocks"
                         : "weight",
                  v4 ? DType::kI8 : DType::kU8, shape, bytes);
  const DType scale_type = nv ? DType::kF8E4M3 : v4 ? DType::kF8E8M0 : DType::kU8;
  made->parts.Put(oss  ? "scales"
                  : v4 ? "scale"
                       : "weight_scale",
                  scale_type, {layer.rows, layer.groups()}, scales);
  constexpr float kGlobal = 0.40625f;
  if (family == MethodFamily::kCtNvfp4) {
    made->parts.Put("weight_global_scale", DType::kF32, {1}, std::vector<float>{kGlobal});
    made->parts.Put("input_global_scale", DType::kF32, {1}, std::vector<float>{3});
  }
  if (family == MethodFamily::kModelOptNvfp4) {
    made->parts.Put("weight_scale_2", DType::kF32, {}, std::vector<float>{kGlobal});
    made->parts.Put("input_scale", DType::kF32, {}, std::vector<float>{3});
  }
  made->expected = Matrix(layer, [&](int64_t n, int64_t k) {
    const double code = e2m1[static_cast<size_t>(layer.Code(n, k))];
    const int scale = scales[static_cast<size_t>(layer.ScaleIndex(n, k))];
    if (!nv) return code * std::ldexp(1.0, scale - 127);
    const double group = e4m3[static_cast<size_t>(scale)];
    return code * (family == MethodFamily::kCtNvfp4 ? group / kGlobal : group * kGlobal);
  });
}

void ModelSlim(const Layer& layer, Made* made) {
  const Scheme& s = layer.scheme;
  const bool nibbles = s.family == MethodFamily::kModelSlimW4a8;
  const bool second = s.granularity == Granularity::kGroup;
  const int limit = 1 << (s.bits - 1);
  std::vector<uint8_t> bytes;
  for (int64_t n = 0; n < layer.rows; n += nibbles ? 2 : 1) {
    for (int64_t k = 0; k < layer.columns; ++k) {
      const int high = nibbles ? layer.Code(n + 1, k) << 4 : 0;
      bytes.push_back(static_cast<uint8_t>(layer.Code(n, k) | high));
    }
  }
  const int64_t stored_rows = nibbles ? layer.rows / 2 : layer.rows;
  made->parts.Put("weight", DType::kI8, {stored_rows, layer.columns}, bytes);
  std::vector<float> scale, offset, inner_offset;
  for (int64_t n = 0; n < layer.rows; ++n) {
    scale.push_back(static_cast<float>(layer.Pick(7, n, 1, 255)) / 256);
    offset.push_back(static_cast<float>(layer.Pick(8, n, -3, 3)));
  }
  made->parts.Put("weight_scale", DType::kF32, {layer.rows, 1}, scale);
  made->parts.Put("weight_offset", DType::kF32, {layer.rows, 1}, offset);
  if (second) {
    for (const int zero : layer.zeros) inner_offset.push_back(static_cast<float>(zero - 8));
    const std::vector<int64_t> shape = {layer.rows, layer.groups()};
    made->parts.Put("weight_scale_second", DType::kF32, shape, layer.scales);
    made->parts.Put("weight_offset_second", DType::kF32, shape, inner_offset);
  }
  if (nibbles) {
    // One value a row, or one for each sixteenth of K.
    const int64_t count = second ? 1 : 16;
    made->parts.Put("scale_bias", DType::kF32, {layer.rows, count},
                    std::vector<float>(static_cast<size_t>(layer.rows * count), 1));
  } else {
    made->parts.Put("input_scale", DType::kF32, {1}, std::vector<float>{0.5f});
    made->parts.Put("input_offset", DType::kI8, {1}, std::vector<int8_t>{-3});
    made->parts.Put("deq_scale", DType::kF32, {layer.rows}, scale);
    made->parts.Put("quant_bias", DType::kI32, {layer.rows},
                    std::vector<int32_t>(static_cast<size_t>(layer.rows), 5));
  }
  made->expected = Matrix(layer, [&](int64_t n, int64_t k) {
    const int code = layer.Code(n, k);
    double value = code < limit ? code : code - 2 * limit;
    if (second) {
      const auto at = static_cast<size_t>(layer.ScaleIndex(n, k));
      value = (value - double{inner_offset[at]}) * double{layer.scales[at]};
    }
    const auto row = static_cast<size_t>(n);
    return (value - double{offset[row]}) * double{scale[row]};
  });
}

}  // namespace

Made MakeLayer(const std::string& id) {
  const Layer layer = Draw(id);
  Made made;
  made.config = ConfigOf(id);
  made.rows = layer.rows;
  made.columns = layer.columns;
  switch (layer.scheme.family) {
    case MethodFamily::kCtInt:
      CtInt(layer, &made);
      break;
    case MethodFamily::kGptq:
      Gptq(layer, &made);
      break;
    case MethodFamily::kAwq:
      Awq(layer, &made);
      break;
    case MethodFamily::kCtW8a8:
    case MethodFamily::kCtFp8:
    case MethodFamily::kCtMxfp8:
    case MethodFamily::kDeepseekFp8:
      EightBit(layer, &made);
      break;
    case MethodFamily::kModelSlimW8a8:
    case MethodFamily::kModelSlimW4a8:
      ModelSlim(layer, &made);
      break;
    case MethodFamily::kCtMxfp4:
    case MethodFamily::kCtNvfp4:
    case MethodFamily::kGptOssMxfp4:
    case MethodFamily::kDeepseekV4Mxfp4:
    case MethodFamily::kQuarkMxfp4:
    case MethodFamily::kModelOptNvfp4:
      FourBitFloats(layer, &made);
      break;
    case MethodFamily::kDense:
    case MethodFamily::kGguf:
      ADD_FAILURE() << id << " is made elsewhere";
  }
  return made;
}

std::vector<std::string> MadeIds() {
  std::vector<std::string> ids;
  for (const std::string& id : KnownSchemes()) {
    const MethodFamily family = ParseScheme(id)->family;
    if (family != MethodFamily::kDense && family != MethodFamily::kGguf) ids.push_back(id);
  }
  return ids;
}

}  // namespace assay::reference::testing_support
