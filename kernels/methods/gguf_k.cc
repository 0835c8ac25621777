// GGUF's K-quants: super-blocks of 256 with scales of 4 to 8 bits for sub-blocks of 16 or 32. The
// scales that Pack chooses are simple, not ggml's search: each is rounded up, so that no value of a
// sub-block lies beyond its codes.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/methods/blocks.h"
#include "kernels/methods/numbers.h"

namespace assay::kernels {
namespace {

constexpr int kSuper = 256;
constexpr int kScaleBytes = 12;  // of Q3_K, Q4_K and Q5_K

int Byte(const std::byte* at, int i) { return std::to_integer<int>(at[i]); }
void Or(std::byte* at, int i, int bits) { at[i] |= static_cast<std::byte>(bits); }

// Where each type keeps its codes and scales. Codes are as stored, 0 to kCodes − 1; the value is
// d·scale·(code − middle) − dmin·min.
struct Q2K {
  static constexpr int kCodes = 4, kMiddle = 0, kSub = 16, kScaleMost = 15, kD = 80, kMin = 82;
  static constexpr int kCodesAt = 16, kCodesEnd = 80;
  static int Code(const std::byte* b, int i) {
    return Byte(b, 16 + i / 128 * 32 + i % 32) >> (i / 32 % 4 * 2) & 3;
  }
  static void PutCode(std::byte* b, int i, int code) {
    Or(b, 16 + i / 128 * 32 + i % 32, code << (i / 32 % 4 * 2));
  }
  static int Scale(const std::byte* b, int j) { return Byte(b, j) & 15; }
  static int Min(const std::byte* b, int j) { return Byte(b, j) >> 4; }
  static void PutScale(std::byte* b, int j, int scale, int min) { Or(b, j, scale | min << 4); }
};

struct Q3K {
  static constexpr int kCodes = 8, kMiddle = 4, kSub = 16, kScaleMost = 31, kD = 108, kMin = -1;
  static constexpr int kCodesAt = 0, kCodesEnd = 96;
  // The third bit is in the mask, where it says "no 4 to take off".
  static int Code(const std::byte* b, int i) {
    const int low = Byte(b, 32 + i / 128 * 32 + i % 32) >> (i / 32 % 4 * 2) & 3;
    return low | (Byte(b, i % 32) >> (i / 32) & 1) << 2;
  }
  static void PutCode(std::byte* b, int i, int code) {
    Or(b, 32 + i / 128 * 32 + i % 32, (code & 3) << (i / 32 % 4 * 2));
    Or(b, i % 32, (code >> 2) << (i / 32));
  }
  static int Scale(const std::byte* b, int j) {
    const std::byte* s = b + 96;
    const int low = j < 8 ? Byte(s, j) & 15 : Byte(s, j - 8) >> 4;
    return (low | (Byte(s, 8 + j % 4) >> (j / 4 * 2) & 3) << 4) - 32;
  }
  static int Min(const std::byte*, int) { return 0; }
  static void PutScale(std::byte* b, int j, int scale, int) {
    std::byte* s = b + 96;
    const int stored = scale + 32;
    Or(s, j % 8, (stored & 15) << (j < 8 ? 0 : 4));
    Or(s, 8 + j % 4, (stored >> 4) << (j / 4 * 2));
  }
};

// The 6-bit scales and minima of Q4_K and Q5_K, in 12 bytes.
struct SixBits {
  static constexpr int kAt = 4;
  static int Scale(const std::byte* b, int j) {
    const std::byte* s = b + kAt;
    return j < 4 ? Byte(s, j) & 63 : (Byte(s, j + 4) & 15) | Byte(s, j - 4) >> 6 << 4;
  }
  static int Min(const std::byte* b, int j) {
    const std::byte* s = b + kAt;
    return j < 4 ? Byte(s, j + 4) & 63 : Byte(s, j + 4) >> 4 | Byte(s, j) >> 6 << 4;
  }
  static void PutScale(std::byte* b, int j, int scale, int min) {
    std::byte* s = b + kAt;
    if (j < 4) {
      Or(s, j, scale);
      Or(s, j + 4, min);
    } else {
      Or(s, j + 4, (scale & 15) | (min & 15) << 4);
      Or(s, j - 4, scale >> 4 << 6);
      Or(s, j, min >> 4 << 6);
    }
  }
};

struct Q4K : SixBits {
  static constexpr int kCodes = 16, kMiddle = 0, kSub = 32, kScaleMost = 63, kD = 0, kMin = 2;
  static constexpr int kCodesAt = kAt + kScaleBytes, kCodesEnd = 144;
  static int Code(const std::byte* b, int i) {
    return Byte(b, kCodesAt + i / 64 * 32 + i % 32) >> (i / 32 % 2 * 4) & 15;
  }
  static void PutCode(std::byte* b, int i, int code) {
    Or(b, kCodesAt + i / 64 * 32 + i % 32, code << (i / 32 % 2 * 4));
  }
};

struct Q5K : SixBits {
  static constexpr int kCodes = 32, kMiddle = 0, kSub = 32, kScaleMost = 63, kD = 0, kMin = 2;
  static constexpr int kCodesAt = kAt + kScaleBytes, kLow = kCodesAt + 32, kCodesEnd = 176;
  static int Code(const std::byte* b, int i) {
    const int low = Byte(b, kLow + i / 64 * 32 + i % 32) >> (i / 32 % 2 * 4) & 15;
    return low | (Byte(b, kCodesAt + i % 32) >> (i / 32) & 1) << 4;
  }
  static void PutCode(std::byte* b, int i, int code) {
    Or(b, kLow + i / 64 * 32 + i % 32, (code & 15) << (i / 32 % 2 * 4));
    Or(b, kCodesAt + i % 32, (code >> 4) << (i / 32));
  }
};

struct Q6K {
  static constexpr int kCodes = 64, kMiddle = 32, kSub = 16, kScaleMost = 127, kD = 208, kMin = -1;
  static constexpr int kCodesAt = 0, kHigh = 128, kScales = 192, kCodesEnd = kScales;
  static int Code(const std::byte* b, int i) {
    const int low = Byte(b, i / 128 * 64 + i % 64) >> (i / 64 % 2 * 4) & 15;
    return low | (Byte(b, kHigh + i / 128 * 32 + i % 32) >> (i / 32 % 4 * 2) & 3) << 4;
  }
  static void PutCode(std::byte* b, int i, int code) {
    Or(b, i / 128 * 64 + i % 64, (code & 15) << (i / 64 % 2 * 4));
    Or(b, kHigh + i / 128 * 32 + i % 32, (code >> 4) << (i / 32 % 4 * 2));
  }
  static int Scale(const std::byte* b, int j) {
    return static_cast<int>(LoadValue(DType::kI8, b + kScales, j));
  }
  static int Min(const std::byte*, int) { return 0; }
  static void PutScale(std::byte* b, int j, int scale, int) { Or(b, kScales + j, scale); }
};

template <class T>
struct K {
  static constexpr bool kHasMin = T::kMin >= 0;
  static constexpr int kSubs = kSuper / T::kSub;

