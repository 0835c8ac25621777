#include "harness/shard/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace assay::shard {
namespace {

// A component as a grid of stored values. Where the cut axis is rows, or none, a row is the unit
// that is copied; where it is columns, a run inside each row is.
struct Geometry {
  bool columns = false;
  int64_t lines = 1;       // how often a range is copied: rows where columns are cut, else once
  int64_t unit_bytes = 0;  // of one unit of the cut axis
  int64_t extent = 0;      // of the cut axis, whole tensor
  size_t line_bytes() const { return static_cast<size_t>(extent * unit_bytes); }
  size_t bytes() const { return static_cast<size_t>(lines) * line_bytes(); }
};

Result<Geometry> GeometryOf(const ComponentPlan& plan) {
  const Component& c = plan.component;
  int64_t bytes = 0;
  if (c.rows < 0 || c.columns < 0 || __builtin_mul_overflow(c.rows, c.columns, &bytes) ||
      __builtin_mul_overflow(bytes, SizeOf(c.dtype).count(), &bytes)) {
    return Error{fmt::format("{}: [{}, {}] is no shape of a tensor", c.name, c.rows, c.columns)};
  }
  Geometry g;
  g.columns = plan.axis == Axis::kColumns;
  g.lines = g.columns ? c.rows : 1;
  g.extent = g.columns ? c.columns : c.rows;
  g.unit_bytes = SizeOf(c.dtype).count() * (g.columns ? 1 : c.columns);
  return g;
}

// Ranges inside the axis; no more padding than an int64 counts.
Status CheckRanges(const ComponentPlan& plan, const Geometry& g, int rank) {
  const std::string& name = plan.component.name;
  if (rank < 0 || static_cast<size_t>(rank) >= plan.ranks.size()) {
    return Error{fmt::format("{}: rank {} of a plan for {} ranks", name, rank, plan.ranks.size())};
  }
  int64_t total = 0;
  for (const Range& range : plan.ranks[rank]) {
    const bool fits =
        range.is_padding() || (range.begin <= g.extent && range.length <= g.extent - range.begin);
    if (range.length < 0 || !fits) {
      return Error{fmt::format("{}: rank {} has range [{}, +{}) of an axis of {}", name, rank,
                               range.begin, range.length, g.extent)};
    }
    int64_t bytes = 0;
    if (__builtin_add_overflow(total, range.length, &total) ||
        __builtin_mul_overflow(total, g.unit_bytes, &bytes) ||
        __builtin_mul_overflow(bytes, g.lines, &bytes)) {
      return Error{
          fmt::format("{}: rank {}'s ranges have more bytes than an int64 counts", name, rank)};
    }
  }
  return Ok();
}

int64_t LocalExtent(const std::vector<Range>& ranges) {
  int64_t total = 0;
  for (const Range& range : ranges) total += range.length;
  return total;
}

Status CheckSize(const ComponentPlan& plan, const char* what, size_t got, size_t need) {
  if (got == need) return Ok();
  return Error{
      fmt::format("{}: {} has {} bytes, the plan needs {}", plan.component.name, what, got, need)};
}

// Row and column, in the component's unit, of a byte of the whole tensor or of a shard whose lines
// are `columns` values long.
std::string Coordinates(const Component& c, size_t byte, int64_t columns) {
  const int64_t value = static_cast<int64_t>(byte) / SizeOf(c.dtype).count();
  return fmt::format("row {}, {} {}", value / columns, c.unit, value % columns);
}

std::string Hex(const Component& c, std::span<const std::byte> bytes, size_t at) {
  const size_t size = static_cast<size_t>(SizeOf(c.dtype).count());
  std::string text = "0x";
  for (size_t i = size; i-- > 0;) {
    text += fmt::format("{:02x}", std::to_integer<int>(bytes[at - at % size + i]));
  }
  return text;
}

// Assembles one component and remembers who gave which unit.
class Assembly {
 public:
  Assembly(const ComponentPlan& plan, const Geometry& g, std::span<std::byte> whole)
      : plan_(plan), g_(g), whole_(whole), giver_(static_cast<size_t>(g.extent), -1) {}

  Status Add(int rank, std::span<const std::byte> shard) {
    rank_ = rank;
    const auto& ranges = plan_.ranks[rank];
    size_t local = 0;
    for (int64_t line = 0; line < g_.lines; ++line) {
      for (const Range& range : ranges) {
        const auto run = shard.subspan(local, static_cast<size_t>(range.length * g_.unit_bytes));
        const Status s =
            range.is_padding() ? CheckPadding(run, local, shard) : AddRun(line, range, run);
        if (!s) return s;
        local += run.size();
      }
    }
    return Remember(ranges);
  }

  Status CheckComplete() const {
    const auto gap = std::find(giver_.begin(), giver_.end(), -1);
    if (gap == giver_.end()) return Ok();
    return Error{fmt::format("{}: {} {} of {} is held by no rank", plan_.component.name,
                             g_.columns ? plan_.component.unit : "row", gap - giver_.begin(),
                             g_.extent)};
  }

