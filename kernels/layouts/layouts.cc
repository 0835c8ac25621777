#include "kernels/layouts/layouts.h"

#include "kernels/layouts/i4_split16.h"
#include "kernels/layouts/row.h"
#include "kernels/layouts/sizes.h"

namespace assay::kernels {
namespace {

constexpr Layout kLayouts[] = {
    {"row", "bf16", "weight", row::BytesBf16, row::Copy, row::Copy},
    {"row", "ct-int4-g32", "weight", row::BytesI32, row::Copy, row::Copy},
    {"row", "ct-int4-g32", "scale", row::BytesBf16, row::Copy, row::Copy},
    {"i4-split16", "ct-int4-g32", "weight", i4_split16::Bytes, i4_split16::Pack,
     i4_split16::Unpack},
    // Scales of the split layout lie as in the checkpoint: a row of them is read straight through.
    {"i4-split16", "ct-int4-g32", "scale", row::BytesBf16, row::Copy, row::Copy},
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
