// The loader verdict: what each rank holds, bit for bit.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/locate/internal.h"

namespace assay::locate {
namespace {

using reference::Slice;
using reference::Where;

int64_t Rows(const Slice& slice) { return static_cast<int64_t>(slice.rows.size()); }
int64_t Columns(const Slice& slice) { return static_cast<int64_t>(slice.columns.size()); }

// Data-flow order, then rank; what the oracle does not know comes last.
std::vector<ShardKey> Ordered(const reference::Oracle& oracle, std::vector<ShardKey> keys) {
  std::map<std::string, int64_t> place;
  for (const std::string& name : oracle.Components()) {
    place.emplace(name, static_cast<int64_t>(place.size()));
  }
  auto of = [&](const ShardKey& key) {
    const auto found = place.find(key.component);
    return found == place.end() ? static_cast<int64_t>(place.size()) : found->second;
  };
  std::stable_sort(keys.begin(), keys.end(), [&](const ShardKey& a, const ShardKey& b) {
    return std::pair(of(a), a.rank) < std::pair(of(b), b.rank);
  });
  return keys;
}

// The component's own rows of what was unpacked, which may be the whole of a merged matrix.
Result<std::vector<std::byte>> OwnRows(const std::string& name, const ExportedShard& shard,
                                       std::vector<std::byte> bytes) {
  const int64_t width = SizeOf(shard.dtype).count();
  if (shard.rows < 0 || shard.columns < 0 || shard.first_row < 0 || shard.total_rows < shard.rows ||
      shard.first_row > shard.total_rows - shard.rows ||
      (shard.columns > 0 && shard.total_rows > INT64_MAX / width / shard.columns)) {
    return Error{fmt::format("{}: {} rows from row {} of {} cannot be", name, shard.rows,
                             shard.first_row, shard.total_rows)};
  }
  const int64_t row = shard.columns * width;
  const auto size = static_cast<int64_t>(bytes.size());
  if (size == shard.rows * row) return bytes;
  if (size != shard.total_rows * row) {
    return Error{fmt::format("{}: {} bytes after unpacking, {} rows of {} values of {} make {}",
                             name, size, shard.rows, shard.columns, NameOf(shard.dtype),
                             shard.rows * row)};
  }
  const auto begin = bytes.begin() + shard.first_row * row;
  return std::vector<std::byte>(begin, begin + shard.rows * row);
}

// What a stored value is: where one axis has words, or the other has more than elements.
std::string UnitOf(const Slice& slice) {
  if (slice.row_unit == "word" || slice.unit == "element") return slice.row_unit;
  return slice.unit;
}

void SetFirst(const Slice& slice, const Values& want, const Values& got, ShardFinding* finding) {
  int64_t last = -1;  // stored values are counted, not their parts
  for (int64_t i = 0; i < want.rows * want.columns; ++i) {
    if (want.bits[i] == got.bits[i] || i / PartsOf(slice.dtype) == last) continue;
    last = i / PartsOf(slice.dtype);
    if (finding->wrong++ > 0) continue;
    const int64_t row = i / want.columns, column = i % want.columns / PartsOf(slice.dtype);
    finding->local_index = {row, column};
    finding->index = {slice.rows[row], slice.columns[column]};
    finding->expected = NumberOf(want.bits[i], slice.dtype);
    finding->got = NumberOf(got.bits[i], slice.dtype);
    finding->expected_bits = HexOf(want.bits[i], slice.dtype);
    finding->got_bits = HexOf(got.bits[i], slice.dtype);
  }
}

// Another extent or type than the parameter's: no bit can be compared.
void SetShape(const Slice& slice, const ExportedShard& shard, ShardFinding* finding) {
  finding->wrong = finding->total;
  const bool rows = shard.rows != Rows(slice);
  finding->expected = static_cast<double>(rows ? Rows(slice) : Columns(slice));
  finding->got = static_cast<double>(rows ? shard.rows : shard.columns);
  const int64_t stored = Columns(slice), width = SizeOf(slice.dtype).count();
  const bool unpacked =
      !rows && slice.elements_per_column > 1 &&
      (shard.columns == stored * slice.elements_per_column || shard.columns == stored * width);
  finding->signature.id = unpacked ? "packed-against-unpacked" : "wrong-shape";
  // Of blocks and words as many as there are; of another representation, its own units.
  const std::string due = rows ? slice.row_unit == "element" ? "row" : slice.row_unit : slice.unit;
  const std::string unit = !unpacked ? due : shard.columns == stored * width ? "byte" : "element";
  finding->signature.text = fmt::format("axis {}: {} {}s of {} where {} {}s of {} were due",
                                        rows ? "n" : "k", finding->got, unit, NameOf(shard.dtype),
                                        finding->expected, due, NameOf(slice.dtype));
  finding->signature.evidence = fmt::format("shard is {} x {}, the plan says {} x {}", shard.rows,
                                            shard.columns, Rows(slice), Columns(slice));
}

class Comparison {
 public:
  Comparison(const reference::Oracle& oracle, const EngineTrace& trace,
             const reference::Parallel& degrees, const UnpackFn& unpack, const TagsFn& tags,
             const reference::Oracle* decoy)
      : oracle_(oracle),
        trace_(trace),
        degrees_(degrees),
        unpack_(unpack),
        tags_(tags),
        decoy_(decoy) {}

