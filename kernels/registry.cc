#include "kernels/registry.h"

#include <array>

#include "kernels/cpu/avx2/rows.h"
#include "kernels/cpu/avx512/rows.h"
#include "kernels/cpu/marlin/rows.h"
#include "kernels/cpu/scalar/rows.h"

namespace assay::kernels {
namespace {

template <size_t... Counts>
constexpr auto Join(const LinearKernel (&... tables)[Counts]) {
  std::array<LinearKernel, (Counts + ...)> rows{};
  size_t next = 0;
  const auto append = [&](const auto& table) {
    for (const LinearKernel& row : table) rows[next++] = row;
  };
  (append(tables), ...);
  return rows;
}

// Constants, filled by the compiler: no code of a tier runs before somebody calls a row.
constexpr auto kLinear = Join(scalar::kLinear, avx2::kLinear, avx512::kLinear,
                              avx512_portable::kLinear, marlin_scalar::kLinear);
constexpr const ElementwiseKernels* kElementwise[] = {&scalar::kElementwise, &avx2::kElementwise,
                                                      &avx512::kElementwise,
                                                      &avx512_portable::kElementwise};

}  // namespace

std::span<const LinearKernel> LinearKernels() { return kLinear; }

const ElementwiseKernels* Elementwise(Tier tier, How how) {
  for (const ElementwiseKernels* table : kElementwise) {
    if (table->tier == tier && table->how == how) return table;
  }
  return nullptr;
}

}  // namespace assay::kernels
