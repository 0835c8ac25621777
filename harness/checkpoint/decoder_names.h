// Where the decoder's tensors live in a checkpoint (formats.md §8). Private to this room.
#pragma once

#include <string_view>

#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/tensor_source.h"
#include "harness/units/status.h"

namespace assay {

// Sets prefix and lm_head from the tensors' names. Where none of the known places has a decoder,
// they are what a plain checkpoint has: whoever needs the tensors reports the missing one.
// Errors: more than one place has a decoder, or more than one an output matrix.
Status FindDecoderNames(const TensorSource& source, std::string_view where, ModelConfig& config);

}  // namespace assay
