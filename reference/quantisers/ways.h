// One function a library's way, and the roundings that they share. Private to this room.
#pragma once

#include "reference/quantisers/variants.h"

namespace assay::reference::quantisers {

// One operation in double, rounded to fp32, is the fp32 operation: 53 ≥ 2·24 + 2.
double Fp32(double value);
// The field of the exponent of a non-negative fp32 (0: subnormal or 0), and the 23 bits below it as
// a fraction in [0, 1).
struct Fields {
  int exponent = 0;
  double fraction = 0;
};
Fields FieldsOf(double value);
// floor or ceil of log2 as fp32 has it: next to a power of two the rounding decides.
double FloorLog2(double value);
double CeilLog2(double value);

// To the nearest, ties to even. Beyond 464 (the tie above 448) NaN, as torch casts.
uint8_t ToE4M3(double value);
uint8_t ToE4M3Clamped(double value);
// To the nearest; beyond 6 it is 6; the sign of a zero is kept.
uint8_t ToE2M1(double value);      // ties to even
uint8_t ToE2M1Away(double value);  // ties away from zero
double RoundEven(double value);

// Integers, one scale a row.
void Int8Vllm(const ActGroup& group, ActCoded* coded);
void Int8VllmAsymmetric(const ActGroup& group, ActCoded* coded);
void Int8Aiter(const ActGroup& group, ActCoded* coded);
void Int8CompressedTensors(const ActGroup& group, ActCoded* coded);
void Q8Gguf(const ActGroup& group, ActCoded* coded);
// E4M3 with an fp32 scale.
void Fp8Aiter(const ActGroup& group, ActCoded* coded);
void Fp8VllmToken(const ActGroup& group, ActCoded* coded);
void Fp8VllmGroup(const ActGroup& group, ActCoded* coded);
void Fp8VllmPowers(const ActGroup& group, ActCoded* coded);

// Powers of two. How the exponent follows from the largest size: its own rounded down or up,
// rounded at the element's precision and then down; or that of amax / the largest element, up or
// down.
enum class Exponent { kFloor, kCeil, kEven, kQuotientUp, kQuotientDown };
template <ActElement element, Exponent exponent>
void MxAiter(const ActGroup& group, ActCoded* coded);
template <ActElement element, Exponent exponent>
void MxTorchao(const ActGroup& group, ActCoded* coded);
template <ActElement element, Exponent exponent>
void MxTriton(const ActGroup& group, ActCoded* coded);
void Mxfp8Vllm(const ActGroup& group, ActCoded* coded);
void Mxfp8SglangKt(const ActGroup& group, ActCoded* coded);
void Mxfp4Gguf(const ActGroup& group, ActCoded* coded);

// Two levels.
void Nvfp4Torchao(const ActGroup& group, ActCoded* coded);
void Nvfp4Vllm(const ActGroup& group, ActCoded* coded);
double GlobalTorchao(double amax);
double GlobalVllm(double amax);

}  // namespace assay::reference::quantisers
