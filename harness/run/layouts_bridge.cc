#include "harness/run/layouts_bridge.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/layouts/layouts.h"

namespace assay::run {
namespace {

std::string_view PartOf(const std::string& component) {
  return std::string_view(component).substr(component.rfind('.') + 1);
}

// Rows times columns times the width, or -1 where the product is no size.
int64_t PlainBytes(const ExportedShard& shard) {
  int64_t values = 0, bytes = 0;
  if (shard.total_rows < 0 || shard.columns < 0 ||
      __builtin_mul_overflow(shard.total_rows, shard.columns, &values) ||
      __builtin_mul_overflow(values, SizeOf(shard.dtype).count(), &bytes)) {
    return -1;
  }
  return bytes;
}

kernels::StoredShape ShapeOf(const ExportedShard& shard) {
  return {shard.dtype, shard.total_rows, shard.columns};
}

// nullptr: no layout of that tag and size.
const kernels::Layout* Find(const std::string& component, const std::string& tag,
                            const ExportedShard& shard) {
  if (PlainBytes(shard) < 0) return nullptr;
  for (const kernels::Layout& layout : kernels::Layouts()) {
    if (layout.tag == tag && layout.part == PartOf(component) &&
        layout.bytes(ShapeOf(shard)) == static_cast<int64_t>(shard.bytes.size())) {
      return &layout;
    }
  }
  return nullptr;
}

bool HasPlainSize(const ExportedShard& shard) {
  return PlainBytes(shard) == static_cast<int64_t>(shard.bytes.size());
}

}  // namespace

bool CanRead(const std::string& component, const std::string& tag) {
  if (tag == "row") return true;
  const auto layouts = kernels::Layouts();
  return std::any_of(layouts.begin(), layouts.end(), [&](const kernels::Layout& layout) {
    return layout.tag == tag && layout.part == PartOf(component);
  });
}

std::string WrongSize(const std::string& component, const ExportedShard& shard) {
  const bool fits =
      shard.layout == "row" ? HasPlainSize(shard) : Find(component, shard.layout, shard) != nullptr;
  if (fits) return "";
  return fmt::format("layout {} of {} x {} {} does not have {} bytes", shard.layout,
                     shard.total_rows, shard.columns, NameOf(shard.dtype), shard.bytes.size());
}

Result<std::vector<std::byte>> UnpackShard(const std::string& component, const std::string& tag,
                                           const ExportedShard& shard) {
  if (tag == "row" && HasPlainSize(shard)) return shard.bytes;
  const kernels::Layout* layout = tag == "row" ? nullptr : Find(component, tag, shard);
  if (layout == nullptr) {
    return Error{fmt::format("{}: layout {} of {} bytes is not one that can be read back",
                             component, tag, shard.bytes.size())};
  }
  std::vector<std::byte> plain(static_cast<size_t>(PlainBytes(shard)));
  layout->unpack(ShapeOf(shard), shard.bytes.data(), plain.data());
  return plain;
}

std::vector<std::string> TagsFor(const std::string& component, const std::string& method) {
  std::vector<std::string> tags{"row"};
  for (const kernels::Layout& layout : kernels::Layouts()) {
    if (layout.method == method && layout.part == PartOf(component) && layout.tag != "row") {
      tags.emplace_back(layout.tag);
    }
  }
  return tags;
}

}  // namespace assay::run
