// What the families share: finding and checking parts, groups of columns.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/methods/family.h"
#include "kernels/methods/numbers.h"

namespace assay::kernels {

std::string ShownShape(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string Shown(const TensorView& view) { return "tensor " + view.name; }

Error Bad(const TensorView& view, std::string_view reason) {
  return Error{fmt::format("{}: {}", Shown(view), reason)};
}

Result<const TensorView*> Need(const PartViews& parts, const Want& want) {
  const auto found = parts.find(want.suffix);
  if (found == parts.end()) {
    if (want.optional) return static_cast<const TensorView*>(nullptr);
    return Error{fmt::format("tensor *{}: it is missing", want.suffix)};
  }
  const TensorView& view = found->second;
  if (std::find(want.dtypes.begin(), want.dtypes.end(), view.dtype) == want.dtypes.end()) {
    std::vector<std::string_view> names;
    for (const DType dtype : want.dtypes) names.push_back(NameOf(dtype));
    return Bad(view, fmt::format("its type is {}; allowed: {}", NameOf(view.dtype),
                                 fmt::join(names, ", ")));
  }
  if (std::find(want.shapes.begin(), want.shapes.end(), view.shape) == want.shapes.end()) {
    std::vector<std::string> shapes;
    for (const std::vector<int64_t>& shape : want.shapes) shapes.push_back(ShownShape(shape));
    return Bad(view, fmt::format("its shape is {}; allowed: {}", ShownShape(view.shape),
                                 fmt::join(shapes, ", ")));
  }
  const std::optional<Bytes> bytes = StoredBytes(view.dtype, view.shape);
  if (!bytes || static_cast<uint64_t>(bytes->count()) != view.bytes.size()) {
    return Bad(view, fmt::format("it has {} bytes, which shape {} of {} does not take",
                                 view.bytes.size(), ShownShape(view.shape), NameOf(view.dtype)));
  }
  return &view;
}

Result<std::vector<double>> ReadFinite(const TensorView& view) {
  std::vector<double> values(view.bytes.size() / static_cast<size_t>(SizeOf(view.dtype).count()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = LoadValue(view.dtype, view.bytes.data(), static_cast<int64_t>(i));
    if (!std::isfinite(values[i])) {
      return Bad(view, fmt::format("value {} is {}; it must be finite", i, values[i]));
    }
  }
  return values;
}

Result<std::vector<int64_t>> ReadGroups(const TensorView& view, int64_t groups) {
  std::vector<int64_t> of(view.bytes.size() / static_cast<size_t>(SizeOf(view.dtype).count()));
  for (size_t i = 0; i < of.size(); ++i) {
    const double entry = LoadValue(view.dtype, view.bytes.data(), static_cast<int64_t>(i));
    if (!(entry >= 0 && entry < static_cast<double>(groups))) {
      return Bad(view, fmt::format("entry {} is {}; groups are 0 to {}", i, entry, groups - 1));
    }
    of[i] = static_cast<int64_t>(entry);
  }
  return of;
}

std::vector<int64_t> PlainGroups(int64_t k, int64_t group) {
  std::vector<int64_t> of(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i) of[static_cast<size_t>(i)] = i / group;
  return of;
}

std::vector<int64_t> ShuffledGroups(int64_t k, int64_t group, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(k)), of(static_cast<size_t>(k));
  std::iota(order.begin(), order.end(), 0);
  // splitmix64: a function of the seed and the index, on every host the same.
  const auto random = [&](uint64_t i) {
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  };
  for (uint64_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random(i) % (i + 1)]);
  for (size_t i = 0; i < order.size(); ++i) {
    of[static_cast<size_t>(order[i])] = static_cast<int64_t>(i) / group;
  }
  return of;
}

void StoreGroups(const std::vector<int64_t>& groups, PackedPart* part) {
  for (size_t i = 0; i < groups.size(); ++i) {
    StoreValue(part->spec.dtype, static_cast<double>(groups[i]), part->bytes.data(),
               static_cast<int64_t>(i));
  }
}

PackedPart* FindPart(Parts* parts, std::string_view suffix) {
  for (PackedPart& part : *parts) {
    if (part.spec.suffix == suffix) return &part;
  }
  return nullptr;
}

Status MustDivide(std::string_view extent, int64_t value, std::string_view unit, int64_t size) {
  if (value % size == 0) return Ok();
  return Error{
      fmt::format("{} is {}, which is no multiple of the {} of {}", extent, value, unit, size),
      ErrorKind::kRefused};
}

}  // namespace assay::kernels
