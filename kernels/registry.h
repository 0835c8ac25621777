// The table of kernels. One row a kernel: the row generates its test, its benchmark and its matrix
// cells, and the dispatcher takes kernels from here and from nowhere else. A tier's rows live in
// kernels/cpu/<tier>/; this header holds no code, so that nothing compiled for a higher tier can
// leak into a lower one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace assay::kernels {

enum class Tier { kScalar, kAvx2, kAvx512 };
std::string_view NameOf(Tier tier);

// How a row's code runs: as instructions of its tier, or the same source compiled as portable
// intrinsics, which any host executes.
enum class How { kHardware, kPortable };
// "hardware", "emulated (portable intrinsics)".
std::string_view NameOf(How how);

enum class OpKind { kLinear, kRmsNorm, kRope, kScores, kContext, kSwiGlu, kRouter, kAdd, kCombine };
std::string_view NameOf(OpKind op);

// Weight of one linear op on one rank, in the kernel's layout.
struct WeightView {
  std::string_view layout;  // tag; a kernel given another than its own is refused
  int64_t n = 0, k = 0;     // logical rows and columns of this matrix
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;  // as the layout says; nullptr if none
  int64_t group = 0;                  // elements along k per scale; 0: none
};

// What enters a product, [m, k]. Which members are set says the kernel's `act`. Quantised
// activations are x = code·scale over groups of 32 along k (k is a multiple of 32); "a8row" repeats
// its one scale in every group.
struct Activations {
  const uint16_t* bf16 = nullptr;  // "a16": bits, row stride k
  const int8_t* codes = nullptr;   // "a8g32", "a8row": within ±127, row stride k
  const float* scales = nullptr;   // [m, k/32]
  const int32_t* sums = nullptr;   // [m, k/32]: Σ codes of each group
  const uint8_t* e4m3 = nullptr;   // "amxfp8": codes, row stride k; 0x7F and 0xFF are NaN
  // "amxfp4": E2M1 codes, two a byte, the even element in the low nibble; row stride k/2.
  const std::byte* e2m1 = nullptr;
  const uint8_t* e8m0 = nullptr;  // "amxfp8", "amxfp4": [m, k/32], 2^(byte − 127); 255 is NaN
};

// y[m, n] = x[m, k] Wᵀ, fp32 accumulation. y is fp32 with row stride y_stride: rounding to the
// contract's type is the caller's. Rows [n_begin, n_end) only, which are multiples of the row's
// `row_tile` but for the end: threads split here.
using LinearFn = void (*)(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                          int64_t n_end, float* y, int64_t y_stride);

struct LinearKernel {
  std::string_view name;    // "linear_bf16_row_avx2": op, method, layout, tier
  std::string_view method;  // "bf16", "ct-int4-g32", "deepseek-v4-mxfp4", "gguf-q4_1", "gguf-q8_0"
  Tier tier;
  How how = How::kHardware;  // both ways of a kernel have the same name
  std::string_view layout;   // the tag it takes
  std::string_view act;      // "a16", "a8g32", "a8row", "amxfp8", "amxfp4"
  // Depth: no term of an output passes more than ceil(k / lanes) + log2(lanes) + extra roundings.
  // `lanes` is L·U of numerics' formula, the terms that one step of an output's long sum takes in;
  // where a group is summed first, `extra` holds the roundings inside it and of its scale product.
  int lanes;
  int extra;
  // Members agree bit for bit on the same weights and x, whatever m, tier, layout or split. (The
  // bits of a NaN are not part of that.)
  std::string_view arithmetic_class;
  int64_t row_tile;  // a thread's rows are multiples of this
  LinearFn run;
  // Further methods whose weights are the same bytes in this layout: other producers of a format.
  std::span<const std::string_view> also = {};
};
// Whether the kernel computes with weights of the method: its own, or one of `also`.
bool Takes(const LinearKernel& kernel, std::string_view method);

