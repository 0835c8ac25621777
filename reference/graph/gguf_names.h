// llama.cpp's names of modules within a layer, by Hugging Face's.
#pragma once

#include <string_view>

namespace assay::reference {

// A module or tensor that has no row stays as it is, and is reported as missing under that name.
std::string_view GgufModule(std::string_view module);

}  // namespace assay::reference
