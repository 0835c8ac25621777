#include "harness/units/units.h"

#include <fmt/format.h>

namespace assay {

Result<Words> ToWords(Elements extent, Packing packing) {
  const int64_t per_word = packing.elements.count();
  if (per_word <= 0 || extent.count() % per_word != 0) {
    return Error{fmt::format("{} elements are no whole number of words of {} elements",
                             extent.count(), per_word)};
  }
  return Words(extent.count() / per_word);
}

Result<Groups> ToGroups(Elements extent, Elements group) {
  if (group.count() <= 0 || extent.count() % group.count() != 0) {
    return Error{fmt::format("{} elements are no whole number of groups of {}", extent.count(),
                             group.count())};
  }
  return Groups(extent.count() / group.count());
}

}  // namespace assay
