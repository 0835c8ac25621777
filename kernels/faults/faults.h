// The fault library: the native engine with one deliberate mistake. It is how the harness is
// measured: a fault that it does not see, or names wrongly, is a hole in the harness.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/abi/assay_engine.h"

namespace assay::kernels {

// A field of the first divergence that the fault determines: a name of interfaces.md §3, and its
// value as JSON text.
struct FirstField {
  std::string_view name;
  std::string_view json;
};

struct Fault {
  std::string_view name;         // "K03/rank0"
  std::string_view kind;         // "K03": a row of faults.md
  std::string_view description;  // one sentence
  std::string_view cls;          // loader, kernel, collective ...
  std::string_view problem;      // a cell that shows it
  std::string_view blind;        // one in which it cannot show: must stay green
  std::vector<FirstField> first;
  std::string_view signature;  // id that names it (harness/locate/signatures.md)
};

// In the order of their kinds.
std::span<const Fault> Faults();
const Fault* FindFault(std::string_view name);
// The native engine with that fault; static storage. nullptr: there is no such fault.
const assay_engine* FaultyEngine(std::string_view fault);

}  // namespace assay::kernels
