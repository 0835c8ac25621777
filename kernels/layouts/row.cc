#include "kernels/layouts/row.h"

#include <cstring>

#include "kernels/layouts/sizes.h"

namespace assay::kernels::row {

int64_t Bytes(const StoredShape& shape) {
  return Product({shape.rows, shape.columns, SizeOf(shape.dtype).count()});
}

void Copy(const StoredShape& shape, const std::byte* in, std::byte* out) {
  const auto bytes = static_cast<size_t>(Bytes(shape));
  if (bytes > 0) std::memcpy(out, in, bytes);  // an empty matrix may have no address
}

}  // namespace assay::kernels::row
