// A look at a checkpoint that does not stop at the first problem: whatever is wrong with its
// containers, and whatever of it can be used nevertheless.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/tensor_source.h"
#include "harness/units/status.h"

namespace assay {

// One line without control characters. Kinds:
//   "unreadable"    the file cannot be opened, or is no regular file
//   "truncated"     the file ends before its header or its tensors do
//   "header"        too long, no JSON, an entry that is not dtype, shape and data_offsets; GGUF: a
//                   preamble or metadata that cannot be read
//   "name"          a name that no tensor may have
//   "dtype"         a type that is not known
//   "shape"         shape and type take another number of bytes than the offsets span, or overflow
//   "duplicate"     a name twice in one header, or in two files
//   "overlap", "hole", "trailing"  bytes of two tensors, or of none
//   "empty"         a tensor without elements
//   "missing-shard", "extra-shard"  a file that the index lists and the folder lacks, and the
//   reverse "index"         an index that cannot be read or names no shard; a tensor that the index
//   has in
//                   another file than the one that has it, or that one of the two lacks
//   "total-size"    the index's sum of bytes is not the files'
//   "config"        config.json is missing or cannot be read
struct ScanFinding {
  std::string kind, file, tensor, detail;  // file: its path; tensor: empty where it is none's
};

// A tensor whose type and shape are known.
struct ScanTensor {
  TensorView view;      // bytes: always empty; StoredBytes(view.dtype, view.shape) lie in the file
  std::string file;     // its path
  uint64_t offset = 0;  // of its first byte in the file
};

struct Scan {
  std::vector<ScanFinding> findings;
  // Sorted by name, each name once. All their bytes are in their files and are theirs alone.
  std::vector<ScanTensor> tensors;
  // Sorted by name: their headers are right as such, but not all their bytes are there, or some
  // are another tensor's too. Not in `tensors`.
  std::vector<ScanTensor> damaged;
  std::vector<std::string> files;  // paths of all that were looked at, sorted
  uint64_t file_bytes = 0;         // of all of them
  std::string config_json;         // as Checkpoint::config_json(); empty if there is none
  std::optional<ModelConfig> config;
  std::string why_no_config;  // where there is no config: one line
  bool is_gguf = false;
};

// `path` as in Checkpoint::Open; also a folder of several .safetensors files without an index.
// Reads headers only. At most 20 findings of a kind in a file, and one that counts the rest.
// Error: there is no checkpoint at all.
Result<Scan> ScanCheckpoint(const std::string& path);

}  // namespace assay
