#include "kernels/faults/test_pair.h"

#include <algorithm>
#include <cstring>

#include "kernels/engines/native/native.h"
#include "kernels/faults/faults.h"
#include "kernels/layouts/layouts.h"
#include "kernels/registry.h"

namespace assay::kernels {
namespace {

using native::Driver;
using native::Wishes;

const assay_engine* Engine(std::string_view fault) {
  const assay_engine* engine = FaultyEngine(fault);
  EXPECT_NE(engine, nullptr) << fault;
  return engine;
}

// Legal values in the wrong places.
MemorySource Rotated(const Checkpoint& checkpoint) {
  MemorySource source;
  for (const std::string& name : checkpoint.Names()) {
    const TensorView& view = *checkpoint.Find(name);
    std::vector<std::byte> bytes(view.bytes.begin(), view.bytes.end());
    const bool shape = name.ends_with("weight_shape");
    const auto rows = static_cast<size_t>(view.shape.empty() ? 1 : view.shape[0]);
    if (!shape && rows > 1) {
      std::rotate(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / rows),
                  bytes.end());
    }
    source.Put(name, view.dtype, view.shape, std::move(bytes));
  }
  return source;
}

}  // namespace

std::vector<std::byte> RowMajor(const assay_shard& shard, const std::string& component) {
  const StoredShape shape{static_cast<DType>(shard.dtype), shard.total_rows, shard.columns};
  const auto row = shape.columns * SizeOf(shape.dtype).count();
  std::vector<std::byte> whole(static_cast<size_t>(row * shape.rows));
  const std::string_view part = component.ends_with(".scale") ? "scale" : "weight";
  const Layout* layout = FindLayout(shard.layout, "ct-int4-g32", part);
  if (std::string_view(shard.layout) == "row") {
    std::memcpy(whole.data(), shard.data, whole.size());
  } else if (layout == nullptr) {
    ADD_FAILURE() << component << " lies in " << shard.layout;
  } else {
    layout->unpack(shape, static_cast<const std::byte*>(shard.data), whole.data());
  }
  const auto begin = whole.begin() + row * shard.first_row;
  return {begin, begin + row * shard.rows};
}

const char* BestTier() { return HostHas(Tier::kAvx2) ? "avx2" : "scalar"; }

Pair::Pair(std::string_view fault, const Setup& setup)
    : checkpoint(native::OpenCheckpoint(setup.path)), clean(NativeEngine()), faulty(Engine(fault)) {
  Wishes wishes;
  wishes.tp = setup.tp;
  wishes.tier = setup.tier;
  wishes.options = setup.options;
  wishes.reduce = setup.reduce;
  const MemorySource decoy = setup.reload ? Rotated(*checkpoint) : MemorySource();
  for (Driver* driver : {&clean, &faulty}) {
    EXPECT_EQ(driver->Open(checkpoint->config_json(), wishes), ASSAY_OK) << driver->error().message;
    for (int rank = 0; setup.reload && rank < setup.tp; ++rank) {
      EXPECT_EQ(driver->Load(rank, decoy, decoy.Names()), ASSAY_OK) << driver->error().message;
    }
    EXPECT_EQ(driver->LoadAll(*checkpoint), ASSAY_OK) << driver->error().message;
    driver->Logits(setup.tokens, 0, 261);
  }
}

std::set<int> Pair::DifferingShards(const std::string& component) {
  std::set<int> ranks;
  for (int rank = 0; rank < clean.tp(); ++rank) {
    assay_shard a, b;
    EXPECT_EQ(clean.Export(rank, component, &a), ASSAY_OK);
    EXPECT_EQ(faulty.Export(rank, component, &b), ASSAY_OK);
    EXPECT_EQ(a.bytes, b.bytes);
    if (RowMajor(a, component) != RowMajor(b, component)) {
      ranks.insert(rank);
    }
  }
  return ranks;
}

std::set<std::string> Pair::DifferingTaps() {
  // Behind layer 1 tokens may be routed to other experts.
  const auto is_behind = [](const std::string& tap) {
    return tap.starts_with("L2") || tap.starts_with("final") || tap == "logits";
  };
  for (const auto& [key, tap] : faulty.taps) {
    EXPECT_TRUE(is_behind(key.first) || clean.taps.contains(key)) << key.first;
  }
  std::set<std::string> differing;
  for (const auto& [key, tap] : clean.taps) {
    if (is_behind(key.first)) continue;
    const auto other = faulty.taps.find(key);
    EXPECT_NE(other, faulty.taps.end()) << key.first;
    if (other != faulty.taps.end() && !(other->second == tap)) {
      differing.insert(key.first + "@" + std::to_string(key.second));
    }
  }
  return differing;
}

std::set<int64_t> Pair::DifferingRows(const std::string& tap, int rank) {
  const native::Tap& a = clean.taps[{tap, rank}];
  const native::Tap& b = faulty.taps[{tap, rank}];
  EXPECT_EQ(a.shape, b.shape);
  std::set<int64_t> rows;
  const size_t row = a.bytes.size() / static_cast<size_t>(a.shape[0]);
  for (int64_t i = 0; i < a.shape[0]; ++i) {
    const size_t at = static_cast<size_t>(i) * row;
    if (std::memcmp(a.bytes.data() + at, b.bytes.data() + at, row) != 0) rows.insert(i);
  }
  return rows;
}

std::set<std::string> ExpertTaps(const std::set<std::string>& taps, std::string_view op) {
  std::set<std::string> found;
  for (const std::string& tap : taps) {
    if (tap.find(".moe.e") != std::string::npos && tap.find(op) != std::string::npos) {
      found.insert(tap);
    }
  }
  return found;
}

bool Any(const std::set<std::string>& taps, std::string_view end) {
  for (const std::string& tap : taps) {
    if (tap.ends_with(end)) return true;
  }
  return false;
}

std::set<std::string> AllExpertTaps(const Driver& driver, std::string_view end) {
  std::set<std::string> all;
  for (const auto& [key, tap] : driver.taps) {
    if (key.first.starts_with("L1.moe.e") && key.first.ends_with(end)) {
      all.insert(key.first + "@" + std::to_string(key.second));
    }
  }
  return all;
}

}  // namespace assay::kernels
