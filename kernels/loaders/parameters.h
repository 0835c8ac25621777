// What a rank holds: parameters, each of one or more stored tensors in the layout of the kernel
// that takes it. A merged parameter (q|k|v, gate|up) is one matrix whose segments follow one
// another.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/layouts/layouts.h"
#include "kernels/loaders/memory.h"
#include "kernels/loaders/select.h"
#include "kernels/registry.h"

namespace assay::kernels {

// One kind of stored tensor of a parameter: its codes, its scales, its zero points, its bias.
struct Part {
  std::string_view layout = "row";
  StoredShape shape;       // of all segments together
  Array<std::byte> bytes;  // in the layout
};

// "gguf-q4_1" of blocks.
std::string MethodName(DType block);
// fp32 of values stored in BF16, F16 or F32; exact. No alignment is needed.
void ToFloats(DType dtype, const std::byte* from, int64_t count, float* out);

// Where a segment's own rows lie in a part. They are counted in the part's stored rows: of blocks,
// words or single values, one a member.
struct Piece {
  int64_t first_row = 0, rows = 0;
  std::string source;  // the checkpoint's name
};

struct Segment {
  std::string op;         // "L1.moe.e5.gate"
  int64_t first_row = 0;  // in the parameter, logical
  int64_t rows = 0;
  std::map<std::string, Piece, std::less<>> parts = {};  // "weight", "scale" ...
};

struct Parameter {
  std::string name;  // "L1.moe.e5.gate_up", "L0.input_norm"
  Choice choice;
  const LinearKernel* kernel = nullptr;  // nullptr: no linear op, or nothing that runs it
  int64_t n = 0, k = 0, group = 0;       // logical, on this rank
  std::vector<Segment> segments;
  std::map<std::string, Part, std::less<>> parts;
  std::vector<int32_t> order;  // of act-order: what a layout's StoredShape points to
  Array<float> floats;         // the vector among the parts, a norm's weight or a bias, for use
  bool adds_bias = true;       // false: another rank adds the bias of this row-parallel layer

  // Of the kernel's matrix.
  WeightView View() const;
};

// A component that the plan gives to other ranks.
struct Absent {
  DType dtype = DType::kBF16;
  int64_t columns = 0;
  std::string method;
};

class RankParameters {
 public:
  struct Place {
    const Parameter* parameter = nullptr;
    const Segment* segment = nullptr;
  };
  // Takes a complete parameter. If one of its segments is loaded already, it is replaced, or
  // EngineError thrown.
  void Add(Parameter parameter, bool replaces);
  // Notes that this rank was loaded, and holds nothing of it.
  void AddAbsent(const std::string& component, Absent absent);
  const Absent* FindAbsent(std::string_view component) const;
  // By op: "L1.moe.e5.gate", "L0.input_norm". nullptr members: not loaded.
  Place Find(std::string_view op) const;
  // As Find, but EngineError names what is missing.
  Place Get(std::string_view op) const;
  bool empty() const { return by_op_.empty() && absent_.empty(); }
  size_t size() const { return parameters_.size(); }  // matrices and vectors
  // What was chosen, a line a parameter, by name.
  std::string PrintChoices() const;

 private:
  struct Index {
    std::string parameter;
    size_t segment;
  };
  struct Held {
    Parameter parameter;
    size_t used;  // segments that by_op_ has; the others were replaced
  };
  std::map<std::string, Held, std::less<>> parameters_;
  std::map<std::string, Index, std::less<>> by_op_;
  std::map<std::string, Absent, std::less<>> absent_;
};

}  // namespace assay::kernels
