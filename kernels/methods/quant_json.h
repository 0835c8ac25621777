// What a producer writes about its method: quantization_config, and ModelSlim's description file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/units/scheme.h"
#include "harness/units/status.h"

namespace assay::kernels {

// A linear that was converted.
struct ConvertedModule {
  std::string name;
  int64_t n = 0, k = 0;
};

// The JSON text of `quantization_config`; "" where there is none: dense methods, GGUF. `ignore` are
// the names of linears that stay as they were. compressed-tensors' one-group methods need the
// modules' extents: a group is a row, and rows differ. Keys beyond the producers': "fmt" is
// "e4m3fnuz" for those codes, also in compressed-tensors' config.
// ModelSlim: {"quant_method": "ascend", "quant_description": `description`}, as the checkpoint's
// reader merges the file that lies beside.
std::string QuantConfigJson(const Scheme& scheme, const std::vector<std::string>& ignore,
                            const std::vector<ConvertedModule>& modules,
                            std::string_view description = "");

// Every tensor of a checkpoint with its type.
struct DescribedTensor {
  std::string name;
  std::string type;  // "FLOAT", "W8A8", "W8A8_DYNAMIC", "W4A8_DYNAMIC"
};
// The text of quant_model_description.json.
std::string ModelSlimDescription(const Scheme& scheme, const std::vector<DescribedTensor>& tensors);

// `config` with that quantization_config ("" leaves it as it is); other keys in their order.
// Errors: not a JSON object; a model that is quantised already.
Result<std::string> WithQuantConfig(std::string_view config, std::string_view quant);

}  // namespace assay::kernels
