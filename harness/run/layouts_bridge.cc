#include "harness/run/layouts_bridge.h"

#include <fmt/format.h>

#include "kernels/layouts/layouts.h"

namespace assay::run {
namespace {

std::string_view PartOf(const std::string& component) {
  return std::string_view(component).substr(component.rfind('.') + 1);
}

}  // namespace

Result<std::vector<std::byte>> UnpackShard(const std::string& component, const std::string& tag,
                                           const ExportedShard& shard) {
  const kernels::StoredShape shape{shard.dtype, shard.total_rows, shard.columns};
  const int64_t row_bytes = shard.columns * SizeOf(shard.dtype).count();
  const int64_t plain_bytes = shard.total_rows * row_bytes;
  if (tag == "row") {
    if (static_cast<int64_t>(shard.bytes.size()) != plain_bytes) {
      return Error{fmt::format("{}: layout row of {} x {} {} is {} bytes, the engine gave {}",
                               component, shard.total_rows, shard.columns, NameOf(shard.dtype),
                               plain_bytes, shard.bytes.size())};
    }
    return shard.bytes;
  }
  for (const kernels::Layout& layout : kernels::Layouts()) {
    if (layout.tag != tag || layout.part != PartOf(component)) continue;
    const int64_t bytes = layout.bytes(shape);
    if (static_cast<int64_t>(shard.bytes.size()) != bytes) continue;
    std::vector<std::byte> plain(static_cast<size_t>(plain_bytes));
    layout.unpack(shape, shard.bytes.data(), plain.data());
    return plain;
  }
  return Error{fmt::format("{}: layout {} of {} bytes is not one that can be read back", component,
                           tag, shard.bytes.size())};
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
