// The rounding points that this engine promises: what the ops round to, and what describe() says.
// One table for both, so that they cannot disagree.
#pragma once

#include <string_view>

#include "harness/units/dtype.h"

namespace assay::kernels::native {

inline constexpr DType kEmbedType = DType::kBF16;
inline constexpr DType kNormType = DType::kBF16;
inline constexpr DType kLinearType = DType::kBF16;      // column-parallel and replicated
inline constexpr DType kPartialType = DType::kF32;      // row-parallel, before the sum over ranks
inline constexpr DType kExpertDownType = DType::kBF16;  // per (token, expert, rank), as kt-kernel
inline constexpr DType kRopeType = DType::kBF16;
inline constexpr DType kScoresType = DType::kF32;
inline constexpr DType kContextType = DType::kBF16;
inline constexpr DType kActType = DType::kBF16;
inline constexpr DType kRouterType = DType::kF32;
inline constexpr DType kCombineType = DType::kF32;
inline constexpr DType kReduceType = DType::kBF16;
inline constexpr DType kResidualType = DType::kBF16;
inline constexpr DType kLogitsType = DType::kF32;

struct RoundingRow {
  std::string_view op;  // a class, or a path where one op differs from its class
  DType type;
};
inline constexpr RoundingRow kRounding[] = {
    {"embed", kEmbedType},       {"norm", kNormType},           {"linear", kLinearType},
    {"partial", kPartialType},   {"moe.down", kExpertDownType}, {"rope", kRopeType},
    {"scores", kScoresType},     {"ctx", kContextType},         {"act", kActType},
    {"router", kRouterType},     {"combine", kCombineType},     {"reduce", kReduceType},
    {"residual", kResidualType}, {"logits", kLogitsType},
};

}  // namespace assay::kernels::native
