// Sums over ranks in the order and wire type that contract.md defines: fp32 additions.
#include <fmt/format.h>

#include <algorithm>

#include "reference/methods/method.h"
#include "reference/oracle.h"

namespace assay::reference {
namespace {

double Fp32(double value) { return RoundTo(value, DType::kF32); }

// One rank's turn to be counted from: ranks root, root + 1, … modulo their number.
class Ranks {
 public:
  Ranks(std::span<const Tensor* const> parts, DType wire) : parts_(parts), wire_(wire) {}
  size_t count() const { return parts_.size(); }
  double Value(size_t root, size_t turn, size_t element) const {
    return Fp32(parts_[(root + turn) % parts_.size()]->data[element]);
  }
  double Wire(double value) const { return RoundTo(value, wire_); }

 private:
  std::span<const Tensor* const> parts_;
  DType wire_;
};

// The sum of one element, before it travels from where it was made. `chunk`: of that element;
// `root`: who makes the sum.
using Order = double (*)(const Ranks& ranks, size_t chunk, size_t root, size_t element);

double Sequential(const Ranks& ranks, size_t, size_t root, size_t element) {
  double sum = ranks.Value(root, 0, element);
  for (size_t turn = 1; turn < ranks.count(); ++turn) {
    sum = Fp32(sum + ranks.Wire(ranks.Value(root, turn, element)));
  }
  return sum;
}

// A chunk starts at the rank after its owner and goes round; the owner adds last.
double Ring(const Ranks& ranks, size_t chunk, size_t, size_t element) {
  double sum = ranks.Value(chunk + 1, 0, element);
  for (size_t turn = 1; turn < ranks.count(); ++turn) {
    sum = Fp32(ranks.Wire(sum) + ranks.Value(chunk + 1, turn, element));
  }
  return sum;
}

double Tree(const Ranks& ranks, size_t, size_t root, size_t element) {
  const size_t n = ranks.count();
  std::vector<double> sums;
  for (size_t turn = 0; turn < n; ++turn) sums.push_back(ranks.Value(root, turn, element));
  for (size_t distance = 1; distance < n; distance *= 2) {
    for (size_t r = 0; r + distance < n; r += 2 * distance) {
      sums[r] = Fp32(sums[r] + ranks.Wire(sums[r + distance]));
    }
  }
  return sums[0];
}

struct OrderRow {
  std::string_view name;
  Order sum;
};
constexpr OrderRow kOrders[] = {{"sequential", Sequential}, {"ring", Ring}, {"tree", Tree}};

Result<Order> FindOrder(std::string_view name) {
  for (const OrderRow& row : kOrders) {
    if (row.name == name) return row.sum;
  }
  return Error{
      fmt::format("reduce order \"{}\" is not modelled (sequential, ring, tree are)", name),
      ErrorKind::kUnsupported};
}

Status CheckParts(std::span<const Tensor* const> parts, DType wire) {
  if (!IsFloating(wire)) {
    return Error{
        fmt::format("reduce wire {} is not modelled (F64, F32, F16, BF16 are)", NameOf(wire)),
        ErrorKind::kUnsupported};
  }
  if (parts.empty()) return Error{"a sum over ranks needs the part of one rank at least"};
  for (const Tensor* part : parts) {
    if (part->shape == parts[0]->shape && part->data.size() == parts[0]->data.size()) continue;
    return Error{fmt::format("a sum over ranks of {} and {}: shapes must be equal",
                             PrintShape(parts[0]->shape), PrintShape(part->shape))};
  }
  return Ok();
}

// The flat array's chunks, one a rank, of ⌈count / ranks⌉ values, the last ones shorter or empty.
struct Chunks {
  size_t count, length;
  Chunks(size_t values, size_t ranks) : count(values), length((values + ranks - 1) / ranks) {}
  size_t Begin(size_t chunk) const { return std::min(count, chunk * length); }
  size_t End(size_t chunk) const { return std::min(count, (chunk + 1) * length); }
};

}  // namespace

Result<std::vector<Tensor>> ModelReduce(std::span<const Tensor* const> parts, std::string_view kind,
                                        std::string_view order, DType wire) {
  if (const Status status = CheckParts(parts, wire); !status) return status.error();
  const auto sum = FindOrder(order);
  if (!sum) return sum.error();
  const bool scatter = kind == "reduce_scatter";
  if (!scatter && kind != "all_reduce") {
    return Error{
        fmt::format("collective \"{}\" is not modelled (all_reduce, reduce_scatter are)", kind),
        ErrorKind::kUnsupported};
  }
  const size_t n = parts.size(), values = parts[0]->data.size();
  const Ranks ranks(parts, wire);
  const Chunks chunks(values, n);
  std::vector<Tensor> out(scatter ? n : 1);
  if (!scatter) {
    out[0] = *parts[0];
    if (n == 1) return out;
  }
  for (size_t chunk = 0; chunk < n; ++chunk) {
    if (scatter) {
      out[chunk].shape = {static_cast<int64_t>(chunks.End(chunk) - chunks.Begin(chunk))};
    }
    for (size_t i = chunks.Begin(chunk); i < chunks.End(chunk); ++i) {
      if (scatter) {
        out[chunk].data.push_back(n == 1 ? parts[0]->data[i] : (*sum)(ranks, chunk, chunk, i));
      } else {
        out[0].data[i] = ranks.Wire((*sum)(ranks, chunk, 0, i));
      }
    }
  }
  return out;
}

}  // namespace assay::reference
