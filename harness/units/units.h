// The units of a stored tensor's extents. They are distinct types because mixing them is the
// fault that this project exists for: a packed extent taken for a logical one loads the wrong
// bytes without an error. They convert only by exact division.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "harness/units/status.h"

namespace assay {

template <class Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(int64_t count) : count_(count) {}
  constexpr int64_t count() const { return count_; }

  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.count_ + b.count_);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.count_ - b.count_);
  }
  friend constexpr Quantity operator*(int64_t n, Quantity a) { return Quantity(n * a.count_); }

 private:
  int64_t count_ = 0;
};

using Elements = Quantity<struct ElementsTag>;  // logical weights
using Words = Quantity<struct WordsTag>;        // storage units that hold several elements
using Groups = Quantity<struct GroupsTag>;      // quantisation groups
using Bytes = Quantity<struct BytesTag>;

// How logical elements lie in storage words: `elements` of them in a word of `bytes`.
// bf16 is {1, 2}; compressed-tensors int4 is {8, 4}.
struct Packing {
  Elements elements{1};
  Bytes bytes{1};
  friend constexpr bool operator==(const Packing&, const Packing&) = default;
};

// Exact conversions. Error: names both extents and the remainder.
Result<Words> ToWords(Elements extent, Packing packing);
Result<Groups> ToGroups(Elements extent, Elements group);
// Never inexact.
constexpr Elements ToElements(Words extent, Packing packing) {
  return Elements(extent.count() * packing.elements.count());
}
constexpr Elements ToElements(Groups extent, Elements group) {
  return Elements(extent.count() * group.count());
}
constexpr Bytes ToBytes(Words extent, Packing packing) {
  return Bytes(extent.count() * packing.bytes.count());
}

}  // namespace assay
