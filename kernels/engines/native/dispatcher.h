// Takes kernels from the registry and runs them, and says what ran. Nothing else in the engine
// calls a kernel.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/abi/assay_engine.h"
#include "kernels/engines/native/thread_pool.h"
#include "kernels/engines/native/values.h"
#include "kernels/faults/interceptor.h"
#include "kernels/loaders/memory.h"
#include "kernels/loaders/parameters.h"
#include "kernels/loaders/select.h"
#include "kernels/registry.h"

namespace assay::kernels::native {

// What assay_open demands of kernels; empty: the engine's own choice.
struct KernelWishes {
  std::string tier, kernel, method, layout, act;
  std::string emulate;  // "never", "auto", "always"; empty: auto
  int threads = 1;
};

class Dispatcher {
 public:
  // Throws EngineError (unsupported) if the tier is not built, or the host lacks it and it may or
  // can not be emulated, or if no kernel is what was wished for. There is no fallback.
  Dispatcher(const KernelWishes& wishes, Memory* memory, const Interceptor* hooks);

  // What parameters are selected under (kernels/loaders/select.h). Wishes for a kernel or a layout
  // bind the session's method alone; the wish for an activation type binds every quantised method,
  // and without it activations stay 16 bits wide.
  const Mode& mode() const { return mode_; }
  const ElementwiseKernels& elementwise() const { return *elementwise_; }
  Tier tier() const { return mode_.tier; }
  How how() const { return mode_.how; }

  // y [m, n] fp32 of rows [row_begin, row_end) of the parameter's matrix, other columns untouched;
  // y's row stride is n. Records what ran for each tap. Throws EngineError (refused) before
  // running if the weight lies in another layout than the kernel's.
  void RunLinear(int rank, std::span<const std::string> taps, const Parameter& parameter,
                 const Activations& x, int64_t m, int64_t row_begin, int64_t row_end, float* y);

  // Says that an op of the elementwise table ran: "rms_norm" becomes "rms_norm_avx2".
  void RecordElementwise(const std::string& tap, int rank, std::string_view op) const;
  // An op without a kernel of its own for each tier: a copy, a selection, a sum over ranks. The
  // same code belongs to every tier, so it is recorded under the session's.
  void RecordUntiered(const std::string& tap, int rank, std::string_view what) const;

 private:
  void Record(const std::string& tap, int rank, const std::string& kernel, const std::string& tier,
              How how, const std::string& layout, const std::string& act, int threads) const;

  Mode mode_;
  Memory* memory_;
  const Interceptor* hooks_;
  const ElementwiseKernels* elementwise_ = nullptr;
  ThreadPool pool_;
};

// "rms_norm_avx2".
std::string ElementwiseName(std::string_view op, Tier tier);
// Ops of ElementwiseKernels by name, in the order in which describe() lists them.
std::span<const std::string_view> ElementwiseOps();
// Tiers that this binary has kernels for, lowest first; as instructions, and emulated.
std::vector<Tier> BuiltTiers(How how = How::kHardware);

}  // namespace assay::kernels::native
