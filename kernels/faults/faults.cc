#include "kernels/faults/faults.h"

#include <array>

#include "kernels/engines/native/native.h"
#include "kernels/faults/boundary_faults.h"
#include "kernels/faults/code_faults.h"
#include "kernels/faults/conversion_faults.h"
#include "kernels/faults/fused_faults.h"
#include "kernels/faults/loader_faults.h"
#include "kernels/faults/memory_faults.h"
#include "kernels/faults/rank_faults.h"
#include "kernels/faults/run_faults.h"
#include "kernels/faults/scale_faults.h"
#include "kernels/faults/selection_faults.h"
#include "kernels/faults/table_faults.h"

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
  using namespace faults;
  static const Library<
      K01Floor, K01Clamped, K01EvenSplit, K01SharedBlock, K01BlockRows, K02Bytes, K02Representation,
      K02ThreeBits, K02Elements, K02EightBits, K02ZeroRows, K03Rank0, K03Uncut, K03OneGroup,
      K03CutActOrder, K03ExpertStride, K04Contiguous, K04LocalGroups, K04Sorted, K05Transposed,
      K05RowPairs, K05GroupShift, K05Stride, K05MarlinOrder, K05Rope, K06PlusOne, K06MinusOne,
      K06Wrap, K06ThreeBits, K06SymmetricZero, K06DummyZeros, K07Swap, K07Signs, K07AwqOrder,
      K07HalfOrder, K07BlockOrder, K08Rank1, K08Slab, K08Interleaved, K08Halves, K08Aiter,
      K09QueryByKey, K09KeyModulo, K09Grouped, K09Heads, K09LatentHeads, K09Decays, K10Cut,
      K10PartWritten, K11Floor, K11Blocks, K11OneSide, K11TiedTwice, K11HeadSkipped, K12FirstSlot,
      K12Largest, K12LocalLargest, K13Stale, K13Missing, K13LastExpert, K13NotMine, K13Twice,
      K13Buffer, K13ReloadedBias, K14Overlap, K14ElementSize, K14Race, K15Floor, K15Nearest,
      K15Underflow, K16FnuzTwice, K16NegativeZero, K16Clamped, K16LeastExponent, K17RankStamp,
      K17BiasCut, K17BiasTwice, K18Unwritten, K18One, K18AtTheEnd, K18Tiles, K18Doubled, K19ByNames,
      K19SplitKeys, K19Placeholder, K19IgnoredList, K19OneGroup, K19Version, K19Replaced, K21Tail8,
      K23LastRow, K29Truncate, K40None, K41Missing, K43Bf16>
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
