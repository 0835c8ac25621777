// Keys of the families that have a vocabulary of their own. Private to this room.
#pragma once

#include "harness/checkpoint/config_reader.h"
#include "harness/checkpoint/model_config.h"

namespace assay {

// Reads what is particular to config.family: attention, experts, layer lists. Of the families
// Qwen3Moe, GptOss, DeepseekV4, KimiLinear, KimiK3 and MinimaxM3; hidden, layers, heads, KV heads
// and intermediate are read already.
void ReadFamily(ConfigReader& decoder, ModelConfig& config);

}  // namespace assay
