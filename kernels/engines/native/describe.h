#pragma once

#include <string>

namespace assay::kernels::native {

// describe()'s JSON: what is compiled in, whatever this host can run. Made once.
const std::string& Description();

}  // namespace assay::kernels::native
