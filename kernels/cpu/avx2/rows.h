// Rows of the avx2 tier: AVX2 and FMA, no F16C. Declarations and constants only.
#pragma once

#include "kernels/registry.h"

namespace assay::kernels::avx2 {

void LinearBf16Row(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                   int64_t n_end, float* y, int64_t y_stride);
void LinearCtInt4Rows16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                        int64_t n_end, float* y, int64_t y_stride);
void LinearCtInt4A8Rows16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                          int64_t n_end, float* y, int64_t y_stride);
void LinearMxfp4Rows16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                       int64_t n_end, float* y, int64_t y_stride);
void LinearMxfp4A8Rows16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                         int64_t n_end, float* y, int64_t y_stride);
void LinearQ41Rows16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                     int64_t n_end, float* y, int64_t y_stride);
void LinearQ41A8Rows16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                       int64_t n_end, float* y, int64_t y_stride);
void LinearQ80Rows16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
                     int64_t n_end, float* y, int64_t y_stride);
void LinearQ80A8Rows16(const WeightView& w, const Activations& x, int64_t m, int64_t n_begin,
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

// The scalar rows state the classes' arithmetic and derive lanes and extra.
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
    {.name = "linear_ct_int4_g32_rows16_avx2",
     .method = "ct-int4-g32",
     .tier = Tier::kAvx2,
     .layout = "rows16",
     .act = "a16",
     .lanes = 32,
     .extra = 4,
     .arithmetic_class = "int4-g32-quad4",
     .row_tile = 16,
     .run = LinearCtInt4Rows16},
    {.name = "linear_ct_int4_g32_a8g32_rows16_avx2",
     .method = "ct-int4-g32",
     .tier = Tier::kAvx2,
     .layout = "rows16",
     .act = "a8g32",
     .lanes = 32,
     .extra = 0,
     .arithmetic_class = "int4-g32-i8",
     .row_tile = 16,
     .run = LinearCtInt4A8Rows16},
    {.name = "linear_ct_int4_g32_a8row_rows16_avx2",
     .method = "ct-int4-g32",
     .tier = Tier::kAvx2,
     .layout = "rows16",
     .act = "a8row",
     .lanes = 32,
     .extra = 0,
     .arithmetic_class = "int4-g32-i8",
     .row_tile = 16,
     .run = LinearCtInt4A8Rows16},
    {.name = "linear_mxfp4_rows16_avx2",
     .method = "deepseek-v4-mxfp4",
     .tier = Tier::kAvx2,
     .layout = "rows16",
     .act = "a16",
     .lanes = 32,
     .extra = 4,
     .arithmetic_class = "mxfp4-quad4",
     .row_tile = 16,
     .run = LinearMxfp4Rows16},
    {.name = "linear_mxfp4_a8g32_rows16_avx2",
     .method = "deepseek-v4-mxfp4",
     .tier = Tier::kAvx2,
     .layout = "rows16",
     .act = "a8g32",
     .lanes = 32,
     .extra = 0,
     .arithmetic_class = "mxfp4-i8",
     .row_tile = 16,
     .run = LinearMxfp4A8Rows16},
    {.name = "linear_mxfp4_a8row_rows16_avx2",
     .method = "deepseek-v4-mxfp4",
     .tier = Tier::kAvx2,
     .layout = "rows16",
     .act = "a8row",
     .lanes = 32,
     .extra = 0,
     .arithmetic_class = "mxfp4-i8",
     .row_tile = 16,
     .run = LinearMxfp4A8Rows16},
    {.name = "linear_q4_1_rows16_avx2",
     .method = "gguf-q4_1",
     .tier = Tier::kAvx2,
     .layout = "rows16",
     .act = "a16",
     .lanes = 16,
     .extra = 5,
     .arithmetic_class = "q4_1-quad4",
     .row_tile = 16,
     .run = LinearQ41Rows16},
    {.name = "linear_q4_1_a8g32_rows16_avx2",
     .method = "gguf-q4_1",
     .tier = Tier::kAvx2,
     .layout = "rows16",
     .act = "a8g32",
     .lanes = 16,
     .extra = 0,
     .arithmetic_class = "q4_1-i8",
     .row_tile = 16,
     .run = LinearQ41A8Rows16},
    {.name = "linear_q4_1_a8row_rows16_avx2",
     .method = "gguf-q4_1",
     .tier = Tier::kAvx2,
     .layout = "rows16",
     .act = "a8row",
     .lanes = 16,
     .extra = 0,
     .arithmetic_class = "q4_1-i8",
     .row_tile = 16,
     .run = LinearQ41A8Rows16},
    {.name = "linear_q8_0_rows16_avx2",
     .method = "gguf-q8_0",
     .tier = Tier::kAvx2,
     .layout = "rows16",
     .act = "a16",
     .lanes = 32,
     .extra = 4,
     .arithmetic_class = "q8_0-quad4",
     .row_tile = 16,
     .run = LinearQ80Rows16},
    {.name = "linear_q8_0_a8g32_rows16_avx2",
     .method = "gguf-q8_0",
     .tier = Tier::kAvx2,
     .layout = "rows16",
     .act = "a8g32",
     .lanes = 32,
     .extra = 0,
     .arithmetic_class = "q8_0-i8",
     .row_tile = 16,
     .run = LinearQ80A8Rows16},
    {.name = "linear_q8_0_a8row_rows16_avx2",
     .method = "gguf-q8_0",
     .tier = Tier::kAvx2,
     .layout = "rows16",
     .act = "a8row",
     .lanes = 32,
     .extra = 0,
     .arithmetic_class = "q8_0-i8",
     .row_tile = 16,
     .run = LinearQ80A8Rows16},
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
    .quantise = Quantise,
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
