// Which of AITER's layouts an expert's MXFP4 weights take. A choice of the stated mode alone.
#pragma once

#include <optional>
#include <string_view>

namespace assay::kernels {

// Type of the activations that meet MXFP4 weights: bf16, FP8, MXFP4.
enum class AiterMode { kA16W4, kA8W4, kA4W4 };

// The two switches by which an engine asks for quantised activations.
struct AiterFlags {
  bool a8w4 = false, a4w4 = false;
};

// The mode that AITER runs in under the flags: none set is A16W4, and A8W4 wins over A4W4.
AiterMode AiterModeFor(AiterFlags flags);

struct AiterLayouts {
  std::string_view gate_up, down;  // tags, each for weight and scales
  friend bool operator==(const AiterLayouts&, const AiterLayouts&) = default;
};

// A mode that is stated decides; without one the flags do. A16W4 and A8W4 take gate and up
// interleaved ("aiter-interleaved", down "aiter-klane"), A4W4 takes "aiter-separated" for both.
AiterLayouts AiterLayoutFor(std::optional<AiterMode> mode, AiterFlags flags = {});

}  // namespace assay::kernels
