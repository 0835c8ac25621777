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

// Shape of a component's storage in layout "row": rows × columns values of `dtype`.
struct StoredShape {
  DType dtype = DType::kBF16;
  int64_t rows = 0, columns = 0;
};

struct Layout {
  std::string_view tag;      // "row", "i4-split16", ...
  std::string_view method;   // whose weights it takes: "bf16", "ct-int4-g32", ...
  std::string_view part;     // "weight" or "scale"
  // Bytes of the layout for a stored shape, padding included.
  int64_t (*bytes)(const StoredShape& shape);
  // row -> layout. `in` is rows·columns values; `out` has bytes(shape).
  void (*pack)(const StoredShape& shape, const std::byte* in, std::byte* out);
  void (*unpack)(const StoredShape& shape, const std::byte* in, std::byte* out);
};

std::span<const Layout> Layouts();
const Layout* FindLayout(std::string_view tag, std::string_view method, std::string_view part);

}  // namespace assay::kernels
