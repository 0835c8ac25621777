// Which ops the faults of MLPs touch. Internal to the room.
#pragma once

#include <string_view>

namespace assay::kernels::faults {

// Of every routed expert.
inline bool IsExpert(std::string_view name, std::string_view end) {
  return name.find(".moe.e") != std::string_view::npos && name.ends_with(end);
}

// Of every routed expert, and in dense models the MLP of one layer in the middle: a real model's
// fault then has a place of its own, with healthy layers before and behind it.
inline constexpr std::string_view kDenseMlp = "L12.mlp";
inline bool IsMlp(std::string_view name, std::string_view end) {
  return IsExpert(name, end) || (name.starts_with(kDenseMlp) && name.ends_with(end));
}

}  // namespace assay::kernels::faults
