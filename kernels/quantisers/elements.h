// What the quantisers share: bits of fp32, powers of two, codes. Private to this room.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/quantisers/quantisers.h"

namespace assay::kernels::quantisers {

inline uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }
inline float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }

// log2 as fp32 has it: beside a power of two it is that power's.
inline float Log2(float x) { return static_cast<float>(std::log2(double{x})); }

// What fp32 has for 2^(byte − 127); 0 is 2^-127, a subnormal number.
inline float PowerOf(uint32_t byte) { return FromBits(byte == 0 ? 0x00400000 : byte << 23); }

// To the nearest integer, ties to even, whatever the host's rounding mode. |x| ≤ 2^22.
inline float RoundEven(float x) {
  const float floor = std::floor(x), rest = x - floor;
  if (rest != 0.5F) return rest < 0.5F ? floor : floor + 1;
  return std::fmod(floor, 2.0F) == 0 ? floor : floor + 1;
}

// The nearest bf16, ties to even, as a float. Finite x.
float RoundToBf16(float x);
// fp16 bits, nearest, ties to even; beyond its range infinity. x ≥ 0.
uint16_t ToF16(float x);
// The nearest E4M3 (FN) code, ties to even; beyond 448 it saturates.
uint8_t ToE4m3(float x);
float FromE4m3(uint8_t code);
// The nearest E2M1 code by `rounding`; beyond 6 it saturates; the sign of a zero is kept.
uint8_t ToE2m1(float x, Rounding rounding);
float FromE2m1(int code);

// The activations of one group, as fp32.
std::vector<float> LoadGroup(const Activation& x, int64_t first, int64_t count);
float Amax(const std::vector<float>& group);

// Elements in a group of this activation.
inline int64_t GroupOf(const Quantiser& q, const Activation& x) {
  return q.group == 0 ? x.columns : q.group;
}

// Puts an element's code where it belongs.
void PutCode(const Quantiser& q, int64_t at, uint8_t code, QuantisedActivation* out);
template <class T>
void PutScale(int64_t at, T scale, QuantisedActivation* out) {
  std::memcpy(out->scales.data() + at * static_cast<int64_t>(sizeof scale), &scale, sizeof scale);
}

// One function for each way of a library; what they have in common with others is in their rows.
void Int8VllmCpu(const Quantiser& q, const Activation& x, QuantisedActivation* out);
void Int8VllmCpuAsym(const Quantiser& q, const Activation& x, QuantisedActivation* out);
void Int8CompressedTensors(const Quantiser& q, const Activation& x, QuantisedActivation* out);
void LinearAiter(const Quantiser& q, const Activation& x, QuantisedActivation* out);
void Fp8Vllm(const Quantiser& q, const Activation& x, QuantisedActivation* out);
void Q80Gguf(const Quantiser& q, const Activation& x, QuantisedActivation* out);
void MxTorchao(const Quantiser& q, const Activation& x, QuantisedActivation* out);
void MxRoundUpTorchao(const Quantiser& q, const Activation& x, QuantisedActivation* out);
void MxAiter(const Quantiser& q, const Activation& x, QuantisedActivation* out);
void MxTriton(const Quantiser& q, const Activation& x, QuantisedActivation* out);
void MxLog2(const Quantiser& q, const Activation& x, QuantisedActivation* out);
void Mxfp4Gguf(const Quantiser& q, const Activation& x, QuantisedActivation* out);
void Nvfp4Torchao(const Quantiser& q, const Activation& x, QuantisedActivation* out);
void Nvfp4Vllm(const Quantiser& q, const Activation& x, QuantisedActivation* out);

}  // namespace assay::kernels::quantisers
