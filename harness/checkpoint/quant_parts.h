// Parts of a quantization_config's reading. Private to this room.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/config_reader.h"
#include "harness/checkpoint/model_config.h"

namespace assay {

inline constexpr ConfigReader::Range kQuantBits{1, 16};
inline constexpr ConfigReader::Range kQuantGroup{-1, int64_t{1} << 30};  // -1: a whole row

// [rows, columns] of a block, under this key; then the strategy is "block".
void ReadQuantBlock(ConfigReader& config, std::string_view key, QuantConfig& quant);

// Names of modules. Expressions decide which modules are quantised: one that is not read here would
// decide it silently, and is an error.
std::vector<std::string> ReadQuantPatterns(ConfigReader& config, std::string_view key);

// Everybody's but compressed-tensors': reads what quant.method names. Of an unknown one what
// several share.
void ReadProducer(ConfigReader& config, QuantConfig& quant);

// DeepSeek-V4, beside FP8: the routed experts are MXFP4.
void AddFp4Experts(QuantConfig& quant);

}  // namespace assay
