#include "harness/checkpoint/faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/checkpoint/shown.h"

namespace assay {
namespace {

constexpr std::string_view kTruncated = "truncated";

size_t MostOf(std::string_view kind) { return kind == kTruncated ? 1 : 20; }

}  // namespace

std::string WithoutPath(std::string_view message, std::string_view path) {
  const std::string where = ShownPath(path) + ": ";
  if (message.starts_with(where)) message.remove_prefix(where.size());
  return std::string(message);
}

void Faults::TellFile(std::string_view kind, std::string reason, ErrorKind error) {
  if (!any()) first_ = Error{fmt::format("{}: {}", ShownPath(path_), reason), error};
  Tell(kind, "", std::move(reason));
}

void Faults::TellTensor(std::string_view kind, std::string_view tensor, std::string reason,
                        ErrorKind error) {
  if (!any()) {
    first_ =
        Error{fmt::format("{}: tensor {}: {}", ShownPath(path_), Quoted(tensor), reason), error};
  }
  Tell(kind, tensor, std::move(reason));
}

void Faults::Tell(std::string_view kind, std::string_view tensor, std::string reason) {
  const auto same = [&](const ScanFinding& finding) { return finding.kind == kind; };
  const auto told = static_cast<size_t>(std::count_if(findings_.begin(), findings_.end(), same));
  if (told >= MostOf(kind)) {
    ++more_[std::string(kind)];
    return;
  }
  findings_.push_back({std::string(kind), path_, std::string(tensor), std::move(reason)});
}

Status Faults::first() const { return any() ? Status(first_) : Ok(); }

std::vector<ScanFinding> Faults::Take() {
  for (const auto& [kind, count] : more_) {
    if (kind == kTruncated) {
      const auto told = std::find_if(findings_.begin(), findings_.end(),
                                     [&](const auto& finding) { return finding.kind == kind; });
      told->detail += fmt::format("; {} more of its tensors are cut or gone", count);
    } else {
      findings_.push_back({kind, path_, "", fmt::format("and {} more of this kind", count)});
    }
  }
  more_.clear();
  return std::exchange(findings_, {});
}

}  // namespace assay
