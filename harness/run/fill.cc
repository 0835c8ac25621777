#include "harness/run/fill.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "harness/abi/contract.h"

namespace assay::run {
namespace {

// The log-normal spread of channels and scales, the share of outlier channels and their factor:
// numerics.md §2.
constexpr double kSigma = 0.6;
constexpr int64_t kOutlierEvery = 61;
constexpr double kOutlierFactor = 12.0;
constexpr int64_t kGroupOfOne = 32;
constexpr uint64_t kGroupsOfOneEvery = 8;

uint64_t Mix(uint64_t x) {  // splitmix64's finaliser
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

template <class T>
void Append(std::vector<std::byte>* out, T value) {
  const auto* begin = reinterpret_cast<const std::byte*>(&value);
  out->insert(out->end(), begin, begin + sizeof(T));
}

// Integers in [-limit, limit], never all zero in a row of more than a few.
int64_t DrawInteger(int64_t seed, uint64_t hash, int64_t index, int64_t limit) {
  return static_cast<int64_t>(Draw(seed, hash, index) % static_cast<uint64_t>(2 * limit + 1)) -
         limit;
}

double ActivationValue(Fill fill, int64_t seed, uint64_t hash, int64_t row, int64_t column,
                       int64_t columns) {
  const int64_t index = row * columns + column;
  const uint64_t channels = Mix(hash ^ 0x6368616e6e656c73u);
  const double normal = DrawNormal(seed, hash, index);
  const double channel = std::exp(kSigma * DrawNormal(seed, channels, column));
  const bool outlier = Draw(seed, Mix(channels), column) % kOutlierEvery == 0;
  switch (fill) {
    case Fill::kExact:
      return static_cast<double>(DrawInteger(seed, hash, index, 8));
    case Fill::kNormal:
      return normal;
    case Fill::kExtreme: {
      // Now and then a group of one value: sums of products of one sign, as large as they get.
      const int64_t groups = (columns + kGroupOfOne - 1) / kGroupOfOne;
      const uint64_t group = Draw(seed, Mix(channels), row * groups + column / kGroupOfOne);
      if (group % kGroupsOfOneEvery == 0) return group & 0x100 ? -1.5 : 1.5;
      // Both signs of values eight binades apart, and zeros.
      const int exponent = static_cast<int>(Draw(seed, hash, index) % 17) - 8;
      const double sign = Draw(seed, Mix(hash), index) & 1 ? -1.0 : 1.0;
      return exponent == -8 ? 0.0 : sign * std::ldexp(1.0 + std::abs(normal) / 8, exponent);
    }
    case Fill::kLognormal:
    case Fill::kReal:
      return normal * channel * (outlier ? kOutlierFactor : 1.0);
  }
  return 0;
}

enum class Role { kMatrix, kScale, kWords, kVector, kBias, kCopy };

Role RoleOf(const TensorView& tensor) {
  const auto ends = [&](std::string_view suffix) { return tensor.name.ends_with(suffix); };
  if (ends("weight_shape")) return Role::kCopy;
  const bool words = tensor.dtype == DType::kI32;
  if (ends("weight_packed") || (words && (ends("qweight") || ends("qzeros")))) return Role::kWords;
  if (ends("weight_scale")) return Role::kScale;
  if (ends("bias")) return Role::kBias;
  return tensor.shape.size() == 1 ? Role::kVector : Role::kMatrix;
}

double WeightValue(Fill fill, Role role, int64_t seed, uint64_t hash, int64_t index,
                   int64_t columns) {
  const double normal = DrawNormal(seed, hash, index);
  const int64_t row = columns > 0 ? index / columns : 0;
  if (fill == Fill::kExact) {
    switch (role) {
      case Role::kScale:
        return std::ldexp(1.0, static_cast<int>(Draw(seed, hash, index) % 3) - 1);
      case Role::kVector:
        return std::ldexp(1.0, static_cast<int>(Draw(seed, hash, index) % 3) - 1);
      case Role::kBias:
        return static_cast<double>(DrawInteger(seed, hash, index, 8));
      default:
        return static_cast<double>(DrawInteger(seed, hash, index, 7));
    }
  }
  // Extreme: scales and rows spread over many binades, never near-equal ones.
  const double spread = std::exp(2 * kSigma * DrawNormal(seed, Mix(hash), row));
  const double width = 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(columns, 1)));
  switch (role) {
    case Role::kScale:
      return 0.05 * std::exp(2 * kSigma * normal);
    case Role::kVector:
      return std::exp(kSigma * normal);
    case Role::kBias:
      return normal;
    default:
      return normal * spread * width;
  }
}

class Synthetic : public SyntheticSource {
 public:
  Synthetic(const TensorSource& base, const std::vector<std::string>& names, Fill fill,
            int64_t seed)
      : base_(base), fill_(fill), seed_(seed) {
    Synthetic::Generate(names);
  }
  void Generate(const std::vector<std::string>& names) override {
    for (const std::string& name : names) {
      const TensorView* view = base_.Find(name);
      if (view != nullptr) Make(*view, fill_, seed_);
    }
  }
  const TensorView* Find(std::string_view name) const override {
    const TensorView* made = made_.Find(name);
    return made != nullptr ? made : base_.Find(name);
  }
  std::vector<std::string> Names() const override { return base_.Names(); }

