// Rows of the scalar tier: plain C++ for any x86-64 (or other) host.
#pragma once

#include "kernels/registry.h"

namespace assay::kernels::scalar {

void LinearBf16Row(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                   int64_t n_end, float* y, int64_t y_stride);
void LinearCtInt4Row(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                     int64_t n_end, float* y, int64_t y_stride);
void LinearCtInt4A8Row(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                       int64_t n_end, float* y, int64_t y_stride);
void LinearMxfp4Row(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                    int64_t n_end, float* y, int64_t y_stride);
void LinearMxfp4A8Row(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                      int64_t n_end, float* y, int64_t y_stride);
void LinearQ41Row(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                  int64_t n_end, float* y, int64_t y_stride);
void LinearQ41A8Row(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                    int64_t n_end, float* y, int64_t y_stride);
void LinearQ80Row(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                  int64_t n_end, float* y, int64_t y_stride);
void LinearQ80A8Row(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                    int64_t n_end, float* y, int64_t y_stride);

void LinearMxfp4KLane(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                      int64_t n_end, float* y, int64_t y_stride);
void LinearMxfp4Interleaved(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                            int64_t n_end, float* y, int64_t y_stride);
void LinearMxfp4Mxfp8KLane(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                           int64_t n_end, float* y, int64_t y_stride);
void LinearMxfp4Mxfp8Interleaved(const WeightView& w, const Activations& x, int64_t m,
                                 int64_t n_begin, int64_t n_end, float* y, int64_t y_stride);
void LinearMxfp4Mxfp4Separated(const WeightView& w, const Activations& x, int64_t m,
                               int64_t n_begin, int64_t n_end, float* y, int64_t y_stride);

void RmsNorm(const float* x, const float* w, float eps, int64_t rows, int64_t n, float* y);
void SwiGlu(const float* gate, const float* up, float limit, int64_t count, float* y);
void Quantise(const uint16_t* x, int64_t m, int64_t k, int64_t group, int8_t* codes, float* scales,
              int32_t* sums);
void Rope(float* x, int64_t heads, int64_t head_stride, int64_t dim, const float* cos,
          const float* sin, bool interleaved);
void Scores(const float* q, const float* k, int64_t dim, int64_t k_stride, int64_t keys,
            float scale, float* scores);
void Context(float* scores, const float* v, int64_t dim, int64_t v_stride, int64_t keys,
             float* ctx);
void Add(const float* a, const float* b, int64_t count, float* y);
void Axpy(float w, const float* x, int64_t count, float* y);
void Sigmoid(const float* x, int64_t count, float* y);
void Exp(const float* x, int64_t count, float* y);
void Rsqrt(const float* x, int64_t count, float* y);
void Situ(const float* gate, const float* up, float beta, float beta_l, float limit, int64_t count,
          float* y);
void Tanh(const float* x, int64_t count, float* y);

// The arithmetic of each class, to the bit (all of fp32 is rounded to nearest, ties to even):
//
// "bf16-fma16". 16 accumulators from +0: element k goes to accumulator k mod 16, fused, one
// rounding
//   a term. At the end accumulators 2i and 2i + 1 are added, then of those eight sums i and i + 4,
//   i and i + 2, i and i + 1.
// "M-quad4", 16-bit activations. y starts at +0 and takes in one group of 32 after the other, in
//   order. In a group four chains from +0: element e goes to chain e mod 4 in ascending order,
//   t = fma(x[e], q[e], t), where q is the code's value before its scale (int4: −8…7; E2M1: ±0…±6;
//   Q4_1: 0…15; Q8_0: −128…127). Then y = fma((t0 + t1) + (t2 + t3), scale, y); for Q4_1 after
//   that y = fma((X0 + X1) + (X2 + X3), m, y), where the chains X add x[e] alone.
// "M-i8", 8-bit activations. y starts at +0 and takes in one group of 32 after the other, in order.
//   I = Σ q·code over the group, exact; y = fma(fl(float(I)·s_x), scale, y). I is an integer (of
//   E2M1 a multiple of a half, and float(I) that half) below 2^24: float(I) is exact. For Q4_1
//   after that y = fma(fl(float(S)·s_x), m, y), S = Σ code.
// "M-quad4-mx", FP8 activations under E8M0 scales. As quad4 with x[e] the E4M3 code's value, but
//   y = fma(fl(((t0 + t1) + (t2 + t3))·s_x), scale, y).
// "M-i4-mx", MXFP4 activations. As i8 with x's code the E2M1 code's value: I is a multiple of a
//   quarter below 2^11, exact.
// Depth, quad4: a term passes seven additions of its chain (the first product is exact) and two
//   more of the group, then one fused addition a group: k/32 + 9 = ceil(k/32) + log2(32) + 4. Q4_1
//   adds twice a group: k/16 + 9 = ceil(k/16) + log2(16) + 5.
// Depth, quad4-mx: one more for the product by s_x.
// Depth, i8 and i4: the product by s_x and one fused addition a group, k/32 + 1; Q4_1: k/16 + 1.
//
// All of these producers store MXFP4 as rows of bytes, the even element in the low nibble, and a
// byte of scale for 32 of them; deepseek-v4-mxfp4 speaks for them.
inline constexpr std::string_view kMxfp4Methods[] = {"ct-mxfp4", "gptoss-mxfp4", "quark-mxfp4"};

inline constexpr LinearKernel kLinear[] = {
    {.name = "linear_bf16_row_scalar",
     .method = "bf16",
     .tier = Tier::kScalar,
     .layout = "row",
     .act = "a16",
     .lanes = 16,
     .extra = 0,
     .arithmetic_class = "bf16-fma16",
     .row_tile = 1,
     .run = LinearBf16Row},
    {.name = "linear_ct_int4_g32_row_scalar",
     .method = "ct-int4-g32",
     .tier = Tier::kScalar,
     .layout = "row",
     .act = "a16",
     .lanes = 32,
     .extra = 4,
     .arithmetic_class = "int4-g32-quad4",
     .row_tile = 1,
     .run = LinearCtInt4Row},
    {.name = "linear_ct_int4_g32_a8g32_row_scalar",
     .method = "ct-int4-g32",
     .tier = Tier::kScalar,
     .layout = "row",
     .act = "a8g32",
     .lanes = 32,
     .extra = 0,
     .arithmetic_class = "int4-g32-i8",
     .row_tile = 1,
     .run = LinearCtInt4A8Row},
    {.name = "linear_ct_int4_g32_a8row_row_scalar",
     .method = "ct-int4-g32",
     .tier = Tier::kScalar,
     .layout = "row",
     .act = "a8row",
     .lanes = 32,
     .extra = 0,
     .arithmetic_class = "int4-g32-i8",
     .row_tile = 1,
     .run = LinearCtInt4A8Row},
    {.name = "linear_mxfp4_row_scalar",
     .method = "deepseek-v4-mxfp4",
     .tier = Tier::kScalar,
     .layout = "row",
     .act = "a16",
     .lanes = 32,
     .extra = 4,
     .arithmetic_class = "mxfp4-quad4",
     .row_tile = 1,
     .run = LinearMxfp4Row,
     .also = kMxfp4Methods},
    {.name = "linear_mxfp4_a8g32_row_scalar",
     .method = "deepseek-v4-mxfp4",
     .tier = Tier::kScalar,
     .layout = "row",
     .act = "a8g32",
     .lanes = 32,
     .extra = 0,
     .arithmetic_class = "mxfp4-i8",
     .row_tile = 1,
     .run = LinearMxfp4A8Row,
     .also = kMxfp4Methods},
    {.name = "linear_mxfp4_a8row_row_scalar",
     .method = "deepseek-v4-mxfp4",
     .tier = Tier::kScalar,
     .layout = "row",
     .act = "a8row",
     .lanes = 32,
     .extra = 0,
     .arithmetic_class = "mxfp4-i8",
     .row_tile = 1,
     .run = LinearMxfp4A8Row,
     .also = kMxfp4Methods},
    {.name = "linear_q4_1_row_scalar",
     .method = "gguf-q4_1",
     .tier = Tier::kScalar,
     .layout = "row",
     .act = "a16",
     .lanes = 16,
     .extra = 5,
     .arithmetic_class = "q4_1-quad4",
     .row_tile = 1,
     .run = LinearQ41Row},
    {.name = "linear_q4_1_a8g32_row_scalar",
     .method = "gguf-q4_1",
     .tier = Tier::kScalar,
     .layout = "row",
     .act = "a8g32",
     .lanes = 16,
     .extra = 0,
     .arithmetic_class = "q4_1-i8",
     .row_tile = 1,
     .run = LinearQ41A8Row},
    {.name = "linear_q4_1_a8row_row_scalar",
     .method = "gguf-q4_1",
     .tier = Tier::kScalar,
     .layout = "row",
     .act = "a8row",
     .lanes = 16,
     .extra = 0,
     .arithmetic_class = "q4_1-i8",
     .row_tile = 1,
     .run = LinearQ41A8Row},
    {.name = "linear_q8_0_row_scalar",
     .method = "gguf-q8_0",
     .tier = Tier::kScalar,
     .layout = "row",
     .act = "a16",
     .lanes = 32,
     .extra = 4,
     .arithmetic_class = "q8_0-quad4",
     .row_tile = 1,
     .run = LinearQ80Row},
    {.name = "linear_q8_0_a8g32_row_scalar",
     .method = "gguf-q8_0",
     .tier = Tier::kScalar,
     .layout = "row",
     .act = "a8g32",
     .lanes = 32,
     .extra = 0,
     .arithmetic_class = "q8_0-i8",
     .row_tile = 1,
     .run = LinearQ80A8Row},
    {.name = "linear_q8_0_a8row_row_scalar",
     .method = "gguf-q8_0",
     .tier = Tier::kScalar,
     .layout = "row",
     .act = "a8row",
     .lanes = 32,
     .extra = 0,
     .arithmetic_class = "q8_0-i8",
     .row_tile = 1,
     .run = LinearQ80A8Row},
    {.name = "linear_mxfp4_aiter_klane_scalar",
     .method = "deepseek-v4-mxfp4",
     .tier = Tier::kScalar,
     .layout = "aiter-klane",
     .act = "a16",
     .lanes = 32,
     .extra = 4,
     .arithmetic_class = "mxfp4-quad4",
     .row_tile = 1,
     .run = LinearMxfp4KLane,
     .also = kMxfp4Methods},
    {.name = "linear_mxfp4_aiter_interleaved_scalar",
     .method = "deepseek-v4-mxfp4",
     .tier = Tier::kScalar,
     .layout = "aiter-interleaved",
     .act = "a16",
     .lanes = 32,
     .extra = 4,
     .arithmetic_class = "mxfp4-quad4",
     .row_tile = 1,
     .run = LinearMxfp4Interleaved,
     .also = kMxfp4Methods},
    {.name = "linear_mxfp4_amxfp8_aiter_klane_scalar",
     .method = "deepseek-v4-mxfp4",
     .tier = Tier::kScalar,
     .layout = "aiter-klane",
     .act = "amxfp8",
     .lanes = 32,
     .extra = 5,
     .arithmetic_class = "mxfp4-quad4-mx",
     .row_tile = 1,
     .run = LinearMxfp4Mxfp8KLane,
     .also = kMxfp4Methods},
    {.name = "linear_mxfp4_amxfp8_aiter_interleaved_scalar",
     .method = "deepseek-v4-mxfp4",
     .tier = Tier::kScalar,
     .layout = "aiter-interleaved",
     .act = "amxfp8",
     .lanes = 32,
     .extra = 5,
     .arithmetic_class = "mxfp4-quad4-mx",
     .row_tile = 1,
     .run = LinearMxfp4Mxfp8Interleaved,
     .also = kMxfp4Methods},
    {.name = "linear_mxfp4_amxfp4_aiter_separated_scalar",
     .method = "deepseek-v4-mxfp4",
     .tier = Tier::kScalar,
     .layout = "aiter-separated",
     .act = "amxfp4",
     .lanes = 32,
     .extra = 0,
     .arithmetic_class = "mxfp4-i4-mx",
     .row_tile = 1,
     .run = LinearMxfp4Mxfp4Separated,
     .also = kMxfp4Methods},
};

inline constexpr ElementwiseKernels kElementwise = {
    .tier = Tier::kScalar,
    .rms_norm = RmsNorm,
    .swiglu = SwiGlu,
    .rope = Rope,
    .scores = Scores,
    .context = Context,
    .add = Add,
    .axpy = Axpy,
    .quantise = Quantise,
    .sigmoid = Sigmoid,
    .lanes = 8,
    // Evaluated in double, rounded once.
    .exp_ulp = 0.5001,
    .rsqrt_ulp = 0.5001,
    .sigmoid_ulp = 0.5001,
    .exp = Exp,
    .rsqrt = Rsqrt,
    .situ = Situ,
    .tanh = Tanh,
    .tanh_ulp = 0.5001,
};

}  // namespace assay::kernels::scalar
