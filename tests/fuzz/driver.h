// Runs an entry function on its seeds and on seeded damage to them.
#pragma once

#include <string_view>

#include "tests/fuzz/entries.h"

namespace assay::fuzz {

// A GoogleTest failure where there are no seeds, or where they are not read as what they are.
void Drive(std::string_view name, Function function, int mutations);

}  // namespace assay::fuzz