 private:
  void Make(const TensorView& view, Fill fill, int64_t seed) {
    const Role role = RoleOf(view);
    std::vector<std::byte> bytes;
    bytes.reserve(view.bytes.size());
    if (role == Role::kCopy) {
      bytes.assign(view.bytes.begin(), view.bytes.end());
    } else if (role == Role::kWords) {
      MakeWords(view, seed, &bytes);
    } else {
      MakeValues(view, role, fill, seed, &bytes);
    }
    made_.Put(view.name, view.dtype, view.shape, std::move(bytes));
  }

  // All 16 codes of every nibble are equally likely.
  static void MakeWords(const TensorView& view, int64_t seed, std::vector<std::byte>* bytes) {
    const uint64_t hash = HashName(view.name);
    const auto words = static_cast<int64_t>(view.bytes.size() / sizeof(uint32_t));
    for (int64_t i = 0; i < words; ++i) {
      Append(bytes, static_cast<uint32_t>(Draw(seed, hash, i) >> 32));
    }
  }

  // Every byte that means a number, of codes as well as of scales: E8M0 without 255, FP8 without
  // its NaNs.
  static void MakeBytes(const TensorView& view, int64_t seed, std::vector<std::byte>* bytes) {
    const uint64_t hash = HashName(view.name);
    const bool exponents =
        view.dtype == DType::kF8E8M0 ||
        (view.dtype == DType::kU8 && view.name.find("scale") != std::string::npos);
    for (size_t i = 0; i < view.bytes.size(); ++i) {
      auto byte = static_cast<uint8_t>(Draw(seed, hash, static_cast<int64_t>(i)) >> 32);
      if (exponents && byte == 0xFF) byte = 0;
      if (view.dtype == DType::kF8E4M3 && (byte & 0x7F) == 0x7F) --byte;
      bytes->push_back(static_cast<std::byte>(byte));
    }
  }

  static void MakeValues(const TensorView& view, Role role, Fill fill, int64_t seed,
                         std::vector<std::byte>* bytes) {
    const bool codes = view.dtype == DType::kU8 || view.dtype == DType::kI8 ||
                       view.dtype == DType::kF8E4M3 || view.dtype == DType::kF8E8M0;
    if (codes && fill == Fill::kExtreme) return MakeBytes(view, seed, bytes);
    const uint64_t hash = HashName(view.name);
    const int64_t columns = view.shape.empty() ? 1 : view.shape.back();
    const int64_t count = static_cast<int64_t>(view.bytes.size()) / SizeOf(view.dtype).count();
    for (int64_t i = 0; i < count; ++i) {
      const double value = WeightValue(fill, role, seed, hash, i, columns);
      if (view.dtype == DType::kBF16) {
        Append(bytes, ToBf16(value));
      } else if (view.dtype == DType::kF32) {
        Append(bytes, static_cast<float>(value));
      } else {
        bytes->assign(view.bytes.begin(), view.bytes.end());  // no generator for this type
        return;
      }
    }
  }

  const TensorSource& base_;
  const Fill fill_;
  const int64_t seed_;
  MemorySource made_;
};

}  // namespace

Result<Fill> ParseFill(std::string_view name) {
  if (name == "exact") return Fill::kExact;
  if (name == "normal") return Fill::kNormal;
  if (name == "lognormal") return Fill::kLognormal;
  if (name == "extreme") return Fill::kExtreme;
  if (name == "real") return Fill::kReal;
  return Error{fmt::format("fill={}: allowed are exact, normal, lognormal, extreme, real", name)};
}

uint64_t HashName(std::string_view name) { return XXH3_64bits(name.data(), name.size()); }

uint64_t Draw(int64_t seed, uint64_t name_hash, int64_t index) {
  return Mix(Mix(name_hash ^ Mix(static_cast<uint64_t>(seed))) + static_cast<uint64_t>(index));
}

double DrawUniform(int64_t seed, uint64_t name_hash, int64_t index) {
  return (static_cast<double>(Draw(seed, name_hash, index) >> 11) + 0.5) * 0x1p-53;
}

