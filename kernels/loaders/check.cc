#include "kernels/loaders/check.h"

#include <fmt/format.h>

#include "kernels/loaders/engine_error.h"
#include "kernels/loaders/memory.h"

namespace assay::kernels {
namespace {

// An extent on one side: in the ABI's unit, and in words where those say more.
struct Side {
  int64_t extent;
  std::string unit;        // "element", "word", "byte", "group", "dimension"
  std::string words = "";  // "packed bytes (u4x2)"

  std::string Said() const {
    return fmt::format("{} {}", extent, words.empty() ? unit + "s" : words);
  }
};

[[noreturn]] void Refuse(std::string_view tensor, std::string_view axis, const Side& got,
                         const Side& expected, std::string_view why) {
  EngineError error(ASSAY_REFUSED, fmt::format("{}: axis {} has {}, the parameter takes {}: {}",
                                               tensor, axis, got.Said(), expected.Said(), why));
  error.tensor = std::string(tensor);
  error.axis = std::string(axis);
  error.got = got.extent;
  error.got_unit = got.unit;
  error.expected = expected.extent;
  error.expected_unit = expected.unit;
  throw error;
}

bool IsDense(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

// A type has no extent: the message alone says what stood where. Another floating type is a legal
// checkpoint that this engine has no kernels for.
[[noreturn]] void RefuseType(const shard::Component& stored, DType expected) {
  const bool legal = IsDense(stored.dtype) && IsDense(expected);
  EngineError error(legal ? ASSAY_UNSUPPORTED : ASSAY_REFUSED,
                    fmt::format("{}: stored as {}, the parameter takes {}", stored.source,
                                NameOf(stored.dtype), NameOf(expected)));
  error.tensor = stored.source;
  throw error;
}

// "packed bytes (u4x2)": both sides are told in what they are made of.
std::string BytesOf(DType dtype, const Packing& packing) {
  if (IsBlock(dtype)) return fmt::format("bytes of blocks ({})", NameOf(dtype));
  const int64_t bits = packing.bytes.count() * 8 / packing.elements.count();
  if (8 % bits != 0) return fmt::format("packed bytes (u{})", bits);
  return fmt::format("packed bytes (u{}x{})", bits, 8 / bits);
}

Side PackedSide(int64_t columns, DType dtype, const Packing& packing) {
  return {CheckedProduct(columns, SizeOf(dtype).count()), "byte", BytesOf(dtype, packing)};
}

}  // namespace

ParameterSpec SpecOf(const shard::Component& component) {
  ParameterSpec spec;
  spec.component = component.name;
  spec.source = component.source;
  spec.dtype = component.dtype;
  spec.rows = component.rows;
  spec.columns = component.columns;
  spec.vector = component.columns == 1 && component.column_along == shard::Along::kNone;
  spec.packing = component.packing;
  spec.unit = component.unit;
  return spec;
}

void CheckTensor(const ParameterSpec& spec, const shard::Component& stored) {
  const bool packed = spec.packing.elements.count() > 1;
  if (packed != (stored.packing.elements.count() > 1)) {
    const char* kElements = "unpacked elements";
    if (packed) {
      Refuse(stored.source, "k", {stored.columns, "element", kElements},
             PackedSide(spec.columns, spec.dtype, spec.packing),
             "the tensor is unpacked and the parameter packed");
    }
    Refuse(stored.source, "k", PackedSide(stored.columns, stored.dtype, stored.packing),
           {spec.columns, "element", kElements}, "the tensor is packed and the parameter unpacked");
  }
  if (stored.dtype != spec.dtype) RefuseType(stored, spec.dtype);
  if (stored.rows != spec.rows) {
    Refuse(stored.source, "n", {stored.rows, "element"}, {spec.rows, "element"},
           "another number of rows");
  }
  if (stored.columns != spec.columns) {
    Refuse(stored.source, "k", {stored.columns, spec.unit}, {spec.columns, spec.unit},
           "another number of columns");
  }
}

}  // namespace assay::kernels
