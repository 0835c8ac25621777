// The AVX-512 (F, BW, DQ, VL) and older intrinsics that kernels/cpu/avx512 uses, as C++ for any
// host: same names, same results bit for bit. A name that is not here is one that no kernel uses;
// README.md says how to add one.
#pragma once

// immintrin.h's macros would take these names; and a file that has both has mixed up its tiers.
#ifdef _IMMINTRIN_H_INCLUDED
#error "portable intrinsics and immintrin.h in one file"
#endif

#include "kernels/cpu/portable/arithmetic.h"
#include "kernels/cpu/portable/convert.h"
#include "kernels/cpu/portable/integer.h"
#include "kernels/cpu/portable/memory.h"
#include "kernels/cpu/portable/types.h"
