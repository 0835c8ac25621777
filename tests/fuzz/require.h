// What must hold of an input's reader whatever the input; where it does not, the process ends with
// the reason, which is what a fuzzer looks for.
#pragma once

#include <string_view>

#include "harness/units/status.h"

namespace assay::fuzz {

[[noreturn]] void Broken(std::string_view what, std::string_view detail);

// An error is one printable line that is not endless.
void RequireOneLine(const Error& error);

// A file of these bytes, at the path that is given back; the next call replaces it. `name` is its
// name in a folder of its own.
const char* FileOf(const char* name, const uint8_t* data, size_t size);

}  // namespace assay::fuzz
