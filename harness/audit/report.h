// What an audit found: pure data, from which the terminal, JSON and HTML are rendered.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/units/dtype.h"

namespace assay::audit {

// One line. `detail` says what, where and what is allowed.
struct Finding {
  std::string kind;    // "nan", "truncated", "shape" ...: kinds.md
  std::string tensor;  // as the file names it; empty: of no tensor
  std::string file;
  std::string detail;
  friend bool operator==(const Finding&, const Finding&) = default;
};

// Under one degree.
struct Placement {
  std::string plan;  // "k[tp] g32 u4x8", "whole"; empty where it is refused or not planned
  std::optional<bool> legal;
  std::string why;  // refused because ...; not planned because ...
  friend auto operator<=>(const Placement&, const Placement&) = default;
};

// Tensors are many; what they have in common is kept once.
struct TensorRow {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  uint32_t method = 0;     // index into Report::methods
  uint32_t placement = 0;  // index into Report::placements
};

struct MethodRow {
  std::string id;  // of harness/units/scheme.h; "i32" and the like where no method is known
  int64_t tensors = 0, bytes = 0;
};

// A degree as a whole.
struct DegreeRow {
  int tp = 1;
  std::optional<bool> legal;  // nullopt: the planner does not know the model
  int64_t cut = 0, whole = 0, replicated = 0, padded = 0, refused = 0, unplanned = 0;  // tensors
  std::vector<int64_t> bytes;  // [tp] a rank holds; empty where refused or unknown
  std::string why;             // the first refusal
};

// A kind of fault (faults.md) that this geometry would hide.
struct Hidden {
  std::string kind;  // "K05"
  int tp = 0;        // 0: at any degree
  std::string text;  // why it is hidden
  int64_t tensors = 0;
  std::string first;  // one of them, as the file names it
};

struct Speed {
  int64_t bytes = 0;
  double seconds = 0;
  int threads = 0;
};

struct Report {
  std::string path;
  std::string model;   // "DeepseekV3ForCausalLM", or why none is known
  bool known = false;  // the planner knows it
  int64_t files = 0, bytes = 0;
  std::vector<int> degrees;        // as asked for
  std::vector<TensorRow> tensors;  // sorted by name
  std::vector<MethodRow> methods;
  std::vector<std::vector<Placement>> placements;  // [..][degrees]
  std::vector<DegreeRow> tps;                      // [degrees]
  std::optional<int> largest_legal_tp;             // 1 to 64; 0: none; nullopt: unknown
  std::vector<int> legal_degrees;
  std::vector<Finding> findings;
  std::vector<Finding> notes;  // no faults: zero groups counted, tensors that nothing takes ...
  std::vector<Hidden> hidden;
  Speed speed;
};

}  // namespace assay::audit