  Status One(const ShardKey& key, ShardReport* report) {
    const std::string name = fmt::format("{}@r{}", key.component, key.rank);
    const Where where{degrees_, key.rank};
    auto slice = oracle_.ExpectedSlice(key.component, where);
    if (!slice.ok()) return slice.error();
    for (const int64_t row : slice->rows) covered_[key.component].rows.insert(row);
    for (const int64_t column : slice->columns) covered_[key.component].columns.insert(column);
    covered_[key.component].ranks.insert(key.rank);
    const auto found = trace_.shards.find(key);
    if (found == trace_.shards.end()) {
      report->missing.push_back(name);
      return Ok();
    }
    const ExportedShard& shard = found->second;
    auto unpacked = unpack_(key, shard.layout, shard);
    if (!unpacked.ok()) return unpacked.error();
    auto bytes = OwnRows(name, shard, std::move(*unpacked));
    if (!bytes.ok()) return bytes.error();
    ++report->compared;
    report->bytes += static_cast<int64_t>(bytes->size());
    // Of what it does not hold a rank may say how wide it would be.
    if (slice->absent && shard.rows == 0) return Ok();
    given_.insert(key);
    if (shard.rows == 0 && Rows(*slice) > 0) {
      report->findings.push_back(NoneGiven(key, *slice, "the engine says that it holds none"));
      return Ok();
    }
    const bool shaped = shard.dtype == slice->dtype && shard.rows == Rows(*slice) &&
                        shard.columns == Columns(*slice);
    if (shaped && *bytes == slice->bytes) {
      Remember(key, *slice);
      return Ok();
    }
    ShardFinding finding;
    finding.component = key.component;
    finding.rank = key.rank;
    finding.unit = UnitOf(*slice);
    finding.total = Rows(*slice) * Columns(*slice);
    finding.row_major = std::move(*bytes);
    if (shaped) {
      Explain(key, where, shard, *slice, &finding);
    } else {
      SetShape(*slice, shard, &finding);
    }
    report->findings.push_back(std::move(finding));
    return Ok();
  }

  // A component that was not given back although the engine gives back others of its parameter, or
  // the same one on another rank: it was not loaded there. An engine that gives back neither does
  // not show it.
  Status Missing(const std::vector<ShardKey>& expected, ShardReport* report) const {
    for (const ShardKey& key : expected) {
      if (trace_.shards.count(key) > 0) continue;
      const std::string parameter = ParameterOf(key.component);
      const auto other = std::find_if(given_.begin(), given_.end(), [&](const ShardKey& given) {
        return given.component == key.component ||
               (given.rank == key.rank && ParameterOf(given.component) == parameter);
      });
      if (other == given_.end()) continue;
      auto slice = oracle_.ExpectedSlice(key.component, Where{degrees_, key.rank});
      if (!slice.ok()) return slice.error();
      if (slice->absent) continue;
      report->findings.push_back(NoneGiven(
          key, *slice,
          fmt::format("not given back; {} on rank {} is", other->component, other->rank)));
    }
    return Ok();
  }

