#include "kernels/layouts/row.h"

#include <cstring>

#include "kernels/layouts/sizes.h"

namespace assay::kernels::row {

namespace {

int64_t BytesOf(const StoredShape& shape, DType dtype) {
  if (shape.dtype != dtype) return -1;
  return Product({shape.rows, shape.columns, SizeOf(dtype).count()});
}

}  // namespace

int64_t BytesBf16(const StoredShape& shape) { return BytesOf(shape, DType::kBF16); }
int64_t BytesI32(const StoredShape& shape) { return BytesOf(shape, DType::kI32); }
int64_t BytesI8(const StoredShape& shape) { return BytesOf(shape, DType::kI8); }
int64_t BytesE8m0(const StoredShape& shape) { return BytesOf(shape, DType::kF8E8M0); }
int64_t BytesQ41(const StoredShape& shape) { return BytesOf(shape, DType::kQ4_1); }
int64_t BytesQ80(const StoredShape& shape) { return BytesOf(shape, DType::kQ8_0); }

void Copy(const StoredShape& shape, const std::byte* in, std::byte* out) {
  const auto bytes = static_cast<size_t>(shape.rows * shape.columns * SizeOf(shape.dtype).count());
  if (bytes > 0) std::memcpy(out, in, bytes);  // an empty matrix may have no address
}

}  // namespace assay::kernels::row
