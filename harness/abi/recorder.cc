#include "harness/abi/recorder.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/abi/guarded.h"

namespace assay::abi {
namespace {

constexpr int kNotesAtMost = 32;

std::string Of(const TapKey& key) {
  const std::string rank = key.rank < 0 ? "" : fmt::format(" of rank {}", key.rank);
  return fmt::format("{}{} in step {}", key.tap, rank, key.step);
}

uint64_t BitsAt(std::span<const std::byte> bytes, size_t element, size_t size) {
  uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + element * size, size);
  return bits;
}

}  // namespace

void Recorder::Write(RecordType type, const MetaWriter& meta, std::span<const std::byte> data,
                     RecordPlace* place) {
  if (!writer_->Write(type, meta.bytes(), data, place)) full_ = true;
}

void Recorder::Mark(Phase phase, std::string_view what) {
  MetaWriter meta;
  meta.Put(static_cast<int64_t>(phase));
  meta.Put(what);
  Write(RecordType::kMark, meta, {});
}

void Recorder::Note(std::string_view text) {
  if (notes_ == kNotesAtMost) return;
  ++notes_;
  MetaWriter meta;
  meta.Put(text);
  Write(RecordType::kNote, meta, {});
}

void Recorder::Violation(std::string_view text) {
  if (first_violation_.empty()) {
    first_violation_ = text;
  } else {
    Note(text);
  }
}

void Recorder::End(Ending ending, Phase phase, std::string_view message, const assay_error& error) {
  MetaWriter meta;
  meta.Put(static_cast<int64_t>(ending));
  meta.Put(static_cast<int64_t>(phase));
  meta.Put(message);
  Write(RecordType::kEnd, meta, std::as_bytes(std::span(&error, 1)));
}

void Recorder::Executed(const ExecutedRecord& record) {
  if (pass_ != 0) return;
  MetaWriter meta;
  meta.Put(std::string_view(record.tap));
  meta.Put(record.rank);
  for (const std::string* text :
       {&record.kernel, &record.tier, &record.layout, &record.act, &record.how}) {
    meta.Put(std::string_view(*text));
  }
  meta.Put(record.threads);
  Write(RecordType::kExecuted, meta, {});
}

void Recorder::Tap(const TapKey& key, DType dtype, const std::vector<int64_t>& shape,
                   std::span<const std::byte> values) {
  MetaWriter meta;
  meta.Put(key.step);
  meta.Put(std::string_view(key.tap));
  meta.Put(key.rank);
  meta.Put(static_cast<int64_t>(dtype));
  meta.Put(static_cast<int64_t>(shape.size()));
  for (int64_t extent : shape) meta.Put(extent);
  Give({"tap " + Of(key), dtype}, RecordType::kTap, meta, values);
}

void Recorder::Shard(const ShardKey& key, const ExportedShard& shard,
                     std::span<const std::byte> bytes) {
  MetaWriter meta;
  meta.Put(std::string_view(key.component));
  meta.Put(key.rank);
  meta.Put(std::string_view(shard.layout));
  meta.Put(static_cast<int64_t>(shard.dtype));
  for (int64_t extent : {shard.total_rows, shard.first_row, shard.rows, shard.columns}) {
    meta.Put(extent);
  }
  meta.Put(std::string_view(shard.method));
  meta.Put(std::string_view(shard.kernel));
  // In another layout a stored value may lie anywhere, and a block is none: bytes are all that can
  // be named.
  const bool values = shard.layout == "row" && !IsBlock(shard.dtype);
  const DType dtype = values ? shard.dtype : DType::kU8;
  Give({fmt::format("shard {} of rank {}", key.component, key.rank), dtype}, RecordType::kShard,
       meta, bytes);
}

void Recorder::Give(const Given& given, RecordType type, const MetaWriter& meta,
                    std::span<const std::byte> data) {
  const auto found = places_.find(given.name);
  if (pass_ == 0) {
    if (found == places_.end()) {
      RecordPlace place;
      Write(type, meta, data, &place);
      if (!full_) places_.emplace(given.name, place);
    } else if (writer_->FirstDifference(found->second, data) >= 0) {
      Violation(fmt::format("gave {} twice, with different values", given.name));
    }
    return;
  }
  if (found == places_.end()) {
    if (!full_) Violation(fmt::format("gave {} only in the second pass", given.name));
    return;
  }
  again_.insert(given.name);
  Compare(given, found->second, data);
}

void Recorder::Compare(const Given& given, RecordPlace first, std::span<const std::byte> second) {
  const int64_t at = writer_->FirstDifference(first, second);
  if (at < 0) return;
  if (first.bytes != second.size()) {
    return Violation(fmt::format("gave {} with {} bytes, and in the second pass with {}",
                                 given.name, first.bytes, second.size()));
  }
  const auto size = static_cast<size_t>(SizeOf(given.dtype).count());
  const size_t element = static_cast<size_t>(at) / size;
  uint64_t before = 0;
  const int64_t place = first.offset + static_cast<int64_t>(element * size);
  writer_->Read(place, std::span(reinterpret_cast<std::byte*>(&before), size));
  const uint64_t after = BitsAt(second, element, size);
  if (before == PoisonBits(Poison::kNaN, given.dtype) &&
      after == PoisonBits(Poison::kLarge, given.dtype)) {
    return Violation(fmt::format("left element {} of {} unwritten", element, given.name));
  }
  Violation(fmt::format(
      "element {} of {} depends on memory that the engine did not write, or keeps a pointer to "
      "load()'s tensors: bits {:0{}x} where that memory held NaN, {:0{}x} where it held 1e4",
      element, given.name, before, 2 * size, after, 2 * size));
}

void Recorder::CompareKeys() {
  for (const auto& [name, place] : places_) {
    if (again_.find(name) != again_.end()) continue;
    return Violation(fmt::format("gave {} only in the first pass", name));
  }
}

}  // namespace assay::abi
