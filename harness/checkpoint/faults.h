// Problems of one file: all of them as findings, or the first one as an Error. Private to this
// room.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/scan.h"
#include "harness/units/status.h"

namespace assay {

// An error's message without the "FILE: " that it begins with: findings name the file beside it.
std::string WithoutPath(std::string_view message, std::string_view path);

class Faults {
 public:
  explicit Faults(std::string path) : path_(std::move(path)) {}

  // Of the file as a whole, or of one tensor. `reason` is what follows "FILE: " or
  // "FILE: tensor 'x': ".
  void TellFile(std::string_view kind, std::string reason, ErrorKind error = ErrorKind::kBadInput);
  void TellTensor(std::string_view kind, std::string_view tensor, std::string reason,
                  ErrorKind error = ErrorKind::kBadInput);

  bool any() const { return !findings_.empty(); }
  // ok() where nothing was told.
  Status first() const;
  // Tensors that one cut has shortened are one finding; of other kinds there are at most 20, and
  // one that counts the rest. Leaves nothing here.
  std::vector<ScanFinding> Take();

 private:
  void Tell(std::string_view kind, std::string_view tensor, std::string reason);

  std::string path_;
  Error first_;
  std::vector<ScanFinding> findings_;
  std::map<std::string, size_t, std::less<>> more_;  // of a kind, beyond those in findings_
};

}  // namespace assay
