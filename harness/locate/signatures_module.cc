// Kinds of mistake between tensors: of fused matrices, of experts in a table, of other modules, and
// of addresses inside one.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/locate/shard_tests.h"

namespace assay::locate {
namespace {

// Each candidate is read and sliced: only as many as this many bytes allow.
constexpr int64_t kBudget = int64_t{64} << 20;

// "L0.attn.q.weight" -> its place among q, k, v; "L1.moe.e0.up.scale" -> among gate, up.
struct Fused {
  std::vector<std::string> components;
  size_t own = 0;
};

std::optional<Fused> FusedWith(const std::string& component) {
  const std::string parameter = ParameterOf(component), suffix = SuffixOf(component);
  const size_t dot = parameter.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  const std::string base = parameter.substr(0, dot + 1), op = parameter.substr(dot + 1);
  for (const auto& members :
       {std::vector<std::string>{"gate", "up"}, std::vector<std::string>{"q", "k", "v"}}) {
    const auto own = std::find(members.begin(), members.end(), op);
    if (own == members.end()) continue;
    if (op.size() == 1 && !base.ends_with("attn.")) return std::nullopt;
    Fused fused;
    fused.own = static_cast<size_t>(own - members.begin());
    for (const std::string& member : members) fused.components.push_back(base + member + suffix);
    return fused;
  }
  return std::nullopt;
}

// The members' rows, one above the other: row i of member m is at first[m] + i.
struct Stack {
  std::vector<Values> members;
  size_t own = 0;
  const uint64_t* Row(size_t member, int64_t row) const {
    const Values& values = members[member];
    return row < 0 || row >= values.rows ? nullptr : &values.bits[row * values.columns];
  }
  // Of all of them in one order.
  const uint64_t* At(int64_t row) const {
    for (size_t m = 0; m < members.size(); ++m) {
      if (row < members[m].rows) return Row(m, row);
      row -= members[m].rows;
    }
    return nullptr;
  }
};

std::optional<Stack> StackOf(const ShardCase& c) {
  const auto fused = FusedWith(c.component);
  if (!fused) return std::nullopt;
  Stack stack;
  stack.own = fused->own;
  for (const std::string& component : fused->components) {
    auto values = WholeOf(c, component);
    if (!values || values->columns != c.want.columns) return std::nullopt;
    stack.members.push_back(std::move(*values));
  }
  return stack;
}

// Is each wrong row what `source` gives for it? Rows of padding count for nothing.
template <class F>
bool RowsAre(const ShardCase& c, F source) {
  const int64_t n = c.want.columns;
  for (int64_t r = 0; r < c.want.rows; ++r) {
    const uint64_t* got = &c.got.bits[r * n];
    if (std::equal(got, got + n, &c.want.bits[r * n])) continue;
    if (c.expected->rows[static_cast<size_t>(r)] < 0) continue;
    const uint64_t* from = source(r, c.expected->rows[static_cast<size_t>(r)]);
    if (from == nullptr || !std::equal(got, got + n, from)) return false;
  }
  return true;
}

std::string HowGateUp(const ShardCase& c, const Stack& stack) {
  const int64_t up = stack.own == 1 ? 1 : 0, n = c.want.rows, whole = stack.members[0].rows;
  if (RowsAre(c, [&](int64_t, int64_t row) { return stack.At(2 * row + up); })) {
    return "gate above up read as if their rows alternated";
  }
  const auto halves = [&](int64_t, int64_t row) {
    const int64_t at = up * whole + row;
    return stack.Row(static_cast<size_t>(at % 2), at / 2);
  };
  if (RowsAre(c, halves)) return "alternating rows of gate and up read as gate above up";
  const auto slab = [&](int64_t local, int64_t) {
    return stack.At(c.where.rank * 2 * n + up * n + local);
  };
  return RowsAre(c, slab) ? "gate above up cut as one matrix" : "";
}

std::string HowHeads(const ShardCase& c, const Stack& stack) {
  const int64_t queries = stack.members[0].rows, keys = stack.members[1].rows;
  for (int64_t groups = 2; groups <= keys; ++groups) {
    if (queries % groups != 0 || keys % groups != 0) continue;
    const int64_t q = queries / groups, k = keys / groups;
    const int64_t sizes[] = {q, k, k}, begins[] = {0, q, q + k};
    const auto grouped = [&](int64_t, int64_t row) {
      const int64_t size = sizes[stack.own];
      return stack.At(row / size * (q + 2 * k) + begins[stack.own] + row % size);
    };
    if (RowsAre(c, grouped)) {
      return fmt::format("q above k above v read as {} groups of heads", groups);
    }
  }
  return "";
}

std::string LayerOf(const std::string& component) {
  return component.substr(0, component.find('.'));
}

}  // namespace

std::optional<Signature> FusedOrder(const ShardCase& c) {
  const auto stack = StackOf(c);
  if (!stack) return std::nullopt;
  const bool heads = stack->members.size() == 3;
  const std::string how = heads ? HowHeads(c, *stack) : HowGateUp(c, *stack);
  if (!how.empty()) return Signature{"fused-order", how, Wrong(c)};
  // Rows of the others, in whatever order.
  std::map<Bits, std::pair<size_t, int64_t>> place;
  const int64_t n = c.want.columns;
  for (size_t m = 0; m < stack->members.size(); ++m) {
    for (int64_t r = 0; r < stack->members[m].rows; ++r) {
      const uint64_t* row = stack->Row(m, r);
      place.emplace(Bits(row, row + n), std::pair(m, r));
    }
  }
  std::string first;
  for (int64_t r = 0; r < c.want.rows; ++r) {
    const uint64_t* got = &c.got.bits[r * n];
    if (std::equal(got, got + n, &c.want.bits[r * n])) continue;
    const auto found = place.find(Bits(got, got + n));
    if (found == place.end()) return std::nullopt;
    const auto [member, row] = found->second;
    if (member == stack->own || !first.empty()) continue;
    first = fmt::format("row {} of {} where row {} was due", row,
                        FusedWith(c.component)->components[member],
                        c.expected->rows[static_cast<size_t>(r)]);
  }
  // A row of one value is found anywhere.
  if (first.empty() || n < kEnough) return std::nullopt;
  return Signature{"fused-order", first, Wrong(c)};
}

// One value for a tensor, and it is that of another one of the merged parameter.
std::optional<Signature> MergedScale(const ShardCase& c) {
  if (c.want.bits.size() != 1) return std::nullopt;
  const auto fused = FusedWith(c.component);
  if (!fused) return std::nullopt;
  for (size_t m = 0; m < fused->components.size(); ++m) {
    if (m == fused->own) continue;
    const auto theirs = BitsOf(c, fused->components[m], c.where);
    if (!theirs || *theirs != c.got.bits) continue;
    return Signature{"merged-scale",
                     fmt::format("the scale of {} in {}", fused->components[m], c.component),
                     "a merged parameter has one for each of its members"};
  }
  return std::nullopt;
}

// The same component of other experts, and of other layers.
std::optional<Signature> AnotherModule(const ShardCase& c) {
  const std::string kind = KindOf(c.component);
  const auto total = static_cast<int64_t>(c.want.bits.size());
  // Bytes are often equal by accident.
  const int64_t enough = std::min(total, c.want.width == 1 ? 8 * kEnough : kEnough);
  if (WrongCount(c) < enough) return std::nullopt;
  int64_t budget = kBudget;
  for (const std::string& other : c.oracle->Components()) {
    if (other == c.component || KindOf(other) != kind) continue;
    budget -= static_cast<int64_t>(c.expected->bytes.size());
    if (budget < 0) break;
    const auto theirs = BitsOf(c, other, c.where);
    if (!theirs || !AllWrong(c, [&](size_t i) { return c.got.bits[i] == (*theirs)[i]; })) continue;
    const bool expert =
        c.component.find(".moe.e") != std::string::npos && LayerOf(other) == LayerOf(c.component);
    return Signature{expert ? "another-expert" : "another-layer",
                     fmt::format("values of {} in {}", other, c.component),
                     fmt::format("{}, all equal to {}'s", Wrong(c), other)};
  }
  return std::nullopt;
}

// Experts lie behind each other, and the shard begins somewhere in the others.
std::optional<Signature> ExpertTable(const ShardCase& c) {
  if (c.component.find(".moe.e") == std::string::npos) return std::nullopt;
  const std::string kind = KindOf(c.component), layer = LayerOf(c.component);
  const size_t size = c.got.bits.size();
  if (static_cast<int64_t>(size) < kEnough) return std::nullopt;
  Bits table;
  int64_t own = -1, budget = kBudget;
  for (const std::string& other : c.oracle->Components()) {
    if (KindOf(other) != kind || LayerOf(other) != layer) continue;
    const auto whole = WholeOf(c, other);
    if (!whole) return std::nullopt;
    budget -= static_cast<int64_t>(whole->bits.size()) * whole->width;
    if (budget < 0) return std::nullopt;
    if (other == c.component) own = static_cast<int64_t>(table.size());
    table.insert(table.end(), whole->bits.begin(), whole->bits.end());
  }
  const auto found = std::search(table.begin(), table.end(), c.got.bits.begin(), c.got.bits.end());
  if (found == table.end() || own < 0) return std::nullopt;
  return Signature{"another-expert",
                   fmt::format("values from flat {} of the experts' table on, {} begins at {}",
                               found - table.begin(), c.component, own),
                   fmt::format("{} values in a row", size)};
}

// Rows that begin where another row stride puts them, from the first or from the last right one on.
std::optional<Signature> OtherStride(const ShardCase& c) {
  const auto whole = WholeOf(c, c.component);
  const int64_t n = c.want.columns;
  if (!whole || n < 2 || c.want.rows < 3) return std::nullopt;
  const int64_t row0 = c.expected->rows[0], column0 = c.expected->columns[0];
  if (row0 < 0 || column0 < 0) return std::nullopt;
  int64_t first = 0;
  while (std::equal(&c.got.bits[first * n], &c.got.bits[first * n] + n, &c.want.bits[first * n])) {
    if (++first == c.want.rows) return std::nullopt;
  }
  if (first == 0) return std::nullopt;
  const int64_t base = first - 1, end = static_cast<int64_t>(whole->bits.size());
  const int64_t origin = (row0 + base) * whole->columns + column0 * PartsOf(c.expected->dtype);
  for (int64_t stride = 1; stride <= 2 * whole->columns; ++stride) {
    if (stride == whole->columns) continue;
    const bool holds = RowsAre(c, [&](int64_t r, int64_t) -> const uint64_t* {
      const int64_t at = origin + (r - base) * stride;
      return at < 0 || at + n > end ? nullptr : &whole->bits[static_cast<size_t>(at)];
    });
    if (!holds) continue;
    return Signature{"wrong-stride",
                     fmt::format("from row {} on rows are {} {}s apart, {} are due", base, stride,
                                 c.unit(), whole->columns),
                     Wrong(c)};
  }
  return std::nullopt;
}

}  // namespace assay::locate
