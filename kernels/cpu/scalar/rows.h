// Rows of the scalar tier: plain C++ for any x86-64 (or other) host.
#pragma once

#include "kernels/registry.h"

namespace assay::kernels::scalar {

void LinearBf16Row(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                   int64_t n_end, float* y, int64_t y_stride);
void LinearCtInt4Row(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                     int64_t n_end, float* y, int64_t y_stride);

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

inline constexpr LinearKernel kLinear[] = {
    // One fused rounding a term, 16 accumulators: element k goes to accumulator k mod 16.
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
    // A step of the long sum takes in two groups, 64 terms. On a term's way: three additions in its
    // part of the group (products are exact), even + odd, the scale product, ceil(k/64) additions
    // of
    // the long sum, log2(8) at the end: ceil(k/64) + log2(64) + 2.
    {.name = "linear_ct_int4_g32_row_scalar",
     .method = "ct-int4-g32",
     .tier = Tier::kScalar,
     .layout = "row",
     .act = "a16",
     .lanes = 64,
     .extra = 2,
     .arithmetic_class = "int4-g32-pair64",
     .row_tile = 1,
     .run = LinearCtInt4Row},
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
};

}  // namespace assay::kernels::scalar
