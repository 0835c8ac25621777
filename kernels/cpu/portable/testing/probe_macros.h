// What probes.inc is written in. For files that have chosen their intrinsics; everything has
// internal linkage, because each such file is compiled for a tier of its own.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/portable/testing/probe.h"

namespace assay::kernels::testing {
namespace {

template <class T>
inline T At(const uint8_t* bytes, int i) {
  T value;
  std::memcpy(&value, bytes + i * static_cast<int>(sizeof value), sizeof value);
  return value;
}
template <class T>
inline T A(const Operands& o) {
  return At<T>(o.a, 0);
}
template <class T>
inline T B(const Operands& o) {
  return At<T>(o.b, 0);
}
template <class T>
inline T C(const Operands& o) {
  return At<T>(o.c, 0);
}
template <class T>
inline void Put(uint8_t* out, T value) {
  std::memcpy(out, &value, sizeof value);
}

#define PROBE(name, same, arguments) \
  {#name, Same::same,                \
   []([[maybe_unused]] const Operands& o, uint8_t* out) { Put(out, name arguments); }},
#define PROBE_AS(label, same, ...) \
  {label, Same::same, [](const Operands& o, uint8_t* out) { Put(out, __VA_ARGS__); }},
#define PROBE_IMM(name, same, a, imm) \
  {#name "/" #imm, Same::same, [](const Operands& o, uint8_t* out) { Put(out, name(a, imm)); }},
#define PROBE_IMM2(name, same, a, b, imm) \
  {#name "/" #imm, Same::same, [](const Operands& o, uint8_t* out) { Put(out, name(a, b, imm)); }},
#define PROBE_STORE(name, arguments) \
  {#name, Same::kBits, [](const Operands& o, uint8_t* out) { name arguments; }},

}  // namespace
}  // namespace assay::kernels::testing
