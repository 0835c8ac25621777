// Two parties' results of a probe, compared over data that is a function of its index.
#pragma once

#include <string>
#include <string_view>

#include "kernels/cpu/portable/testing/probe.h"

namespace assay::kernels::testing {

const Probe* Find(Probes probes, std::string_view name);

// Empty, or where `probe` differs from `other`, with the operands. What "the same" is says `probe`.
std::string FirstDifference(const Probe& probe, const Probe& other);

}  // namespace assay::kernels::testing