  // Rows and columns that no rank was to hold, of components of which every rank was asked.
  Status Coverage(ShardReport* report) const {
    for (const auto& [component, held] : covered_) {
      if (static_cast<int>(held.ranks.size()) < degrees_.tp) continue;
      auto whole = oracle_.ExpectedSlice(component, Where{degrees_, -1});
      if (!whole.ok()) return whole.error();
      for (const int64_t row : whole->rows) {
        if (held.rows.count(row) > 0) continue;
        report->uncovered.push_back(fmt::format("{}: row {} is on no rank", component, row));
        break;
      }
      for (const int64_t column : whole->columns) {
        if (held.columns.count(column) > 0) continue;
        report->uncovered.push_back(
            fmt::format("{}: {} {} is on no rank", component, whole->unit, column));
        break;
      }
    }
    return Ok();
  }

 private:
  struct Held {
    std::set<int64_t> rows, columns;
    std::set<int> ranks;
  };
  static ShardFinding NoneGiven(const ShardKey& key, const Slice& slice, std::string evidence) {
    ShardFinding finding;
    finding.component = key.component;
    finding.rank = key.rank;
    finding.unit = UnitOf(slice);
    finding.wrong = finding.total = Rows(slice) * Columns(slice);
    finding.signature = {"never-loaded",
                         fmt::format("no rows where {} were due: never loaded", Rows(slice)),
                         std::move(evidence)};
    return finding;
  }

  struct Right {
    int rank;
    std::vector<int64_t> rows, columns;
  };

  // Of one component at a time: ranks come one after the other.
  void Remember(const ShardKey& key, const Slice& slice) {
    if (right_of_ != key.component) right_.clear();
    right_of_ = key.component;
    const bool known = RightReplica(key.component, slice).has_value();
    if (!known) right_.push_back({key.rank, slice.rows, slice.columns});
  }
  std::optional<int> RightReplica(const std::string& component, const Slice& slice) const {
    if (right_of_ != component) return std::nullopt;
    for (const Right& right : right_) {
      if (right.rows == slice.rows && right.columns == slice.columns) return right.rank;
    }
    return std::nullopt;
  }

  void Explain(const ShardKey& key, const Where& where, const ExportedShard& shard,
               const Slice& slice, ShardFinding* finding) {
    ShardCase wrong{&oracle_,
                    where,
                    key.component,
                    &slice,
                    Unpack(slice.bytes, Rows(slice), Columns(slice), slice.dtype),
                    Unpack(finding->row_major, Rows(slice), Columns(slice), slice.dtype),
                    decoy_,
                    RightReplica(key.component, slice)};
    SetFirst(slice, wrong.want, wrong.got, finding);
    finding->map = MapOf(wrong);
    for (const std::string& tag : tags_ ? tags_(key.component) : std::vector<std::string>{}) {
      if (tag == shard.layout) continue;
      ExportedShard other = shard;
      other.layout = tag;
      auto unpacked = unpack_(key, tag, other);
      if (!unpacked.ok()) continue;
      auto own = OwnRows(key.component, other, std::move(*unpacked));
      if (!own.ok() || *own != slice.bytes) continue;
      finding->cls = "layout";
      finding->signature = {"wrong-layout",
                            fmt::format("packed as {}, tagged {}", tag, shard.layout),
                            fmt::format("read as {} all {} values are right", tag, finding->total)};
      return;
    }
    finding->signature = ShardSignature(wrong);
  }

  const reference::Oracle& oracle_;
  const EngineTrace& trace_;
  const reference::Parallel degrees_;
  const UnpackFn& unpack_;
  const TagsFn& tags_;
  const reference::Oracle* decoy_;
  std::map<std::string, Held> covered_;
  std::set<ShardKey> given_;  // with rows
  std::string right_of_;
  std::vector<Right> right_;  // different shards of it that were right
};

}  // namespace

Result<ShardReport> CompareShards(const reference::Oracle& oracle, const EngineTrace& trace,
                                  const std::vector<ShardKey>& expected,
                                  const reference::Parallel& degrees, const UnpackFn& unpack,
                                  const TagsFn& tags, const reference::Oracle* decoy) {
  ShardReport report;
  Comparison comparison(oracle, trace, degrees, unpack, tags, decoy);
  for (const ShardKey& key : Ordered(oracle, expected)) {
    if (Status one = comparison.One(key, &report); !one.ok()) return one.error();
  }
  if (Status missing = comparison.Missing(expected, &report); !missing.ok()) return missing.error();
  if (Status covered = comparison.Coverage(&report); !covered.ok()) return covered.error();
  return report;
}

}  // namespace assay::locate
