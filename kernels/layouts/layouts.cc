#include "kernels/layouts/layouts.h"

#include "kernels/layouts/row.h"
#include "kernels/layouts/rows16.h"
#include "kernels/layouts/sizes.h"

namespace assay::kernels {
namespace {

constexpr Layout kLayouts[] = {
    {"row", "bf16", "weight", row::BytesBf16, row::Copy, row::Copy},
    {"row", "ct-int4-g32", "weight", row::BytesI32, row::Copy, row::Copy},
    {"row", "ct-int4-g32", "scale", row::BytesBf16, row::Copy, row::Copy},
    {"row", "deepseek-v4-mxfp4", "weight", row::BytesI8, row::Copy, row::Copy},
    {"row", "deepseek-v4-mxfp4", "scale", row::BytesE8m0, row::Copy, row::Copy},
    {"row", "gguf-q4_1", "weight", row::BytesQ41, row::Copy, row::Copy},
    {"row", "gguf-q8_0", "weight", row::BytesQ80, row::Copy, row::Copy},
    {"rows16", "ct-int4-g32", "weight", rows16::BytesI32, rows16::PackI32, rows16::UnpackI32},
    {"rows16", "ct-int4-g32", "scale", rows16::BytesBf16, rows16::PackBf16, rows16::UnpackBf16},
    {"rows16", "deepseek-v4-mxfp4", "weight", rows16::BytesI8, rows16::PackI8, rows16::UnpackI8},
    {"rows16", "deepseek-v4-mxfp4", "scale", rows16::BytesE8m0, rows16::PackE8m0,
     rows16::UnpackE8m0},
    {"rows16", "gguf-q4_1", "weight", rows16::BytesQ41, rows16::PackQ41, rows16::UnpackQ41},
    {"rows16", "gguf-q8_0", "weight", rows16::BytesQ80, rows16::PackQ80, rows16::UnpackQ80},
};

}  // namespace

int64_t Product(std::initializer_list<int64_t> extents) {
  int64_t product = 1;
  for (const int64_t extent : extents) {
    if (extent < 0 || __builtin_mul_overflow(product, extent, &product)) return -1;
  }
  return product;
}

std::span<const Layout> Layouts() { return kLayouts; }

const Layout* FindLayout(std::string_view tag, std::string_view method, std::string_view part) {
  for (const Layout& layout : kLayouts) {
    if (layout.tag == tag && layout.method == method && layout.part == part) return &layout;
  }
  return nullptr;
}

}  // namespace assay::kernels
