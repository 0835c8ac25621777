// A checkpoint of any size: what is in it, what each TP degree does with it, what is broken in it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/audit/report.h"
#include "harness/audit/stream.h"
#include "harness/units/status.h"

namespace assay::audit {

struct Estimate {
  int64_t bytes = 0;   // to be read
  int64_t memory = 0;  // heap at most, about
  double seconds = 0;  // from the page cache; a disk that reads a GB/s takes bytes / 1e9
};

struct AuditOptions {
  std::vector<int> degrees = {1, 2, 4, 8};  // 1 to shard::kMaxTp, ascending, each once
  int threads = 2;
  std::function<void(const Estimate&)> on_estimate;  // before the first byte of a tensor is read
  std::function<void(const StreamProgress&)> on_progress;
};

// Each byte of each tensor is read once. Error: there is no checkpoint at `path`; what is wrong
// with one that is there is a finding.
Result<Report> Audit(const std::string& path, const AuditOptions& options);

}  // namespace assay::audit
