/* The frozen header's layout, as data. In C, and alone: both headers in one file would clash. */
#include "harness/abi/old/assay_engine_v1.h"
#include "harness/abi/old/layout_row.h"

const assay_layout_row assay_layout_v1[] = {
#define MEMBER(structure, member) ASSAY_LAYOUT_ROW(structure, member)
#include "harness/abi/old/members_v1.inc"
#undef MEMBER
};
const size_t assay_layout_v1_count = sizeof assay_layout_v1 / sizeof assay_layout_v1[0];

const assay_constant_row assay_constants_v1[] = {
#define CONSTANT(name) {#name, name},
#include "harness/abi/old/constants_v1.inc"
#undef CONSTANT
};
const size_t assay_constants_v1_count = sizeof assay_constants_v1 / sizeof assay_constants_v1[0];
