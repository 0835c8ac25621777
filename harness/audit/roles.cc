#include "harness/audit/roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace assay::audit {
namespace {

using Types = uint64_t;  // a bit for each DType
constexpr Types Of(DType dtype) { return Types{1} << static_cast<uint32_t>(dtype); }
constexpr Types kFloats = Of(DType::kF32) | Of(DType::kF16) | Of(DType::kBF16) | Of(DType::kF64);
constexpr Types kFp8 = Of(DType::kF8E4M3) | Of(DType::kF8E5M2);
constexpr Types kBytes = Of(DType::kU8) | Of(DType::kI8);
constexpr Types kInts = Of(DType::kI32) | Of(DType::kI64);
constexpr Types kExponents = Of(DType::kU8) | Of(DType::kF8E8M0);
constexpr Types kAny = ~Types{0};

struct Row {
  std::string_view suffix;
  Part part;
  Types types;
  std::string_view allowed;
  bool along_k = false;
};

constexpr std::string_view kScaleTypes = "F32, F16, BF16, F64, F8_E4M3, F8_E8M0 or U8 (E8M0)";
constexpr std::string_view kFloatTypes = "F32, F16, BF16 or F64";

// formats.md §1 to §6. A name of one word ("weight_packed") is a suffix without a module.
constexpr std::array<Row, 29> kRows = {{
    {".weight_packed", Part::kCodes, Of(DType::kI32) | Of(DType::kU8), "I32 or U8"},
    {".qweight", Part::kCodes, Of(DType::kI32), "I32", true},
    {"_blocks", Part::kCodes, Of(DType::kU8), "U8"},
    {".weight_scale_inv", Part::kScale, kFloats | kExponents, "F32, F16, BF16, F64, F8_E8M0 or U8"},
    {".weight_scale_second", Part::kScale, kFloats, kFloatTypes},
    {"_weight_scale_second", Part::kScale, kFloats, kFloatTypes},
    {".weight_scale_2", Part::kGlobalScale, kFloats, kFloatTypes},
    {".weight_global_scale", Part::kGlobalScale, kFloats, kFloatTypes},
    {".input_global_scale", Part::kGlobalScale, kFloats, kFloatTypes},
    {".input_scale", Part::kGlobalScale, kFloats, kFloatTypes},
    {".weight_scale", Part::kScale, kFloats | kExponents | Of(DType::kF8E4M3), kScaleTypes},
    {"_weight_scale", Part::kScale, kFloats | kExponents | Of(DType::kF8E4M3), kScaleTypes},
    {".scales", Part::kScale, kFloats, kFloatTypes, true},
    {"_scales", Part::kScale, kExponents, "U8 or F8_E8M0"},
    {".weight_zero_point", Part::kZero, kInts | kBytes, "I32, I8, U8 or I64"},
    {".qzeros", Part::kZero, Of(DType::kI32), "I32", true},
    {".weight_offset_second", Part::kOffset, kFloats | kInts | kBytes,
     "a float or an integer type"},
    {".weight_offset", Part::kOffset, kFloats | kInts | kBytes, "a float or an integer type"},
    {"_weight_offset", Part::kOffset, kFloats | kInts | kBytes, "a float or an integer type"},
    {".input_offset", Part::kOffset, kFloats | kInts | kBytes, "a float or an integer type"},
    {".weight_g_idx", Part::kGIdx, kInts, "I32 or I64"},
    {".g_idx", Part::kGIdx, kInts, "I32 or I64"},
    {".weight_shape", Part::kShape, kInts, "I64 or I32"},
    {".scale", Part::kScale, kAny, ""},
    {".bias", Part::kBias, kAny, ""},
    {"_bias", Part::kBias, kAny, ""},
    {".weight", Part::kDense, kAny, ""},
    {"_weight", Part::kDense, kAny, ""},
    {".deq_scale", Part::kOther, kAny, ""},
}};

const Row* FindRow(std::string_view name) {
  for (const Row& row : kRows) {
    if (name.ends_with(row.suffix) || name == row.suffix.substr(1)) return &row;
  }
  return nullptr;
}

bool IsFloat(DType dtype) { return (Of(dtype) & kFloats) != 0; }
bool IsFp8(DType dtype) { return (Of(dtype) & kFp8) != 0; }
bool IsByte(DType dtype) { return (Of(dtype) & kBytes) != 0; }

// A weight that some scale stands beside.
bool HasScale(std::string_view module, const TensorSource& source) {
  for (const char* suffix : {".weight_scale", ".weight_scale_inv", ".scale", "_weight_scale"}) {
    if (source.Find(Sibling(module, suffix)) != nullptr) return true;
  }
  return false;
}

// Two FP4 codes a byte: Quark, ModelOpt (U8), DeepSeek-V4 (I8 with exponents beside it).
bool IsFp4(const TensorView& tensor, std::string_view module, const TensorSource& source) {
  if (tensor.dtype == DType::kU8) return HasScale(module, source);
  const TensorView* scale = source.Find(Sibling(module, ".scale"));
  return tensor.dtype == DType::kI8 && scale != nullptr && scale->dtype == DType::kF8E8M0;
}

Watch FloatWatch(DType dtype, bool scale) {
  switch (dtype) {
    case DType::kF64:
      return Watch::kF64;
    case DType::kF32:
      return scale ? Watch::kScaleF32 : Watch::kF32;
    case DType::kF16:
      return scale ? Watch::kScaleF16 : Watch::kF16;
    case DType::kBF16:
      return scale ? Watch::kScaleBF16 : Watch::kBF16;
    default:
      return Watch::kBytes;
  }
}

// Groups of more elements are not counted one by one: a buffer holds whole groups.
constexpr int64_t kMostInAGroup = 4096;

Lens CodesLens(const TensorView& tensor, const Role& role, const TensorSource& source,
               const Coding& coding) {
  Lens lens;
  const std::string_view module = ModuleOf(tensor.name, role);
  const int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (IsFp8(tensor.dtype)) {
    lens.watch = tensor.dtype == DType::kF8E5M2 ? Watch::kE5M2
                 : coding.fnuz                  ? Watch::kE4M3Fnuz
                                                : Watch::kE4M3;
  } else if (tensor.dtype == DType::kI32 && !role.along_k) {
    lens.watch = Watch::kIntWords;
    // Zero is stored as 2^(bits - 1), in words that hold whole codes.
    constexpr std::pair<int, uint32_t> kZeros[] = {
        {2, 0xAAAAAAAAu}, {4, 0x88888888u}, {8, 0x80808080u}};
    for (const auto& [bits, word] : kZeros) {
      if (bits != coding.bits || coding.group <= 0 || coding.group > kMostInAGroup) continue;
      const int64_t words = coding.group * bits / 32;
      if (coding.group * bits % 32 != 0 || columns % words != 0) continue;
      lens.zero_word = word;
      lens.group = static_cast<uint32_t>(words);
    }
  } else if (role.suffix == "_blocks" || tensor.name.ends_with("weight_packed") ||
             (IsByte(tensor.dtype) && IsFp4(tensor, module, source))) {
    lens.watch = Watch::kE2M1;
    const int64_t bytes = coding.group / 2;
    if (bytes >= 4 && bytes <= 4096 && bytes % 4 == 0 && columns % bytes == 0) {
      lens.group = static_cast<uint32_t>(bytes);
    }
  }
  return lens;
}

Lens ZeroLens(const TensorView& tensor, const Role& role, const Coding& coding) {
  Lens lens;
  const bool packed = role.part == Part::kZero && tensor.dtype == DType::kI32;
  if (packed) {
    // Every nibble is legal; only sameness is of interest.
    lens.watch = Watch::kI32;
    lens.least = INT32_MIN;
    lens.largest = INT32_MAX;
    return lens;
  }
  const int bits = std::clamp(coding.bits, 2, 16);
  lens.least = -(int64_t{1} << (bits - 1));
  lens.largest = (int64_t{1} << (bits - 1)) - 1;
  switch (tensor.dtype) {
    case DType::kI8:
      lens.watch = Watch::kI8;
      break;
    case DType::kI32:
      lens.watch = Watch::kI32;
      break;
    case DType::kI64:
      lens.watch = Watch::kI64;
      break;
    case DType::kF32:
      lens.watch = Watch::kOffsetF32;
      break;
    default:
      lens.watch = FloatWatch(tensor.dtype, false);
  }
  return lens;
}

Role WithSuffix(std::string_view suffix) {
  Role role;
  role.suffix = suffix;
  return role;
}

Part PartOf(const Row* row, const TensorView& tensor, const TensorSource& source) {
  if (IsBlock(tensor.dtype)) return Part::kBlocks;
  const Part part = row == nullptr ? Part::kDense : row->part;
  if (row != nullptr && row->suffix == ".scale") {
    // A norm may call its weight so; a scale stands beside codes.
    const TensorView* weight =
        source.Find(Sibling(ModuleOf(tensor.name, WithSuffix(row->suffix)), ".weight"));
    const bool codes = weight != nullptr && !IsFloat(weight->dtype);
    return codes || tensor.dtype == DType::kF8E8M0 ? Part::kScale : Part::kDense;
  }
  if (part != Part::kDense && part != Part::kBias) return part;
  if (IsFloat(tensor.dtype)) return part;
  const bool weight = row != nullptr && (row->suffix == ".weight" || row->suffix == "_weight");
  if (IsFp8(tensor.dtype) || (weight && IsByte(tensor.dtype))) return Part::kCodes;
  return tensor.dtype == DType::kF8E8M0 ? Part::kScale : Part::kOther;
}

// Names of the last axes, the last one first.
std::vector<std::string_view> AxesOf(const TensorView& tensor, const Role& role) {
  const size_t rank = tensor.shape.size();
  if (role.suffix == "_blocks" && rank >= 3) return {"byte", "group", "row", "expert"};
  if (role.part == Part::kBlocks) return {"block", "row", "expert"};
  if (rank == 1) {
    const bool rows =
        role.part == Part::kScale || role.part == Part::kZero || role.part == Part::kOffset;
    return {rows ? "row" : "element"};
  }
  if (role.part == Part::kScale) {
    if (role.along_k) return {"column", "group"};
    if (role.suffix == ".weight_scale_inv") return {"block column", "block row", "expert"};
    return {"group", "row", "expert"};
  }
  if (role.part == Part::kZero) {
    if (role.along_k) return {"word", "group"};
    if (tensor.dtype == DType::kI32) return {"group", "word row"};
    return {"group", "row", "expert"};
  }
  if (role.part == Part::kOffset) return {"group", "row", "expert"};
  if (role.part == Part::kCodes && tensor.dtype == DType::kI32) {
    if (role.along_k) return {"column", "word row"};
    return {"word", "row", "expert"};
  }
  return {"column", "row", "expert"};
}

}  // namespace

