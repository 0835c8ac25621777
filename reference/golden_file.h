// A golden folder as typed data: golden.json, logits.safetensors, taps-P.safetensors. Everything in
// it comes from outside and is checked here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/units/dtype.h"
#include "harness/units/status.h"
#include "reference/tensor.h"

namespace assay::reference {

// A model that is not shipped: one file that has to be fetched.
struct FetchedFile {
  std::string file;  // its plain name
  int64_t bytes = 0;
  std::string sha256;  // 64 digits, lower case
};

struct GoldenInfo {
  std::string model;                                    // folder of the checkpoint
  std::optional<FetchedFile> gguf;                      // the model is this file instead
  std::map<std::string, std::vector<int32_t>> prompts;  // name -> tokens
  std::map<std::string, bool> has_decode;               // decode was compared when recorded
  std::map<std::string, std::vector<int32_t>> greedy;   // may be missing
};
// Errors name the file and the key.
Result<GoldenInfo> ReadGoldenInfo(const std::string& folder);

struct GoldenTensor {
  DType dtype = DType::kF64;
  Tensor value;  // integers exactly
  bool integer() const;
};
using GoldenTensors = std::map<std::string, GoldenTensor>;
// All tensors of a file; values must be finite, types float or 32/64-bit integers.
Result<GoldenTensors> ReadGoldenTensors(const std::string& path);

// Whether a file is the one that was recorded, by size and digest. Error: names the file, what it
// is and what it must be.
Status CheckFetched(const std::string& path, const FetchedFile& expected);

bool FileExists(const std::string& path);
bool FolderExists(const std::string& path);
// One path component: no separators, not empty, not "." or "..".
bool IsPlainName(const std::string& name);

}  // namespace assay::reference
