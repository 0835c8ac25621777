#include "harness/run/codes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "harness/abi/contract.h"

namespace assay::run {
namespace {

// Of all the methods here (formats.md §1, §4, §7).
constexpr int64_t kGroup = 32;
// The log-normal spread of scales, per group and per row: numerics.md §2.
constexpr double kSigma = 0.6;

struct FreeBytes {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};

// How one tensor of a parameter is filled.
enum class Part { kInt4Words, kInt4Scale, kInt4Shape, kMxfp4Codes, kMxfp4Scale, kQ41, kQ80 };

struct Shape {
  std::string suffix;
  Part part;
  DType dtype;
  std::vector<int64_t> extents;
};

std::vector<Shape> ShapesOf(const std::string& method, int64_t n, int64_t k) {
  const int64_t groups = k / kGroup;
  if (method == "ct-int4-g32") {
    return {{".weight_packed", Part::kInt4Words, DType::kI32, {n, k / 8}},
            {".weight_scale", Part::kInt4Scale, DType::kBF16, {n, groups}},
            {".weight_shape", Part::kInt4Shape, DType::kI64, {2}}};
  }
  if (method == "deepseek-v4-mxfp4") {
    return {{".weight", Part::kMxfp4Codes, DType::kI8, {n, k / 2}},
            {".scale", Part::kMxfp4Scale, DType::kF8E8M0, {n, groups}}};
  }
  if (method == "gguf-q4_1") return {{".weight", Part::kQ41, DType::kQ4_1, {n, groups}}};
  return {{".weight", Part::kQ80, DType::kQ8_0, {n, groups}}};
}

uint16_t ToF16(double value) {
  // RoundTo gives a value that half precision has; what is left is to find its bits.
  const double rounded = RoundTo(value, DType::kF16);
  const uint16_t sign = std::signbit(rounded) ? 0x8000 : 0;
  const double size = std::abs(rounded);
  if (size == 0) return sign;
  constexpr int kBias = 15, kFraction = 10, kLeastNormal = -14, kLeastSubnormal = -24;
  const int exponent = std::ilogb(size);
  if (exponent < kLeastNormal) {
    return static_cast<uint16_t>(sign | static_cast<int>(std::ldexp(size, -kLeastSubnormal)));
  }
  const int fraction = static_cast<int>(std::ldexp(size, kFraction - exponent)) - (1 << kFraction);
  return static_cast<uint16_t>(sign | ((exponent + kBias) << kFraction) | fraction);
}

// Draws for one group of one tensor: what a group's number gives is not what a code's gives.
struct Draws {
  Draws(int64_t seed_in, const std::string& tensor)
      : seed(seed_in),
        codes(HashName(tensor)),
        scales(HashName(tensor + "#scale")),
        rows(HashName(tensor + "#row")),
        minima(HashName(tensor + "#min")) {}
  int64_t seed;
  uint64_t codes, scales, rows, minima;

  uint64_t Code(int64_t index) const { return Draw(seed, codes, index) >> 32; }
  uint64_t Choice(int64_t group) const { return Draw(seed, scales, group) >> 32; }
  double LogNormal(int64_t group, int64_t row) const {
    return std::exp(kSigma * (DrawNormal(seed, scales, group) + DrawNormal(seed, rows, row)));
  }
};

// Half, one or two.
double ExactScale(const Draws& draws, int64_t group) {
  return std::ldexp(1.0, static_cast<int>(draws.Choice(group) % 3) - 1);
}

// A scale of half precision that no other group's is near: subnormal, tiny, middling, large.
double ExtremeHalf(uint64_t choice) {
  constexpr int kExponents[] = {-24, -20, -14, -9, -4, 0, 5, 9};
  const double fraction = 1.0 + static_cast<double>((choice >> 8) % 1024) / 1024;
  return std::ldexp(fraction, kExponents[choice % std::size(kExponents)]);
}

// Weights of unit size sum to about one over a row of k.
double WidthOf(int64_t k) { return 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(k, 1))); }

