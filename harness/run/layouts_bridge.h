// The layouts of linked engines, for reading shards back. A library of somebody else's that keeps
// another layout than these gives its shards as "row", or is not read back.
#pragma once

#include "harness/locate/locate.h"

namespace assay::run {

// Row-major bytes of a shard's stored values under a layout tag.
Result<std::vector<std::byte>> UnpackShard(const std::string& component, const std::string& tag,
                                           const ExportedShard& shard);
// Whether a shard under this tag can be read back: "row", or a layout of the linked engines.
bool CanRead(const std::string& component, const std::string& tag);
// What is wrong with the size of a shard that can be read back; empty if nothing is.
std::string WrongSize(const std::string& component, const ExportedShard& shard);
// Tags under which a component of this kind could lie.
std::vector<std::string> TagsFor(const std::string& component, const std::string& method);

}  // namespace assay::run
