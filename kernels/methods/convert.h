// A whole dense checkpoint in another storage method.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/tensor_source.h"
#include "harness/units/scheme.h"
#include "harness/units/status.h"
#include "kernels/methods/quant_json.h"
#include "kernels/methods/storage.h"

namespace assay::kernels {

// Whether to convert a linear: its name ("model.layers.0.mlp.up_proj") and extents.
using ModulePredicate = std::function<bool(std::string_view module, int64_t n, int64_t k)>;

// The linears that producers convert: matrices `*.weight` of the decoder's layers, without router
// gates, attention residuals and what no engine quantises here: DeepSeek-V4's attention,
// MiniMax-M3's index, vision; with ModelSlim not kv_b_proj either, which stays FLOAT in real files.
// One that the method does not fit is left dense in any case.
bool IsUsualLinear(const Scheme& scheme, std::string_view module);

struct ConvertOptions {
  ModulePredicate convert = {};  // none: IsUsualLinear
  PackOptions pack = {};
  // A new file begins before this is exceeded; one tensor may exceed it alone.
  int64_t max_file_bytes = 5'000'000'000;
  // WriteConverted: so many tensors are in memory at a time. The files do not depend on it.
  int threads = 1;
  // After each tensor, never twice at a time: bytes of the source read so far, and of all of it.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

struct Converted {
  std::unique_ptr<TensorSource> source;
  std::string config_json;  // with quantization_config; of ModelSlim the description is in it
  std::string description;  // of ModelSlim: quant_model_description.json; otherwise ""
  std::vector<ConvertedModule> modules;  // what was converted
  std::vector<std::string> ignored;      // linears that stay as they were
  // Makes the converted tensors' bytes, which are zeros until then. MakeConverted has called it.
  std::function<Status()> fill;
};

// In memory: converted tensors are made at once, the others are views of `source`, which must
// outlive the result. GGUF methods keep Hugging Face's names, with blocks as types.
// gpt-oss's method is for its fused experts `*.experts.{gate_up,down}_proj` [E, in, out], which
// become `_blocks` [E, out, in/32, 16] and `_scales`; DeepSeek-V4's takes the routed experts only
// where there are some under its names. Everything else of gpt-oss's experts stays dense.
// Errors: config.json is no object or says that the model is quantised; a linear is stored in a
// type other than F32, F16 and BF16; nothing at all to convert (kRefused); Pack's, with the module.
Result<Converted> MakeConverted(const TensorSource& source, std::string_view config_json,
                                const Scheme& scheme, const ConvertOptions& options = {});

// The same without the bytes: names, types, shapes and the config, at the cost of headers. Values
// are there after fill(), whose errors are Pack's.
Result<Converted> PlanConverted(const TensorSource& source, std::string_view config_json,
                                const Scheme& scheme, const ConvertOptions& options = {});

// On disk, a tensor at a time and thread: safetensors files (several and an index where they exceed
// max_file_bytes), config.json, and ModelSlim's description in a file of its own and not in
// config.json. The folder is made beside, synced and renamed: it is there whole or not at all.
// Errors: as above; `folder` exists and is not empty; the system's; kUnsupported for GGUF, which
// safetensors cannot hold.
Status WriteConverted(const TensorSource& source, std::string_view config_json,
                      const Scheme& scheme, const ConvertOptions& options,
                      const std::string& folder);

}  // namespace assay::kernels