 private:
  Status Remember(const std::vector<Range>& ranges) {
    for (const Range& range : ranges) {
      for (int64_t i = 0; !range.is_padding() && i < range.length; ++i) {
        int& giver = giver_[static_cast<size_t>(range.begin + i)];
        if (giver == rank_) {
          return Error{fmt::format("{}: rank {} holds {} {} twice", plan_.component.name, rank_,
                                   g_.columns ? plan_.component.unit : "row", range.begin + i)};
        }
        if (giver < 0) giver = rank_;
      }
    }
    return Ok();
  }

  Status CheckPadding(std::span<const std::byte> run, size_t local,
                      std::span<const std::byte> shard) const {
    const auto dirty =
        std::find_if(run.begin(), run.end(), [](std::byte b) { return b != std::byte{0}; });
    if (dirty == run.end()) return Ok();
    const Component& c = plan_.component;
    const size_t at = local + static_cast<size_t>(dirty - run.begin());
    const int64_t columns = g_.columns ? LocalExtent(plan_.ranks[rank_]) : c.columns;
    return Error{fmt::format("{}: padding of rank {} at local {} is {}, must be 0", c.name, rank_,
                             Coordinates(c, at, columns), Hex(c, shard, at))};
  }

  // Units that an earlier rank gave must be equal; the others are taken.
  Status AddRun(int64_t line, const Range& range, std::span<const std::byte> run) {
    const size_t unit = static_cast<size_t>(g_.unit_bytes);
    const size_t base = static_cast<size_t>(line) * g_.line_bytes();
    for (int64_t i = 0; i < range.length;) {
      const int giver = giver_[static_cast<size_t>(range.begin + i)];
      int64_t end = i + 1;
      while (end < range.length && giver_[static_cast<size_t>(range.begin + end)] == giver) ++end;
      const auto part =
          run.subspan(static_cast<size_t>(i) * unit, static_cast<size_t>(end - i) * unit);
      const size_t at = base + static_cast<size_t>(range.begin + i) * unit;
      if (giver < 0) {
        if (!part.empty()) std::memcpy(whole_.data() + at, part.data(), part.size());
      } else if (Status s = CheckReplica(part, at, giver); !s) {
        return s;
      }
      i = end;
    }
    return Ok();
  }

  Status CheckReplica(std::span<const std::byte> part, size_t at, int giver) const {
    const auto known = whole_.subspan(at, part.size());
    const auto [ours, theirs] = std::mismatch(part.begin(), part.end(), known.begin());
    if (ours == part.end()) return Ok();
    const Component& c = plan_.component;
    const size_t offset = static_cast<size_t>(ours - part.begin());
    return Error{fmt::format("{}: rank {} differs from its replica, rank {}, at {}: {} and {}",
                             c.name, rank_, giver, Coordinates(c, at + offset, c.columns),
                             Hex(c, part, offset), Hex(c, known, offset))};
  }

  const ComponentPlan& plan_;
  const Geometry& g_;
  std::span<std::byte> whole_;
  std::vector<int> giver_;  // by unit of the cut axis: the first rank that held it, or -1
  int rank_ = 0;
};

}  // namespace

ShardShape ShapeOf(const ComponentPlan& plan, int rank) {
  const auto& ranges = plan.ranks.at(static_cast<size_t>(rank));
  if (ranges.empty()) return {0, plan.component.columns};
  ShardShape shape{plan.component.rows, plan.component.columns};
  (plan.axis == Axis::kColumns ? shape.columns : shape.rows) = LocalExtent(ranges);
  return shape;
}

namespace {

// Where a component's values lie in its source tensor.
struct Placement {
  int64_t first = 0, row_step = 0, column_step = 1;
};

// The last value must lie inside the tensor; a component that is the whole of one has its size.
Result<Placement> PlacementOf(const ComponentPlan& plan, const Geometry& g,
                              const TensorView& tensor) {
  const Component& c = plan.component;
  if (c.row_step == 0) {
    if (Status s = CheckSize(plan, "the whole tensor", tensor.bytes.size(), g.bytes()); !s) {
      return s.error();
    }
    return Placement{0, c.columns, 1};
  }
  const int64_t size = SizeOf(c.dtype).count();
  const auto values = static_cast<int64_t>(tensor.bytes.size()) / size;
  int64_t down = 0, along = 0, last = c.first;
  const bool fits =
      c.first >= 0 && c.row_step > 0 && c.column_step > 0 &&
      !__builtin_mul_overflow(std::max<int64_t>(c.rows - 1, 0), c.row_step, &down) &&
      !__builtin_mul_overflow(std::max<int64_t>(c.columns - 1, 0), c.column_step, &along) &&
      !__builtin_add_overflow(last, down, &last) && !__builtin_add_overflow(last, along, &last);
  if (!fits || ((c.rows > 0 && c.columns > 0) && last >= values)) {
    return Error{
        fmt::format("{}: its last value is number {} of a tensor of {}", c.name, last, values)};
  }
  return Placement{c.first, c.row_step, c.column_step};
}

// One value after the other, in tiles that keep both sides in cache: a transposed tensor.
template <size_t kSize>
void CopyScattered(const std::byte* from, const Placement& at, int64_t rows, int64_t columns,
                   std::byte* to, int64_t to_row) {
  constexpr int64_t kTile = 64;
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
      for (int64_t r = r0; r < std::min(rows, r0 + kTile); ++r) {
        for (int64_t c = c0; c < std::min(columns, c0 + kTile); ++c) {
          std::memcpy(to + (r * to_row + c) * static_cast<int64_t>(kSize),
                      from + (r * at.row_step + c * at.column_step) * static_cast<int64_t>(kSize),
                      kSize);
        }
      }
    }
  }
}

