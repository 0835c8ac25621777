#include "harness/audit/listing.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace assay::audit {

Listing::~Listing() {
  if (veil_ != nullptr) munmap(veil_, veil_bytes_);
}

Listing::Listing(Listing&& other) noexcept
    : files(std::move(other.files)),
      file_count(other.file_count),
      findings(std::move(other.findings)),
      config(std::move(other.config)),
      why_unknown(std::move(other.why_unknown)),
      entries_(std::move(other.entries_)),
      veil_(std::exchange(other.veil_, nullptr)),
      veil_bytes_(std::exchange(other.veil_bytes_, 0)) {}

void Listing::Finish(std::vector<Entry> entries) {
  entries_ = std::move(entries);
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.view.name < b.view.name; });
  entries_.erase(
      std::unique(entries_.begin(), entries_.end(),
                  [](const Entry& a, const Entry& b) { return a.view.name == b.view.name; }),
      entries_.end());
  for (const Entry& entry : entries_) {
    const auto bytes = StoredBytes(entry.view.dtype, entry.view.shape);
    if (bytes) veil_bytes_ = std::max(veil_bytes_, static_cast<size_t>(bytes->count()));
  }
  if (veil_bytes_ > 0) {
    void* veil =
        mmap(nullptr, veil_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    veil_ = veil == MAP_FAILED ? nullptr : veil;
  }
  for (Entry& entry : entries_) {
    const auto bytes = StoredBytes(entry.view.dtype, entry.view.shape);
    entry.view.bytes = {};
    if (veil_ == nullptr || !bytes) continue;
    entry.view.bytes = {static_cast<const std::byte*>(veil_), static_cast<size_t>(bytes->count())};
  }
}

std::optional<size_t> Listing::IndexOf(std::string_view name) const {
  const auto at = std::lower_bound(
      entries_.begin(), entries_.end(), name,
      [](const Entry& entry, std::string_view wanted) { return entry.view.name < wanted; });
  if (at == entries_.end() || at->view.name != name) return std::nullopt;
  return static_cast<size_t>(at - entries_.begin());
}

const TensorView* Listing::Find(std::string_view name) const {
  const auto index = IndexOf(name);
  return index ? &entries_[*index].view : nullptr;
}

std::vector<std::string> Listing::Names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const Entry& entry : entries_) names.push_back(entry.view.name);
  return names;
}

}  // namespace assay::audit
