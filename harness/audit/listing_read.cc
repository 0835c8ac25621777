// The container's own scan as a listing.
#include <filesystem>
#include <map>
#include <utility>

#include "harness/audit/listing.h"
#include "harness/checkpoint/scan.h"

namespace assay::audit {

Result<Listing> Listing::Read(const std::string& path) {
  auto scan = ScanCheckpoint(path);
  if (!scan) return scan.error();
  Listing listing;
  for (ScanFinding& finding : scan->findings) {
    listing.findings.push_back({std::move(finding.kind), std::move(finding.tensor),
                                std::move(finding.file), std::move(finding.detail)});
  }
  std::map<std::string, uint32_t> files;
  std::vector<Entry> entries;
  entries.reserve(scan->tensors.size());
  for (ScanTensor& tensor : scan->tensors) {
    const auto [at, added] =
        files.emplace(tensor.file, static_cast<uint32_t>(listing.files.size()));
    if (added) listing.files.push_back(tensor.file);
    Entry entry;
    entry.file = at->second;
    entry.offset = tensor.offset;
    const auto bytes = StoredBytes(tensor.view.dtype, tensor.view.shape);
    entry.bytes = bytes ? static_cast<uint64_t>(bytes->count()) : 0;
    entry.view = std::move(tensor.view);
    entries.push_back(std::move(entry));
  }
  listing.config = std::move(scan->config);
  listing.Finish(std::move(entries));
  return listing;
}

}  // namespace assay::audit
