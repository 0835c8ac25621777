/* Where a member of a structure lies, as one of the headers has it. */
#ifndef ASSAY_LAYOUT_ROW_H
#define ASSAY_LAYOUT_ROW_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct assay_layout_row {
  const char* structure;
  const char* member;
  size_t offset, size;
  size_t total; /* of the structure */
} assay_layout_row;

typedef struct assay_constant_row {
  const char* name;
  long long value;
} assay_constant_row;

#define ASSAY_LAYOUT_ROW(structure, member)                                           \
  {#structure, #member, offsetof(structure, member), sizeof(((structure*)0)->member), \
   sizeof(structure)},

/* The frozen header's. */
extern const assay_layout_row assay_layout_v1[];
extern const size_t assay_layout_v1_count;
extern const assay_constant_row assay_constants_v1[];
extern const size_t assay_constants_v1_count;

#ifdef __cplusplus
}
#endif
#endif