struct Block {
  Fill fill;
  int64_t k, group, row;  // group: number of the group in the tensor
};

double HalfScale(const Draws& draws, const Block& at, double largest_code) {
  if (at.fill == Fill::kExact) return ExactScale(draws, at.group);
  if (at.fill == Fill::kExtreme) return ExtremeHalf(draws.Choice(at.group));
  return 2 * WidthOf(at.k) / largest_code * draws.LogNormal(at.group, at.row);
}

constexpr uint64_t kFullEvery = 8;

// 20 bytes: d, m, then 16 bytes of which the low nibbles are elements 0 to 15.
void FillQ41(const Draws& draws, const Block& at, std::byte* out) {
  constexpr int kCodes = 16;
  const double d = HalfScale(draws, at, kCodes / 2);
  const double normal = DrawNormal(draws.seed, draws.minima, at.group);
  const uint64_t choice = Draw(draws.seed, draws.minima, at.group) >> 32;
  double m = -d * (kCodes / 2 + 2 * normal);
  if (at.fill == Fill::kExact) m = -d * static_cast<double>(choice % kCodes);
  if (at.fill == Fill::kExtreme) m = (choice & 1 ? -1.0 : 1.0) * ExtremeHalf(choice >> 1);
  const uint16_t halves[2] = {ToF16(d), ToF16(m)};
  std::memcpy(out, halves, sizeof(halves));
  // Now and then all codes the largest: a dot product that saturates does it here.
  const bool full = at.fill == Fill::kExtreme && (choice >> 8) % kFullEvery == 0;
  for (int64_t i = 0; i < kGroup / 2; ++i) {
    out[sizeof(halves) + static_cast<size_t>(i)] =
        full ? std::byte{0xff}
             : static_cast<std::byte>(draws.Code(at.group * kGroup / 2 + i) & 0xff);
  }
}

// 34 bytes: d, then 32 signed codes. Exact: so few that sums over long rows stay exact; -128 is
// legal, and rare in files.
void FillQ80(const Draws& draws, const Block& at, std::byte* out) {
  constexpr int64_t kLargest = 127, kExactLargest = 31;
  const uint16_t d = ToF16(HalfScale(draws, at, static_cast<double>(kLargest) / 2));
  std::memcpy(out, &d, sizeof(d));
  for (int64_t i = 0; i < kGroup; ++i) {
    const auto draw = static_cast<int64_t>(draws.Code(at.group * kGroup + i));
    const int64_t most = at.fill == Fill::kExact ? kExactLargest : kLargest;
    const int64_t code =
        at.fill == Fill::kExtreme ? draw % 256 - 128 : draw % (2 * most + 1) - most;
    out[sizeof(d) + static_cast<size_t>(i)] = static_cast<std::byte>(code & 0xff);
  }
}

// The exponents that code written by hand gets wrong, each in one group of so many.
constexpr uint64_t kSpecialEvery = 24;
constexpr uint64_t kSpecialRowEvery = 12;
bool IsLargest(const Draws& draws, const Block& at) {
  const bool row = (Draw(draws.seed, draws.rows, at.row) >> 32) % kSpecialRowEvery < 2;
  return at.fill == Fill::kExtreme && !row && draws.Choice(at.group) % kSpecialEvery == 2;
}

