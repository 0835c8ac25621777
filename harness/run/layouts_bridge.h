// The layouts of linked engines, for reading shards back. A library of somebody else's that keeps
// another layout than these gives its shards as "row", or is not read back.
#pragma once

#include "harness/locate/locate.h"
#include "harness/run/spec.h"

namespace assay::run {

// Reads the shards of one cell. What a layout must know beside the extents (K, group, the order of
// act-order, MLA's heads) comes from the oracle, never from the engine that is judged.
class ShardReader {
 public:
  explicit ShardReader(const CellSpec& spec) : spec_(spec) {}

  // Row-major bytes of a shard's stored values under a layout tag.
  Result<std::vector<std::byte>> Unpack(const ShardKey& key, const std::string& tag,
                                        const ExportedShard& shard) const;
  // Whether a shard under this tag can be read back: "row", or a layout of the linked engines.
  bool CanRead(const std::string& component, const std::string& tag) const;
  // What is wrong with the size of a shard that can be read back; empty if nothing is.
  std::string WrongSize(const ShardKey& key, const ExportedShard& shard) const;
  // What is wrong with the bytes of a layout that no value of the shard lies in; empty if they are
  // what the layout says. Of a shard of the right size; of a merged one, once.
  std::string WrongPadding(const ShardKey& key, const ExportedShard& shard) const;
  // Tags under which a component of this kind could lie.
  std::vector<std::string> Tags(const std::string& component) const;

 private:
  std::string MethodOf(const std::string& component) const;
  const CellSpec& spec_;
};

}  // namespace assay::run
