#include "kernels/faults/faults.h"

#include <array>

#include "kernels/engines/native/native.h"
#include "kernels/faults/loader_faults.h"
#include "kernels/faults/run_faults.h"

namespace assay::kernels {
namespace {

// C's function pointers carry no state: each fault has an open() of its own, made from its struct.
template <class F>
int OpenFaulty(const assay_open* request, const assay_host* host, assay_session** session,
               assay_error* error) {
  static const F kHooks;
  return OpenNative(request, host, &kHooks, session, error);
}

template <class F>
assay_engine EngineOf() {
  static const std::string kRevision =
      std::string(NativeEngine()->revision) + "+" + std::string(F::kFault.name);
  assay_engine engine = *NativeEngine();
  engine.revision = kRevision.c_str();
  engine.open = OpenFaulty<F>;
  return engine;
}

template <class... F>
struct Library {
  std::vector<Fault> faults = {F::kFault...};
  std::array<assay_engine, sizeof...(F)> engines = {EngineOf<F>()...};
};

// A fault is one struct and its name here.
const auto& TheLibrary() {
  static const Library<faults::K02Bytes, faults::K02Representation, faults::K03Rank0,
                       faults::K07Swap, faults::K08Rank1, faults::K13Stale, faults::K21Tail8,
                       faults::K23LastRow, faults::K29Truncate, faults::K40None, faults::K41Missing,
                       faults::K43Bf16>
      kLibrary;
  return kLibrary;
}

}  // namespace

std::span<const Fault> Faults() { return TheLibrary().faults; }

const Fault* FindFault(std::string_view name) {
  for (const Fault& fault : Faults()) {
    if (fault.name == name) return &fault;
  }
  return nullptr;
}

const assay_engine* FaultyEngine(std::string_view name) {
  const Fault* fault = FindFault(name);
  if (fault == nullptr) return nullptr;
  return &TheLibrary().engines[static_cast<size_t>(fault - Faults().data())];
}

}  // namespace assay::kernels