  // Step and minimum of sub-block j, exactly: 11 bits times at most 7.
  static double Step(const std::byte* b, int j) { return Half(b + T::kD) * T::Scale(b, j); }
  static double Least(const std::byte* b, int j) {
    return kHasMin ? Half(b + T::kMin) * T::Min(b, j) : 0;
  }
  static Status Decode(const std::byte* b, double* out) {
    if (Status good = HalvesFinite(b + T::kD, kHasMin ? b + T::kMin : nullptr); !good.ok()) {
      return good;
    }
    for (int i = 0; i < kSuper; ++i) {
      out[i] = Step(b, i / T::kSub) * (T::Code(b, i) - T::kMiddle) - Least(b, i / T::kSub);
    }
    return Ok();
  }
  static void Encode(const double* x, std::byte* b) {
    for (int i = 0; i < kSuper; ++i) {
      const double step = Step(b, i / T::kSub), value = x[i] + Least(b, i / T::kSub);
      const double code = step == 0 ? 0 : RoundEven(value / step);
      T::PutCode(b, i, ClampCode(code + T::kMiddle, 0, T::kCodes - 1));
    }
  }
  static Status Pack(const double* x, std::byte* b) {
    double least[kSubs] = {}, most[kSubs] = {};
    for (int i = 0; i < kSuper; ++i) {
      least[i / T::kSub] = std::max(least[i / T::kSub], -x[i]);
      most[i / T::kSub] = std::max(most[i / T::kSub], x[i]);
    }
    int mins[kSubs] = {};
    if (kHasMin) {
      const double largest = *std::max_element(least, least + kSubs);
      std::byte* at = b + std::max(T::kMin, 0);
      if (Status good = PutHalfAtLeast(largest / T::kScaleMost, at); !good.ok()) return good;
      for (int j = 0; j < kSubs; ++j) {
        const double d = Half(at);
        mins[j] = d == 0 ? 0 : ClampCode(std::ceil(least[j] / d), 0, T::kScaleMost);
        least[j] = d * mins[j];
      }
    }
    double steps[kSubs];
    for (int j = 0; j < kSubs; ++j) {
      steps[j] = kHasMin ? (most[j] + least[j]) / (T::kCodes - 1)
                         : std::max(most[j], least[j]) / (T::kCodes - 1 - T::kMiddle);
    }
    const double largest = *std::max_element(steps, steps + kSubs);
    if (Status good = PutHalfAtLeast(largest / T::kScaleMost, b + T::kD); !good.ok()) return good;
    const double d = Half(b + T::kD);
    for (int j = 0; j < kSubs; ++j) {
      const int scale = d == 0 ? 0 : ClampCode(std::ceil(steps[j] / d), 0, T::kScaleMost);
      T::PutScale(b, j, scale, mins[j]);
    }
    Encode(x, b);
    return Ok();
  }
  static void Clear(std::byte* b) {
    std::memset(b + T::kCodesAt, 0, static_cast<size_t>(T::kCodesEnd - T::kCodesAt));
  }
};

template <class T>
constexpr BlockType RowOf(DType dtype) {
  return {dtype, K<T>::Decode, K<T>::Pack, K<T>::Encode, K<T>::Clear};
}

}  // namespace

const BlockType kQ2KBlock = RowOf<Q2K>(DType::kQ2K);
const BlockType kQ3KBlock = RowOf<Q3K>(DType::kQ3K);
const BlockType kQ4KBlock = RowOf<Q4K>(DType::kQ4K);
const BlockType kQ5KBlock = RowOf<Q5K>(DType::kQ5K);
const BlockType kQ6KBlock = RowOf<Q6K>(DType::kQ6K);

}  // namespace assay::kernels
