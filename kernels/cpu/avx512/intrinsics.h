// Where the names of AVX-512 come from. Every source of this folder is compiled twice: as
// instructions, and with ASSAY_PORTABLE_INTRINSICS as plain C++ that any host runs. Both ways
// define the same functions, in a namespace each (rows.h declares them).
#pragma once

#ifdef ASSAY_PORTABLE_INTRINSICS
#include "kernels/cpu/portable/avx512_intrinsics.h"
#define ASSAY_AVX512 avx512_portable
#else
#include <immintrin.h>
#define ASSAY_AVX512 avx512
#endif
