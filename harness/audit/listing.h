// The checkpoint's tensors as an audit works on them: names, types, shapes and where they lie, with
// what is wrong with their container. Nothing of their bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/audit/report.h"
#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/tensor_source.h"

namespace assay::audit {

// Views have the size that type and shape say, in memory that cannot be read: whoever only looks at
// headers needs the sizes, and who reads bytes is found at once.
class Listing : public TensorSource {
 public:
  struct Entry {
    TensorView view;
    uint32_t file = 0;    // index into files; the view does not say it
    uint64_t offset = 0;  // of the first byte in the file
    uint64_t bytes = 0;   // that are there; 0: nothing of it can be read
  };

  // Error (exit 2): there is no checkpoint. What is wrong with one that is there is a finding.
  static Result<Listing> Read(const std::string& path);
  Listing() = default;
  ~Listing() override;
  Listing(Listing&& other) noexcept;
  Listing& operator=(Listing&&) = delete;

  // Sorts by name and gives the views their size. Of two entries of one name the first one counts.
  void Finish(std::vector<Entry> entries);

  const TensorView* Find(std::string_view name) const override;
  std::vector<std::string> Names() const override;
  const std::vector<Entry>& entries() const { return entries_; }
  std::optional<size_t> IndexOf(std::string_view name) const;
  // Gives up the entries, and with them what Find finds.
  std::vector<Entry> Take() { return std::move(entries_); }

  std::vector<std::string> files;  // paths of those that have tensors
  int64_t file_count = 0;          // of all that were looked at
  std::vector<Finding> findings;
  std::optional<ModelConfig> config;
  std::string why_unknown;  // where there is no config, or no model that is known

 private:
  std::vector<Entry> entries_;  // sorted by name
  void* veil_ = nullptr;
  size_t veil_bytes_ = 0;
};

}  // namespace assay::audit
