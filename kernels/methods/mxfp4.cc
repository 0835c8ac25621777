#include "kernels/methods/mxfp4.h"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "kernels/methods/methods.h"

namespace assay::kernels {

float FloatFromE2m1(int code) {
  // A sign, two bits of exponent with bias 1, one of mantissa; exponent 0 is subnormal.
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const float size = exponent == 0 ? 0.5F * static_cast<float>(mantissa)
                                   : static_cast<float>((2 + mantissa) << exponent) / 4;
  return (code & 8) != 0 ? -size : size;
}

float FloatFromE8m0(uint8_t byte) {
  if (byte == 0xFF) return std::numeric_limits<float>::quiet_NaN();
  // 2^-127 is subnormal: half of the least normal number.
  return std::bit_cast<float>(byte == 0 ? 0x00400000u : uint32_t{byte} << 23);
}

void PackMxfp4(const uint8_t* codes, int64_t n, int64_t k, std::byte* bytes) {
  for (int64_t i = 0; i < n * k; i += 2) {
    for (int64_t j = i; j < i + 2; ++j) {
      if (codes[j] < 16) continue;
      std::fprintf(stderr, "deepseek-v4-mxfp4: code %d at element %lld; allowed are 0 to 15\n",
                   codes[j], static_cast<long long>(j));
      std::abort();
    }
    bytes[i / 2] = static_cast<std::byte>(codes[i] | codes[i + 1] << 4);
  }
}

namespace mxfp4 {

void Decode(const std::byte* codes, const std::byte* scales, int64_t n, int64_t k, float* out) {
  for (int64_t i = 0; i < n * k; ++i) {
    const int code = std::to_integer<int>(codes[i / 2] >> (4 * (i % 2)) & std::byte{0xF});
    // k is whole groups, so groups run on from row to row.
    out[i] = FloatFromE2m1(code) * FloatFromE8m0(std::to_integer<uint8_t>(scales[i / kGroup]));
  }
}

}  // namespace mxfp4
}  // namespace assay::kernels