double DrawNormal(int64_t seed, uint64_t name_hash, int64_t index) {
  // Box and Muller's transform of two draws.
  const double u = DrawUniform(seed, name_hash, index);
  const double v = DrawUniform(seed, Mix(name_hash), index);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

uint16_t ToBf16(double value) {
  const auto rounded = static_cast<float>(RoundTo(value, DType::kBF16));
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded) >> 16);
}

TapValue FillActivation(Fill fill, int64_t seed, const std::string& name, int64_t rows,
                        int64_t columns) {
  const uint64_t hash = HashName(name);
  TapValue value{DType::kBF16, {rows, columns}, {}};
  value.bytes.reserve(static_cast<size_t>(rows * columns) * sizeof(uint16_t));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      Append(&value.bytes, ToBf16(ActivationValue(fill, seed, hash, row, column, columns)));
    }
  }
  return value;
}

TapValue FillCodes(int64_t seed, const std::string& name, int64_t rows, int64_t columns) {
  constexpr int64_t kGroup = 32, kLargest = 127;
  constexpr int64_t kTies = 63;  // halves below it are values of bf16
  const uint64_t hash = HashName(name), places = Mix(hash ^ 0x706c61636573u);
  const uint64_t ties = Mix(hash ^ 0x74696573u);
  TapValue value{DType::kBF16, {rows, columns}, {}};
  value.bytes.reserve(static_cast<size_t>(rows * columns) * sizeof(uint16_t));
  const int64_t groups = (columns + kGroup - 1) / kGroup;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t group = column / kGroup;
      const uint64_t place = Draw(seed, places, row * groups + group);
      const int64_t width = std::min(kGroup, columns - group * kGroup);
      int64_t code = DrawInteger(seed, hash, row * columns + column, kLargest);
      if (column % kGroup == static_cast<int64_t>((place >> 1) % static_cast<uint64_t>(width))) {
        code = place & 1 ? -kLargest : kLargest;
      } else if (std::abs(code) < kTies && Draw(seed, ties, row * columns + column) % 4 == 0) {
        Append(&value.bytes, ToBf16(static_cast<double>(code) + 0.5));  // to even
        continue;
      }
      Append(&value.bytes, ToBf16(static_cast<double>(code)));
    }
  }
  return value;
}

TapValue FillPartial(Fill fill, int64_t seed, const std::string& name, int64_t rows,
                     int64_t columns) {
  const uint64_t hash = HashName(name);
  TapValue value{DType::kF32, {rows, columns}, {}};
  value.bytes.reserve(static_cast<size_t>(rows * columns) * sizeof(float));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      Append(&value.bytes,
             static_cast<float>(ActivationValue(fill, seed, hash, row, column, columns)));
    }
  }
  return value;
}

TapValue FillPartialOf(Fill fill, int64_t seed, const std::string& name, int rank, int ranks,
                       int64_t rows, int64_t columns) {
  TapValue value = FillPartial(fill, seed, fmt::format("{}@r{}", name, rank), rows, columns);
  if (fill == Fill::kExact || ranks < 2) return value;
  constexpr uint64_t kEvery = 4;
  constexpr int kBinades = 18;  // above the partials: an addition to it keeps their first bits only
  const uint64_t hash = HashName(name + "#cancel");
  for (int64_t i = 0; i < rows * columns; ++i) {
    const uint64_t draw = Draw(seed, hash, i);
    if (draw % kEvery != 0) continue;
    const auto count = static_cast<uint64_t>(ranks);
    const auto plus = static_cast<int>((draw >> 8) % count);
    const auto step = 1 + static_cast<int>((draw >> 24) % (count - 1));
    const int minus = (plus + step) % ranks;
    if (rank != plus && rank != minus) continue;
    std::byte* at = value.bytes.data() + static_cast<size_t>(i) * sizeof(float);
    float partial = 0;
    std::memcpy(&partial, at, sizeof(partial));
    const float large = std::ldexp(1.0F + static_cast<float>((draw >> 40) % 128) / 128, kBinades);
    partial += rank == plus ? large : -large;
    std::memcpy(at, &partial, sizeof(partial));
  }
  return value;
}

std::vector<int32_t> FillTokens(int64_t seed, int64_t count, int64_t vocab) {
  const uint64_t hash = HashName("tokens");
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(Draw(seed, hash, i) %
                                          static_cast<uint64_t>(std::max<int64_t>(vocab, 1))));
  }
  return tokens;
}

bool GeneratesWeights(Fill fill) { return fill == Fill::kExact || fill == Fill::kExtreme; }

std::unique_ptr<SyntheticSource> SyntheticWeights(const TensorSource& base,
                                                  const std::vector<std::string>& names, Fill fill,
                                                  int64_t seed) {
  return std::make_unique<Synthetic>(base, names, fill, seed);
}

}  // namespace assay::run
