// Checkpoints on disk, and ways to break them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/audit/audit.h"
#include "harness/units/dtype.h"

namespace assay::audit::testing {

// A new folder of this test's own.
std::string Fresh(const std::string& name);

// A layer of Kimi-K2's kind, small: index, three files, four experts in int4. Clean.
std::string SmallLayer(const std::string& name);
constexpr const char* kExpertFile = "model-00002-of-00003.safetensors";  // experts 0 and 1
constexpr const char* kLastFile = "model-00003-of-00003.safetensors";    // experts 2 and 3
inline std::string Expert(int expert, const std::string& rest) {
  return "model.layers.0.mlp.experts." + std::to_string(expert) + "." + rest;
}

// A copy of a shipped checkpoint ("goldens/quantised/gptoss-mini-mxfp4").
std::string CopyOf(const std::string& from, const std::string& name);

// One linear layer "model.layers.0.mlp.up_proj" as GPTQ stores it, k = 64, n = 16, groups of 16,
// with the g_idx given; single file, architecture unknown.
std::string Gptq(const std::string& name, const std::vector<int32_t>& g_idx);
std::vector<int32_t> Identity();

// One linear layer of the same name as ModelSlim stores W8A8: codes, scales, offsets [8, 1].
std::string ModelSlim(const std::string& name);

struct Raw {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
// A file of these tensors as they are given, one after the other.
void WriteRaw(const std::string& path, const std::vector<Raw>& tensors);
void WriteText(const std::string& path, const std::string& text);
std::string ReadText(const std::string& path);

// Changes bytes of a tensor in its file; `value`'s bytes go to byte `at` of the tensor.
void Poke(const std::string& file, const std::string& tensor, uint64_t at,
          const std::string& value);
template <class Number>
std::string Little(Number value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
// Edits a safetensors file's header text, which keeps its length: shorter ones are padded.
void EditHeader(const std::string& file, const std::function<void(std::string*)>& edit);
// Replaces the only occurrence; a test failure where there are none or several.
void Replace(std::string* text, const std::string& from, const std::string& to);
// Of a header: replaces within the entry of one tensor.
void ReplaceIn(std::string* header, const std::string& tensor, const std::string& from,
               const std::string& to);

// The audit at TP 1, 2, 4, 8 on two threads; a test failure where there is no report.
Report AuditOf(const std::string& path);
std::string Lines(const Report& report);  // its findings, one a line, for messages

}  // namespace assay::audit::testing
