// GGUF's MXFP4 and NVFP4 blocks, whose nibbles lie otherwise than in every other format of theirs,
// and GGUF's row of the families.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/methods/blocks.h"
#include "kernels/methods/family.h"
#include "kernels/methods/numbers.h"

namespace assay::kernels {
namespace {

// E8M0, then 16 bytes: element j low, element j + 16 high.
constexpr int kMxBlock = 32, kMxHalf = 16;
// 4 scales E4M3 without a sign, each for 16 elements, then 8 bytes for each: element j low, j + 8
// high.
constexpr int kNvBlock = 64, kNvSub = 16, kNvHalf = 8, kNvScales = 4;

int NibbleOf(const std::byte* bytes, int i, int half) {
  const int byte = std::to_integer<int>(bytes[i % half]);
  return i < half ? byte & 15 : byte >> 4;
}

void PutNibble(std::byte* bytes, int i, int half, int code) {
  bytes[i % half] |= static_cast<std::byte>(code << (i < half ? 0 : 4));
}

Status MxDecode(const std::byte* block, double* out) {
  const auto byte = std::to_integer<uint8_t>(block[0]);
  if (byte == 0xFF) return Error{"its scale is 255, E8M0's NaN"};
  for (int i = 0; i < kMxBlock; ++i) {
    out[i] = FromE2m1(NibbleOf(block + 1, i, kMxHalf)) * FromE8m0(byte);
  }
  return Ok();
}

// The nearest code, ties towards zero, never −0: ggml takes the first of the best.
int TowardsZero(double value) {
  const double size = std::fabs(value);
  int best = 0;
  for (int code = 1; code < 8; ++code) {
    if (std::fabs(size - FromE2m1(code)) < std::fabs(size - FromE2m1(best))) best = code;
  }
  return best == 0 || value > 0 ? best : best | 8;
}

Status MxPack(const double* x, std::byte* block) {
  double amax = 0;
  for (int i = 0; i < kMxBlock; ++i) amax = std::max(amax, std::fabs(x[i]));
  const int exponent = amax == 0 ? 0 : std::clamp(std::ilogb(amax) - 2 + 127, 0, 254);
  block[0] = static_cast<std::byte>(exponent);
  const double scale = FromE8m0(static_cast<uint8_t>(exponent));
  for (int i = 0; i < kMxBlock; ++i) PutNibble(block + 1, i, kMxHalf, TowardsZero(x[i] / scale));
  return Ok();
}

void MxEncode(const double* x, std::byte* block) {
  const double scale = FromE8m0(std::to_integer<uint8_t>(block[0]));
  if (std::isnan(scale)) return;
  for (int i = 0; i < kMxBlock; ++i) PutNibble(block + 1, i, kMxHalf, ToE2m1(x[i] / scale));
}

void MxClear(std::byte* block) { std::memset(block + 1, 0, kMxHalf); }

// ggml reads 0x7F, which would be NaN, as 0, and takes no notice of the sign: 0xFF is 480.
double NvScale(std::byte stored) {
  if (stored == std::byte{0x7F}) return 0;
  return ValueOfCode(std::to_integer<uint32_t>(stored) & 0x7F, kE4m3);
}

Status NvDecode(const std::byte* block, double* out) {
  for (int i = 0; i < kNvBlock; ++i) {
    const int sub = i / kNvSub;
    const int code = NibbleOf(block + kNvScales + sub * kNvHalf, i % kNvSub, kNvHalf);
    out[i] = FromE2m1(code) * NvScale(block[sub]);
  }
  return Ok();
}

void NvEncode(const double* x, std::byte* block) {
  for (int i = 0; i < kNvBlock; ++i) {
    const int sub = i / kNvSub;
    const double scale = NvScale(block[sub]);
    const int code = ToE2m1(scale == 0 ? std::copysign(0, x[i]) : x[i] / scale);
    PutNibble(block + kNvScales + sub * kNvHalf, i % kNvSub, kNvHalf, code);
  }
}

Status NvPack(const double* x, std::byte* block) {
  for (int sub = 0; sub < kNvScales; ++sub) {
    double amax = 0;
    for (int i = 0; i < kNvSub; ++i) amax = std::max(amax, std::fabs(x[sub * kNvSub + i]));
    // There is no scale for the tensor beside these: beyond 448·6 nothing can be said.
    if (amax > kE4m3.largest * kE2m1.largest) {
      return Error{
          fmt::format("a magnitude of {} is beyond {}", amax, kE4m3.largest * kE2m1.largest)};
    }
    const uint32_t code = NearestCode(amax / kE2m1.largest, kE4m3);
    block[sub] = static_cast<std::byte>(amax == 0 ? 0 : std::max<uint32_t>(code, 1));
  }
  NvEncode(x, block);
  return Ok();
}

void NvClear(std::byte* block) { std::memset(block + kNvScales, 0, kNvBlock / 2); }

}  // namespace

const BlockType kMxfp4BlockType = {DType::kMxfp4Block, MxDecode, MxPack, MxEncode, MxClear};
const BlockType kNvfp4BlockType = {DType::kNvfp4Block, NvDecode, NvPack, NvEncode, NvClear};

const BlockType* FindBlock(DType dtype) {
  for (const BlockType* type :
       {&kQ4_0Block, &kQ4_1Block, &kQ5_0Block, &kQ5_1Block, &kQ8_0Block, &kQ2KBlock, &kQ3KBlock,
        &kQ4KBlock, &kQ5KBlock, &kQ6KBlock, &kMxfp4BlockType, &kNvfp4BlockType}) {
    if (type->dtype == dtype) return type;
  }
  return nullptr;
}

namespace {

Result<std::vector<PartSpec>> GgufParts(const Scheme& s, int64_t n, int64_t k) {
  const int64_t elements = ElementsOf(s.dtype).count();
  if (Status good = MustDivide("k", k, "block", elements); !good.ok()) return good.error();
  return std::vector<PartSpec>{{".weight", "weight", s.dtype, {n, k / elements}}};
}

Result<const TensorView*> Blocks(const Scheme& s, const PartViews& parts, int64_t n, int64_t k) {
  const int64_t elements = ElementsOf(s.dtype).count();
  if (Status good = MustDivide("k", k, "block", elements); !good.ok()) return good.error();
  return Need(parts, {".weight", {s.dtype}, {{n, k / elements}}});
}

Status GgufDecode(const Scheme& s, const PartViews& parts, int64_t n, int64_t k, double* out) {
  const Result<const TensorView*> view = Blocks(s, parts, n, k);
  if (!view.ok()) return view.error();
  const BlockType* type = FindBlock(s.dtype);
  const int64_t elements = ElementsOf(s.dtype).count(), bytes = SizeOf(s.dtype).count();
  for (int64_t b = 0; b < n * k / elements; ++b) {
    const Status good = type->decode((*view)->bytes.data() + b * bytes, out + b * elements);
    if (good.ok()) continue;
    const int64_t in_row = k / elements;
    return Bad(**view,
               fmt::format("block [{}, {}]: {}", b / in_row, b % in_row, good.error().message));
  }
  return Ok();
}

std::vector<double> BlockOf(const Values& w, int64_t b, int64_t elements) {
  std::vector<double> x(static_cast<size_t>(elements));
  for (int64_t i = 0; i < elements; ++i) {
    const int64_t at = b * elements + i;
    x[static_cast<size_t>(i)] = w.At(at / w.k, at % w.k);
  }
  return x;
}

Status GgufEncode(const Scheme& s, const Values& w, const PartViews& given, PackedPart* out) {
  const Result<const TensorView*> view = Blocks(s, given, w.n, w.k);
  if (!view.ok()) return view.error();
  const BlockType* type = FindBlock(s.dtype);
  const int64_t elements = ElementsOf(s.dtype).count(), bytes = SizeOf(s.dtype).count();
  // Pack's own view is of `out` itself: choosing has already written the codes.
  if ((*view)->bytes.data() == out->bytes.data()) return Ok();
  out->bytes.assign((*view)->bytes.begin(), (*view)->bytes.end());
  for (int64_t b = 0; b < w.n * w.k / elements; ++b) {
    std::byte* block = out->bytes.data() + b * bytes;
    type->clear(block);
    type->encode(BlockOf(w, b, elements).data(), block);
  }
  return Ok();
}

Status GgufChoose(const Scheme& s, const Values& w, const PackOptions&, Parts* parts) {
  const BlockType* type = FindBlock(s.dtype);
  const int64_t elements = ElementsOf(s.dtype).count(), bytes = SizeOf(s.dtype).count();
  for (int64_t b = 0; b < w.n * w.k / elements; ++b) {
    const Status good =
        type->pack(BlockOf(w, b, elements).data(), parts->front().bytes.data() + b * bytes);
    if (good.ok()) continue;
    const int64_t in_row = w.k / elements;
    return Error{fmt::format("block [{}, {}]: {}", b / in_row, b % in_row, good.error().message)};
  }
  return Ok();
}

}  // namespace

const FamilyRow kGgufRow = {GgufParts, {}, GgufDecode, GgufChoose, GgufEncode, nullptr};

}  // namespace assay::kernels
