// Rows of the avx2 tier: AVX2 and FMA, no F16C. Declarations and constants only.
#pragma once

#include "kernels/registry.h"

namespace assay::kernels::avx2 {

void LinearBf16Row(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                   int64_t n_end, float* y, int64_t y_stride);
void LinearCtInt4Split16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
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
    {.name = "linear_bf16_row_avx2",
     .method = "bf16",
     .tier = Tier::kAvx2,
     .layout = "row",
     .act = "a16",
     .lanes = 16,
     .extra = 0,
     .arithmetic_class = "bf16-fma16",
     .row_tile = 1,
     .run = LinearBf16Row},
    // The scalar row of this class derives lanes and extra.
    {.name = "linear_ct_int4_g32_split16_avx2",
     .method = "ct-int4-g32",
     .tier = Tier::kAvx2,
     .layout = "i4-split16",
     .act = "a16",
     .lanes = 64,
     .extra = 2,
     .arithmetic_class = "int4-g32-pair64",
     .row_tile = 1,
     .run = LinearCtInt4Split16},
};

inline constexpr ElementwiseKernels kElementwise = {
    .tier = Tier::kAvx2,
    .rms_norm = RmsNorm,
    .swiglu = SwiGlu,
    .rope = Rope,
    .scores = Scores,
    .context = Context,
    .add = Add,
    .axpy = Axpy,
    .quantise = nullptr,
    .sigmoid = Sigmoid,
    .lanes = 8,
    // Measured: exp 1.04; sigmoid, which adds a sum and a quotient, 2.41.
    .exp_ulp = 1.1,
    .rsqrt_ulp = 0.5001,  // in double, rounded once
    .sigmoid_ulp = 2.5,
    .exp = Exp,
    .rsqrt = Rsqrt,
};

}  // namespace assay::kernels::avx2