// A block of rows × columns values from `from` (its first value) to `to`, whose rows are `to_row`
// values long.
void CopyBlock(int64_t size, const std::byte* from, const Placement& at, int64_t rows,
               int64_t columns, std::byte* to, int64_t to_row) {
  if (rows == 0 || columns == 0) return;
  if (at.column_step == 1) {
    const auto run = static_cast<size_t>(columns * size);
    if (at.row_step == columns && to_row == columns) {
      std::memcpy(to, from, static_cast<size_t>(rows) * run);
      return;
    }
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(to + r * to_row * size, from + r * at.row_step * size, run);
    }
    return;
  }
  switch (size) {
    case 1:
      return CopyScattered<1>(from, at, rows, columns, to, to_row);
    case 2:
      return CopyScattered<2>(from, at, rows, columns, to, to_row);
    case 4:
      return CopyScattered<4>(from, at, rows, columns, to, to_row);
    case 8:
      return CopyScattered<8>(from, at, rows, columns, to, to_row);
    default:  // blocks are never transposed
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          std::memcpy(to + (r * to_row + c) * size,
                      from + (r * at.row_step + c * at.column_step) * size,
                      static_cast<size_t>(size));
        }
      }
  }
}

void ZeroBlock(int64_t size, int64_t rows, int64_t columns, std::byte* to, int64_t to_row) {
  for (int64_t r = 0; r < rows; ++r) {
    std::memset(to + r * to_row * size, 0, static_cast<size_t>(columns * size));
  }
}

}  // namespace

Status CopyShard(const ComponentPlan& plan, int rank, const TensorView& tensor,
                 std::span<std::byte> out) {
  const auto g = GeometryOf(plan);
  if (!g) return g.error();
  if (Status s = CheckRanges(plan, *g, rank); !s) return s;
  const Component& c = plan.component;
  if (tensor.dtype != c.dtype) {
    return Error{fmt::format("{}: tensor {} is {}, the plan is for {}", c.name, tensor.name,
                             NameOf(tensor.dtype), NameOf(c.dtype))};
  }
  const auto at = PlacementOf(plan, *g, tensor);
  if (!at) return at.error();
  const ShardShape shape = ShapeOf(plan, rank);
  const int64_t size = SizeOf(c.dtype).count();
  const auto need = static_cast<size_t>(shape.rows * shape.columns * size);
  if (Status s = CheckSize(plan, "the shard", out.size(), need); !s) return s;
  std::byte* to = out.data();
  for (const Range& range : plan.ranks[static_cast<size_t>(rank)]) {
    const int64_t rows = g->columns ? shape.rows : range.length;
    const int64_t columns = g->columns ? range.length : shape.columns;
    if (range.is_padding()) {
      ZeroBlock(size, rows, columns, to, shape.columns);
    } else {
      const int64_t step = g->columns ? at->column_step : at->row_step;
      CopyBlock(size, tensor.bytes.data() + (at->first + range.begin * step) * size, *at, rows,
                columns, to, shape.columns);
    }
    to += (g->columns ? columns : rows * shape.columns) * size;
  }
  return Ok();
}

Status Reassemble(const ComponentPlan& plan, const std::vector<std::span<const std::byte>>& shards,
                  std::span<std::byte> whole) {
  const auto g = GeometryOf(plan);
  if (!g) return g.error();
  if (shards.size() != plan.ranks.size()) {
    return Error{fmt::format("{}: {} shards for a plan of {} ranks", plan.component.name,
                             shards.size(), plan.ranks.size())};
  }
  if (Status s = CheckSize(plan, "the whole tensor", whole.size(), g->bytes()); !s) return s;
  Assembly assembly(plan, *g, whole);
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    if (Status s = CheckRanges(plan, *g, static_cast<int>(rank)); !s) return s;
    if (plan.ranks[rank].empty() && shards[rank].empty()) continue;  // it holds nothing of it
    const size_t need =
        static_cast<size_t>(g->lines * LocalExtent(plan.ranks[rank]) * g->unit_bytes);
    const std::string what = fmt::format("rank {}'s shard", rank);
    if (Status s = CheckSize(plan, what.c_str(), shards[rank].size(), need); !s) return s;
    if (Status s = assembly.Add(static_cast<int>(rank), shards[rank]); !s) return s;
  }
  return assembly.CheckComplete();
}

}  // namespace assay::shard