// 2^(byte - 127); 255 is no number and is never made.
uint8_t Mxfp4Scale(const Draws& draws, const Block& at) {
  constexpr int kBias = 127, kLeast = 1, kMost = 253;
  const uint64_t choice = draws.Choice(at.group);
  if (at.fill == Fill::kExact) return static_cast<uint8_t>(kBias - 1 + choice % 3);
  if (at.fill == Fill::kExtreme) {
    // Whole rows of the least two, which a larger group beside them would hide.
    const uint64_t row = Draw(draws.seed, draws.rows, at.row) >> 32;
    if (row % kSpecialRowEvery < 2) return static_cast<uint8_t>(row % kSpecialRowEvery);
    if (choice % kSpecialEvery < 3) {
      constexpr uint8_t kSpecial[] = {0, 1, 254};
      return kSpecial[choice % kSpecialEvery];
    }
    return static_cast<uint8_t>(kBias - 20 + (choice >> 8) % 41);
  }
  const double scale = WidthOf(at.k) / 2 * draws.LogNormal(at.group, at.row);
  return static_cast<uint8_t>(
      std::clamp(kBias + static_cast<int>(std::lround(std::log2(scale))), kLeast, kMost));
}

// Two codes a byte, the low nibble first. Under the largest exponent a group is all zeros, or one
// code of a half: what is beyond fp32's range would leave nothing to compare.
void FillMxfp4(const Draws& draws, const Block& at, std::byte* out) {
  const uint64_t one = draws.Choice(at.group) >> 16;
  for (int64_t i = 0; i < kGroup / 2; ++i) {
    uint64_t byte = draws.Code(at.group * kGroup / 2 + i) & 0xff;
    if (IsLargest(draws, at)) {
      const bool here = (one & 1) != 0 && i == static_cast<int64_t>((one >> 1) % (kGroup / 2));
      byte = here ? (one & 0x20 ? 0x09 : 0x01) : 0x80;
    }
    out[i] = static_cast<std::byte>(byte);
  }
}

double Int4Scale(const Draws& draws, const Block& at) {
  constexpr double kCodes = 8;
  if (at.fill == Fill::kExact) return ExactScale(draws, at.group);
  if (at.fill != Fill::kExtreme)
    return 2 * WidthOf(at.k) / kCodes * draws.LogNormal(at.group, at.row);
  const double spread = draws.LogNormal(at.group, at.row);
  return 0.05 * spread * spread;
}

class Made : public MadeSource {
 public:
  Made(const TensorSource& base, std::string method, const std::vector<MadeParameter>& parameters)
      : base_(base) {
    for (const MadeParameter& parameter : parameters) {
      hidden_.insert(parameter.name);
      for (const Shape& shape : ShapesOf(method, parameter.n, parameter.k)) {
        Tensor tensor;
        tensor.part = shape.part;
        tensor.n = parameter.n;
        tensor.k = parameter.k;
        tensor.view.name = parameter.name + shape.suffix;
        tensor.view.dtype = shape.dtype;
        tensor.view.shape = shape.extents;
        tensor.view.file = "made from the seed";
        const auto size = static_cast<size_t>(StoredBytes(shape.dtype, shape.extents)->count());
        // Memory that is not touched before it is filled: headers alone cost nothing.
        tensor.bytes.reset(static_cast<std::byte*>(std::calloc(std::max<size_t>(size, 1), 1)));
        if (tensor.bytes == nullptr) throw std::bad_alloc();
        tensor.view.bytes = {tensor.bytes.get(), size};
        std::string name = tensor.view.name;
        tensors_.emplace(std::move(name), std::move(tensor));
      }
    }
  }

