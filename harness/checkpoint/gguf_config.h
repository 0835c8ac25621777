// A GGUF file's metadata as a Hugging Face config, and what its tensors must be. Private to this
// room.
#pragma once

#include <string>

#include "harness/checkpoint/gguf.h"
#include "harness/checkpoint/model_config.h"

namespace assay {

// The config as JSON text in Hugging Face's keys, with "assay_container": "gguf". Numbers that the
// file has as f32 are printed with all digits of their value. Of an architecture that is not known
// it has what can be read; where a known one says something that is not known here, such as a key
// of its own, the config has "assay_unknown" with the reason. Errors name the key or the tensor.
// kUnsupported: one of several files (split.count), block types of another quantisation version.
Result<std::string> DeriveGgufConfig(const GgufFile& file);

// Every tensor of a model that we know must be one that the model uses. Error (kUnsupported): the
// first that is not, by name, such as rope_freqs.weight.
Status CheckGgufTensors(const GgufFile& file, const ModelConfig& config);

}  // namespace assay
