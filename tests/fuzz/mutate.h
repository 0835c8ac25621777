// Damage to an input, as a function of the generator alone.
#pragma once

#include <random>
#include <string>
#include <vector>

namespace assay::fuzz {

// One to four damages: a bit, a byte, a piece cut out, doubled or put in, a number replaced, the
// end cut off, a piece of `other`.
std::string Mutate(std::string bytes, const std::string& other,
                   const std::vector<std::string>& tokens, std::mt19937_64* random);

}  // namespace assay::fuzz
