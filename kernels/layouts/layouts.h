// Repacks, each with its inverse and its tag. A layout is a named tag that travels with the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "harness/units/dtype.h"
#include "harness/units/status.h"

namespace assay::kernels {

// One component on one rank as it lies in layout "row": rows × columns values of `dtype` (int32
// words of eight codes, say), one row after the other. A matrix is one expert's: fused experts are
// packed one after another. What follows the extents is for the layouts that say so; the others
// ignore it.
struct StoredShape {
  DType dtype = DType::kBF16;
  int64_t rows = 0, columns = 0;
  int64_t k = 0;            // elements along K on this rank: scales of "marlin-padded"
  int64_t group = 0;        // elements along K of one scale, 0: one scale a row: "marlin-padded"
  int64_t nope = 0, v = 0;  // rows of one head of kv_b, keys then values: "mla-absorb"
  // Weights whose scales are found through g_idx, in layout "marlin": element i of K in the layout
  // is element order[i] of the checkpoint. The shape does not own it.
  std::span<const int32_t> order = {};
};

struct Layout {
  std::string_view tag;     // "row", "rows16", "marlin"
  std::string_view method;  // whose components it takes: one id in Layouts(), else words for many
  std::string_view part;    // "weight", "scale", "zero", ...; "": any
  // Bytes of the layout for a stored shape, padding included; -1 where the layout does not take the
  // shape: another dtype, a negative extent, a parameter that is missing or does not fit, or more
  // bytes than 63 bits count.
  int64_t (*bytes)(const StoredShape& shape);
  // pack: row -> layout; unpack: layout -> row, its inverse. The row side is rows·columns values,
  // the layout's side bytes(shape), which must not be -1. Neither side needs an alignment; they do
  // not overlap. Padding gets codes whose value is 0 wherever the method has one, and scales of 0.
  // Both take time proportional to the bytes.
  void (*pack)(const StoredShape& shape, const std::byte* in, std::byte* out);
  void (*unpack)(const StoredShape& shape, const std::byte* in, std::byte* out);
  // Says why these very values have no place in the layout (a negative NVFP4 scale in Marlin's
  // format without a sign), or nullptr. A nullptr member: every value has one.
  const char* (*objection)(const StoredShape& shape, const std::byte* in) = nullptr;
};

// Every layout of every method of KnownSchemes(), one entry for each (tag, method, part); an entry
// whose part is "" stands for all parts.
std::span<const Layout> Layouts();
// The layout `tag` of a method's part: of every method id that ParseScheme takes, sizes and all.
// "row" is there for any method and part, whatever their names. nullptr: there is none.
const Layout* FindLayout(std::string_view tag, std::string_view method, std::string_view part);
// All tags that FindLayout has for the part, "row" first, each once.
std::vector<std::string_view> Tags(std::string_view method, std::string_view part);
// Where the parameter `tag` leaves one of its parts: FindLayout, or "row" for a part that the tag
// does not move (an input scale). nullptr: the tag does not take the method at all.
const Layout* LayoutOfPart(std::string_view tag, std::string_view method, std::string_view part);

}  // namespace assay::kernels
