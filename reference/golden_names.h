// Names in golden files -> taps (the table of interfaces.md §4).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace assay::reference {

// "layers.1.routed_out" -> "L1.moe.out". nullopt: a name that the table does not have, or a layer
// that the model (of `layers` layers) does not have.
std::optional<std::string> TapOfGoldenName(std::string_view name, int64_t layers);

// The main taps that every taps file has: residual stream, attention, MLP, router, final norm.
std::vector<std::string> MainGoldenNames(int64_t layers, const std::vector<bool>& is_moe);

}  // namespace assay::reference
