// The container's own scan as a listing.
#include <map>
#include <utility>

#include "harness/audit/listing.h"
#include "harness/checkpoint/scan.h"

namespace assay::audit {

namespace {

class Reader {
 public:
  explicit Reader(Listing* listing) : listing_(*listing) {}

  void Add(std::vector<ScanTensor>* tensors, bool whole) {
    for (ScanTensor& tensor : *tensors) {
      Listing::Entry entry;
      entry.file = FileIndex(tensor.file);
      entry.offset = tensor.offset;
      const auto bytes = StoredBytes(tensor.view.dtype, tensor.view.shape);
      // Of a damaged tensor nothing is read: what is wrong with it was said.
      entry.bytes = whole && bytes ? static_cast<uint64_t>(bytes->count()) : 0;
      entry.view = std::move(tensor.view);
      entry.view.file.clear();  // `file` says it; long paths are not kept for each
      entry.view.file.shrink_to_fit();
      entries_.push_back(std::move(entry));
    }
    tensors->clear();
    tensors->shrink_to_fit();
  }
  std::vector<Listing::Entry> Take() { return std::move(entries_); }

 private:
  uint32_t FileIndex(const std::string& path) {
    const auto [at, added] = files_.emplace(path, static_cast<uint32_t>(listing_.files.size()));
    if (added) listing_.files.push_back(path);
    return at->second;
  }

  Listing& listing_;
  std::map<std::string, uint32_t> files_;
  std::vector<Listing::Entry> entries_;
};

}  // namespace

Result<Listing> Listing::Read(const std::string& path) {
  auto scan = ScanCheckpoint(path);
  if (!scan) return scan.error();
  Listing listing;
  for (ScanFinding& finding : scan->findings) {
    listing.findings.push_back({std::move(finding.kind), std::move(finding.tensor),
                                std::move(finding.file), std::move(finding.detail)});
  }
  Reader reader(&listing);
  reader.Add(&scan->tensors, true);
  reader.Add(&scan->damaged, false);
  listing.file_count = static_cast<int64_t>(scan->files.size());
  listing.config = std::move(scan->config);
  listing.why_unknown = std::move(scan->why_no_config);
  listing.Finish(reader.Take());
  return listing;
}

}  // namespace assay::audit
