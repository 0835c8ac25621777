// A model that is nothing but its components, their shards in an engine's hands, and what the
// loader verdict says of them: for tests of shards' signatures.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "harness/locate/internal.h"
#include "harness/locate/locate.h"

namespace assay::locate {

using reference::Slice;
using reference::Where;

struct Entry {
  std::string name;
  DType dtype;
  int64_t rows, columns;
  char cut;  // 'n': by rows, 'k': by columns, 'w': whole
  std::string method = "ct-int4-g32", unit = "group", row_unit = "element";
  std::vector<uint64_t> bits = {};  // row major; drawn where there are none
};

// Components alone. Parts that do not divide are padded.
class Table : public reference::Oracle {
 public:
  explicit Table(std::vector<Entry> entries) : entries_(std::move(entries)) {
    uint64_t state = 88172645463325252u;
    for (Entry& entry : entries_) {
      const int64_t width = SizeOf(entry.dtype).count();
      while (static_cast<int64_t>(entry.bits.size()) < entry.rows * entry.columns) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        uint64_t bits = state & (width == 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * width) - 1);
        if (entry.dtype == DType::kBF16) bits = 0x3C00 + bits % 0x300;  // 2^-7 to 2^-1
        if (entry.dtype == DType::kF32) bits = 0x3C000000 + bits % 0x3000000;
        if (entry.dtype == DType::kF8E4M3) bits = bits % 0x7F;
        entry.bits.push_back(bits);
      }
    }
  }

  const std::vector<reference::Node>& graph() const override { return graph_; }
  const reference::Node* FindNode(std::string_view) const override { return nullptr; }
  Result<reference::Trace> Run(const reference::RunRequest&, const Contract&) const override {
    return Error{"nothing runs"};
  }
  Result<reference::Evaluation> Evaluate(const reference::Node&, std::span<const reference::Input>,
                                         const Where&, const reference::Step&, const Contract&,
                                         const TensorSource*) const override {
    return Error{"nothing runs"};
  }
  Result<std::vector<int64_t>> TapColumns(const reference::Node&, const Where&) const override {
    return Error{"nothing runs"};
  }
  std::vector<std::string> Components(int64_t) const override {
    std::vector<std::string> names;
    for (const Entry& entry : entries_) names.push_back(entry.name);
    return names;
  }
  Result<std::string> SourceName(std::string_view component) const override {
    return std::string(component);
  }
  Result<std::string> MethodOf(std::string_view component) const override {
    return Find(component)->method;
  }
  Result<Slice> ExpectedSlice(std::string_view component, const Where& where) const override {
    const Entry* entry = Find(component);
    if (entry == nullptr) return Error{std::string(component) + ": there is none"};
    Slice slice;
    slice.dtype = entry->dtype;
    slice.unit = entry->unit;
    slice.row_unit = entry->row_unit;
    slice.rows = Part(entry->rows, entry->cut == 'n' ? where : Where{});
    slice.columns = Part(entry->columns, entry->cut == 'k' ? where : Where{});
    const auto width = static_cast<size_t>(SizeOf(entry->dtype).count());
    for (const int64_t row : slice.rows) {
      for (const int64_t column : slice.columns) {
        const bool padding = row < 0 || column < 0;
        const uint64_t bits =
            padding ? 0 : entry->bits[static_cast<size_t>(row * entry->columns + column)];
        const auto* bytes = reinterpret_cast<const std::byte*>(&bits);
        slice.bytes.insert(slice.bytes.end(), bytes, bytes + width);
      }
    }
    return slice;
  }

 private:
  const Entry* Find(std::string_view component) const {
    for (const Entry& entry : entries_) {
      if (entry.name == component) return &entry;
    }
    return nullptr;
  }
  static std::vector<int64_t> Part(int64_t extent, const Where& where) {
    const bool whole = where.rank < 0 || where.degrees.tp <= 1;
    const int64_t each = whole ? extent : (extent + where.degrees.tp - 1) / where.degrees.tp;
    std::vector<int64_t> part;
    for (int64_t i = 0; i < each; ++i) {
      const int64_t at = (whole ? 0 : where.rank * each) + i;
      part.push_back(at < extent ? at : -1);
    }
    return part;
  }

  std::vector<Entry> entries_;
  std::vector<reference::Node> graph_;
};

// Ids of signatures.md.
inline const std::set<std::string>& ClosedList() {
  static const std::set<std::string> kIds = [] {
    std::ifstream file("harness/locate/signatures.md");
    std::set<std::string> ids{"unknown"};  // "none of these"
    const std::regex id("`([a-z-]+)`");
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("| `", 0) != 0) continue;
      const std::string cell = line.substr(0, line.find('|', 1));
      for (std::sregex_iterator at(cell.begin(), cell.end(), id), end; at != end; ++at) {
        ids.insert((*at)[1]);
      }
    }
    return ids;
  }();
  return kIds;
}

struct ShardRig {
  Table model;
  int tp;
  EngineTrace trace;
  std::vector<ShardKey> keys;

  ShardRig(std::vector<Entry> entries, int tp_) : model(std::move(entries)), tp(tp_) {
    for (const std::string& component : model.Components(-1)) {
      for (int rank = 0; rank < tp; ++rank) {
        const Slice slice = *model.ExpectedSlice(component, {{tp, tp}, rank});
        ExportedShard shard;
        shard.layout = "row";
        shard.dtype = slice.dtype;
        shard.rows = shard.total_rows = static_cast<int64_t>(slice.rows.size());
        shard.columns = static_cast<int64_t>(slice.columns.size());
        shard.bytes = slice.bytes;
        keys.push_back({component, rank});
        trace.shards[keys.back()] = std::move(shard);
      }
    }
  }
  ShardReport Compare() {
    auto report = CompareShards(
        model, trace, keys, {tp, tp},
        [](const ShardKey&, const std::string&, const ExportedShard& shard) {
          return Result<std::vector<std::byte>>(shard.bytes);
        },
        nullptr);
    EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.error().message);
    return report.ok() ? *report : ShardReport{};
  }
  // Values of a shard, changed.
  void Change(const std::string& component, int rank,
              const std::function<void(Values* values)>& how) {
    ExportedShard& shard = trace.shards.at({component, rank});
    Values values = Unpack(shard.bytes, shard.rows, shard.columns, shard.dtype);
    how(&values);
    for (size_t i = 0; i < values.bits.size(); ++i) {
      std::memcpy(shard.bytes.data() + i * static_cast<size_t>(values.width), &values.bits[i],
                  static_cast<size_t>(values.width));
    }
  }
  // The one finding that there must be; its id is of the closed list.
  ShardFinding Only() {
    const ShardReport report = Compare();
    EXPECT_EQ(report.findings.size(), 1u);
    if (report.findings.empty()) return {};
    EXPECT_EQ(ClosedList().count(report.findings[0].signature.id), 1u)
        << report.findings[0].signature.id;
    return report.findings[0];
  }
};

inline Entry Matrix(const std::string& name, int64_t rows) {
  return {name, DType::kBF16, rows, 12, 'n', "bf16", "element"};
}

}  // namespace assay::locate