std::string_view ModuleOf(std::string_view name, const Role& role) {
  return name.size() > role.suffix.size() ? name.substr(0, name.size() - role.suffix.size()) : "";
}

std::string Sibling(std::string_view module, std::string_view suffix) {
  return module.empty() ? std::string(suffix.substr(1)) : std::string(module) + std::string(suffix);
}

Role RoleOf(const TensorView& tensor, const TensorSource& source) {
  const Row* row = FindRow(tensor.name);
  Role role;
  role.part = PartOf(row, tensor, source);
  if (row == nullptr) return role;
  role.suffix = row->suffix;
  role.along_k = row->along_k;
  role.allowed = row->allowed;
  role.type_fits = IsBlock(tensor.dtype) || (Of(tensor.dtype) & row->types) != 0;
  return role;
}

Lens LensOf(const TensorView& tensor, const Role& role, const TensorSource& source,
            const Coding& coding) {
  Lens lens;
  switch (role.part) {
    case Part::kDense:
    case Part::kBias:
      lens.watch = FloatWatch(tensor.dtype, false);
      break;
    case Part::kGlobalScale:
      lens.watch = FloatWatch(tensor.dtype, true);
      break;
    case Part::kScale:
      if (IsFloat(tensor.dtype)) {
        lens.watch = FloatWatch(tensor.dtype, true);
      } else if (tensor.dtype == DType::kF8E4M3) {
        lens.watch = Watch::kScaleE4M3;
      } else if (tensor.dtype == DType::kF8E8M0 || tensor.dtype == DType::kU8) {
        lens.watch = Watch::kE8M0;
      }
      break;
    case Part::kCodes:
      return CodesLens(tensor, role, source, coding);
    case Part::kBlocks:
      lens.watch = Watch::kGguf;
      lens.block_type = static_cast<uint32_t>(tensor.dtype);
      break;
    case Part::kZero:
    case Part::kOffset:
      return ZeroLens(tensor, role, coding);
    case Part::kGIdx:
    case Part::kShape:
    case Part::kOther:
      break;
  }
  return lens;
}

std::string PlaceOf(const TensorView& tensor, const Role& role, uint64_t index, uint64_t unit) {
  const std::vector<std::string_view> axes = AxesOf(tensor, role);
  if (tensor.shape.empty() || (tensor.shape.size() == 1 && tensor.shape[0] == 1)) return "";
  std::vector<std::string> places;
  uint64_t rest = unit == 0 ? index : index * unit;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    const auto extent =
        static_cast<uint64_t>(std::max<int64_t>(tensor.shape[tensor.shape.size() - 1 - i], 1));
    std::string name = i < axes.size() ? std::string(axes[i])
                                       : fmt::format("axis {}", tensor.shape.size() - 1 - i);
    uint64_t at = rest % extent;
    if (i == 0 && unit > 1) {
      name = "group";
      at /= unit;
      rest /= extent;
      // Where the last axis is one group, the axis before counts them.
      if (unit < extent) places.insert(places.begin(), fmt::format("{} {}", name, at));
      continue;
    }
    places.insert(places.begin(), fmt::format("{} {}", name, at));
    rest /= extent;
  }
  std::string text;
  for (const std::string& place : places) text += (text.empty() ? "" : ", ") + place;
  return text;
}

}  // namespace assay::audit