// The other ops of a decoder; fp32 in and out, the caller rounds. One table a tier.
struct ElementwiseKernels {
  Tier tier;
  How how = How::kHardware;
  // y = x·rsqrt(mean(x²) + eps)·w for each of `rows` rows of n.
  void (*rms_norm)(const float* x, const float* w, float eps, int64_t rows, int64_t n, float* y);
  // y = silu(min(gate, limit))·clamp(up, −limit, limit); limit +inf: none. NaN stays NaN.
  void (*swiglu)(const float* gate, const float* up, float limit, int64_t count, float* y);
  // Rotates pairs of x [heads·dim] in place by cos, sin [dim/2]: half layout pairs (i, i + dim/2),
  // interleaved pairs (2i, 2i + 1).
  void (*rope)(float* x, int64_t heads, int64_t head_stride, int64_t dim, const float* cos,
               const float* sin, bool interleaved);
  // scores[j] = scale·Σ q[i]·k[j·k_stride + i], j in [0, keys)
  void (*scores)(const float* q, const float* k, int64_t dim, int64_t k_stride, int64_t keys,
                 float scale, float* scores);
  // ctx[i] = Σ_j softmax(scores)[j]·v[j·v_stride + i]; scores are overwritten with the softmax. At
  // least one score is finite. A key whose probability is 0 (masked: −inf) does not touch its v.
  void (*context)(float* scores, const float* v, int64_t dim, int64_t v_stride, int64_t keys,
                  float* ctx);
  void (*add)(const float* a, const float* b, int64_t count, float* y);
  // y += w·x
  void (*axpy)(float w, const float* x, int64_t count, float* y);
  // 8-bit activations of bf16 x [m, k], k a multiple of 32: over each group of `group` elements (a
  // multiple of 32 that divides k) s = amax / 127 in fp32, code = RNE(x / s) with one fp32
  // division, all 0 where amax is 0. scales and sums [m, k/32]: a group's scale stands in each of
  // its 32s. An infinity or NaN in a group makes its scale NaN and its codes 0.
  void (*quantise)(const uint16_t* x, int64_t m, int64_t k, int64_t group, int8_t* codes,
                   float* scales, int32_t* sums);
  // y = 1 / (1 + exp(-x))
  void (*sigmoid)(const float* x, int64_t count, float* y);
  // Depth of each reduction over n terms: ceil(n / lanes) + log2(lanes), + 1 for the product.
  int lanes;
  // Stated errors of its functions, in units of the last place of the true value (of the smallest
  // subnormal where the true value is below it); its test holds them against double.
  double exp_ulp, rsqrt_ulp, sigmoid_ulp;
  // y = exp(x), and y = 1/sqrt(x): what softmax and rms_norm use. Here so that a test can reach
  // them.
  void (*exp)(const float* x, int64_t count, float* y);
  void (*rsqrt)(const float* x, int64_t count, float* y);
  // SiTU: y = beta·tanh(g/beta)·sigmoid(g)·u with g = min(gate, limit), u = clamp(up, −limit,
  // limit); limit +inf: none. SiTUv2: beta_l·tanh(u/beta_l) in the place of u; beta_l +inf is SiTU.
  // beta is finite and positive, beta_l positive: nobody assumes them. NaN stays NaN.
  void (*situ)(const float* gate, const float* up, float beta, float beta_l, float limit,
               int64_t count, float* y);
  // y = tanh(x), and its stated error, as above.
  void (*tanh)(const float* x, int64_t count, float* y);
  double tanh_ulp;
};

// All rows compiled into this binary, whatever the host can run.
std::span<const LinearKernel> LinearKernels();
// nullptr: not built.
const ElementwiseKernels* Elementwise(Tier tier, How how = How::kHardware);
// What the host can run: CPUID and XGETBV, cut by the environment variable ASSAY_FAKE_TIERS (a
// comma list) so that the absence of a tier can be tested. A list can only take away.
bool HostHas(Tier tier);

}  // namespace assay::kernels
