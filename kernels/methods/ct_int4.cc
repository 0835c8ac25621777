#include "kernels/methods/ct_int4.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/methods/methods.h"

namespace assay::kernels {
namespace {

constexpr int64_t kCodesPerWord = 8;
constexpr int kOffset = 8;  // stored = code + 8

}  // namespace

void PackCtInt4(const int8_t* codes, int64_t n, int64_t k, uint32_t* words) {
  for (int64_t word = 0; word < n * k / kCodesPerWord; ++word) {
    uint32_t bits = 0;
    for (int i = 0; i < kCodesPerWord; ++i) {
      const int code = codes[word * kCodesPerWord + i];
      if (code < -kOffset || code >= kOffset) {
        std::fprintf(stderr, "ct-int4-g32: code %d at element %lld; allowed are -8 to 7\n", code,
                     static_cast<long long>(word * kCodesPerWord + i));
        std::abort();
      }
      bits |= static_cast<uint32_t>(code + kOffset) << (4 * i);
    }
    words[word] = bits;
  }
}

namespace ct_int4 {

void Decode(const std::byte* codes, const std::byte* scales, int64_t n, int64_t k, float* out) {
  for (int64_t i = 0; i < n * k; ++i) {
    uint32_t word;
    std::memcpy(&word, codes + i / kCodesPerWord * int64_t{sizeof word}, sizeof word);
    uint16_t scale;
    // k is whole groups, so groups run on from row to row.
    std::memcpy(&scale, scales + i / kGroup * int64_t{sizeof scale}, sizeof scale);
    const int code = static_cast<int>(word >> (4 * (i % kCodesPerWord)) & 0xF) - kOffset;
    out[i] = static_cast<float>(code) * FloatFromBf16(scale);
  }
}

}  // namespace ct_int4
}  // namespace assay::kernels
