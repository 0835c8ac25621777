// Repacks, each with its inverse and its tag. A layout is a named tag that travels with the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "harness/units/dtype.h"
#include "harness/units/status.h"

namespace assay::kernels {

// Shape of a component's storage in layout "row": rows × columns values of `dtype` (int32 words of
// eight codes, say), one row after the other.
struct StoredShape {
  DType dtype = DType::kBF16;
  int64_t rows = 0, columns = 0;
};

struct Layout {
  std::string_view tag;     // "row", "rows16"
  std::string_view method;  // whose weights it takes: "bf16", "ct-int4-g32", ...
  std::string_view part;    // "weight" or "scale"
  // Bytes of the layout for a stored shape, padding included; -1 where the layout does not take the
  // shape: another dtype, a negative extent, or more bytes than 63 bits count.
  int64_t (*bytes)(const StoredShape& shape);
  // pack: row -> layout; unpack: layout -> row, its inverse. The row side is rows·columns values,
  // the layout's side bytes(shape), which must not be -1. Neither side needs an alignment; they do
  // not overlap. Padding gets codes whose value is 0.
  void (*pack)(const StoredShape& shape, const std::byte* in, std::byte* out);
  void (*unpack)(const StoredShape& shape, const std::byte* in, std::byte* out);
};

std::span<const Layout> Layouts();
const Layout* FindLayout(std::string_view tag, std::string_view method, std::string_view part);

}  // namespace assay::kernels