  const TensorView* Find(std::string_view name) const override {
    if (const auto found = tensors_.find(name); found != tensors_.end()) return &found->second.view;
    return IsHidden(name) ? nullptr : base_.Find(name);
  }

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (std::string& name : base_.Names()) {
      if (!IsHidden(name)) names.push_back(std::move(name));
    }
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    std::sort(names.begin(), names.end());
    return names;
  }

  bool IsMade(std::string_view tensor) const override {
    return tensors_.find(tensor) != tensors_.end();
  }

  void Make(Fill fill, int64_t seed) override {
    for (auto& [name, tensor] : tensors_) FillTensor(fill, Draws(seed, name), &tensor);
  }

 private:
  struct Tensor {
    TensorView view;
    Part part = Part::kQ41;
    int64_t n = 0, k = 0;
    std::unique_ptr<std::byte, FreeBytes> bytes;
  };

  // The parameter's own tensors; a bias is not stored by the method.
  bool IsHidden(std::string_view name) const {
    if (name.ends_with(".bias")) return false;
    const size_t dot = name.rfind('.');
    return dot != std::string_view::npos && hidden_.count(name.substr(0, dot)) > 0;
  }

  static void FillGroups(Fill fill, const Draws& draws, Tensor* tensor, int64_t bytes_a_group,
                         void (*fill_group)(const Draws&, const Block&, std::byte*)) {
    const int64_t groups = tensor->k / kGroup;
    for (int64_t group = 0; group < tensor->n * groups; ++group) {
      fill_group(draws, {fill, tensor->k, group, group / groups},
                 tensor->bytes.get() + group * bytes_a_group);
    }
  }

  static void FillTensor(Fill fill, const Draws& draws, Tensor* tensor) {
    switch (tensor->part) {
      case Part::kQ41:
        return FillGroups(fill, draws, tensor, SizeOf(DType::kQ4_1).count(), FillQ41);
      case Part::kQ80:
        return FillGroups(fill, draws, tensor, SizeOf(DType::kQ8_0).count(), FillQ80);
      case Part::kMxfp4Codes: {
        // Which groups have the largest exponent is the scales' to say.
        const std::string& name = tensor->view.name;
        const std::string scale = name.substr(0, name.rfind('.')) + ".scale";
        Draws both(draws.seed, scale);
        both.codes = draws.codes;
        return FillGroups(fill, both, tensor, kGroup / 2, FillMxfp4);
      }
      case Part::kMxfp4Scale:
        return FillGroups(fill, draws, tensor, 1,
                          [](const Draws& from, const Block& at, std::byte* out) {
                            *out = static_cast<std::byte>(Mxfp4Scale(from, at));
                          });
      case Part::kInt4Words:
        return FillGroups(
            fill, draws, tensor, kGroup / 2,
            [](const Draws& from, const Block& at, std::byte* out) {
              for (int64_t i = 0; i < kGroup / 2; ++i) {
                out[i] = static_cast<std::byte>(from.Code(at.group * kGroup / 2 + i) & 0xff);
              }
            });
      case Part::kInt4Scale:
        return FillGroups(fill, draws, tensor, sizeof(uint16_t),
                          [](const Draws& from, const Block& at, std::byte* out) {
                            const uint16_t bits = ToBf16(Int4Scale(from, at));
                            std::memcpy(out, &bits, sizeof(bits));
                          });
      case Part::kInt4Shape: {
        const int64_t extents[2] = {tensor->n, tensor->k};
        std::memcpy(tensor->bytes.get(), extents, sizeof(extents));
        return;
      }
    }
  }

  const TensorSource& base_;
  std::set<std::string, std::less<>> hidden_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace

const std::vector<std::string_view>& MadeMethods() {
  static const std::vector<std::string_view> kMethods = {"ct-int4-g32", "deepseek-v4-mxfp4",
                                                         "gguf-q4_1", "gguf-q8_0"};
  return kMethods;
}

Result<std::unique_ptr<MadeSource>> MakeSource(const TensorSource& base, const std::string& method,
                                               const std::vector<MadeParameter>& parameters) {
  const auto& methods = MadeMethods();
  if (std::find(methods.begin(), methods.end(), method) == methods.end()) {
    return Error{
        fmt::format("method={}: weights can be made for {}", method, fmt::join(methods, ", "))};
  }
  for (const MadeParameter& parameter : parameters) {
    if (parameter.k > 0 && parameter.k % kGroup == 0) continue;
    return Error{
        fmt::format("method={}: {} has rows of {} elements, which are no whole groups of {}",
                    method, parameter.name, parameter.k, kGroup)};
  }
  return std::unique_ptr<MadeSource>(std::make_unique<Made>(base, method, parameters));
}

}  // namespace assay::run
