#include "kernels/layouts/row.h"

#include <cstring>

#include "kernels/layouts/sizes.h"

namespace assay::kernels::row {

int64_t BytesBf16(const StoredShape& shape) {
  return shape.dtype == DType::kBF16 ? Product({shape.rows, shape.columns, 2}) : -1;
}

int64_t BytesI32(const StoredShape& shape) {
  return shape.dtype == DType::kI32 ? Product({shape.rows, shape.columns, 4}) : -1;
}

void Copy(const StoredShape& shape, const std::byte* in, std::byte* out) {
  const auto bytes = static_cast<size_t>(shape.rows * shape.columns * SizeOf(shape.dtype).count());
  if (bytes > 0) std::memcpy(out, in, bytes);  // an empty matrix may have no address
}

}  // namespace assay::kernels::row
