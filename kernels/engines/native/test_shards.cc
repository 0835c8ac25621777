#include "kernels/engines/native/test_shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "harness/shard/executor.h"
#include "kernels/layouts/layouts.h"
#include "kernels/layouts/marlin.h"

namespace assay::kernels::native {
namespace {

std::vector<std::byte> SliceOf(const shard::ComponentPlan& plan, int rank,
                               const TensorSource& tensors) {
  const shard::ShardShape shape = shard::ShapeOf(plan, rank);
  std::vector<std::byte> bytes(
      static_cast<size_t>(shape.rows * shape.columns * SizeOf(plan.component.dtype).count()));
  const TensorView* tensor = tensors.Find(plan.component.source);
  const Status copied = shard::CopyShard(plan, rank, *tensor, bytes);
  EXPECT_TRUE(copied.ok()) << plan.component.name;
  return bytes;
}

std::string OpOf(const std::string& component) { return component.substr(0, component.rfind('.')); }

// Elements along K of the rank's weight.
int64_t InputsOf(const shard::ComponentPlan& weight, int rank) {
  const shard::Component& c = weight.component;
  const shard::ShardShape shape = shard::ShapeOf(weight, rank);
  if (c.row_along == shard::Along::kK) {
    if (shape.rows == c.rows) return c.row_extent.count();
    return shape.rows / c.rows_per_unit * c.elements_per_row.count();
  }
  if (shape.columns == c.columns) return c.row_elements.count();
  return shape.columns / c.columns_per_unit * c.column_elements.count();
}

// One component of one rank.
void CompareOne(Driver& driver, const shard::ModelPlan& plan, const shard::ComponentPlan& component,
                int rank, const Source& source, Held* held) {
  const std::string& name = component.component.name;
  assay_shard shard;
  ASSERT_EQ(driver.Export(rank, name, &shard), ASSAY_OK) << driver.error().message;
  EXPECT_EQ(shard.method, component.component.method) << name;
  if (component.ranks[static_cast<size_t>(rank)].empty()) {
    EXPECT_EQ(shard.rows, 0) << name << " on rank " << rank;
    EXPECT_EQ(shard.bytes, 0u) << name;
    ++held->absent;
    return;
  }
  const shard::ShardShape shape = shard::ShapeOf(component, rank);
  ASSERT_EQ(shard.rows, shape.rows) << name << " on rank " << rank;
  ASSERT_EQ(shard.columns, shape.columns) << name << " on rank " << rank;
  ASSERT_EQ(shard.dtype, static_cast<uint32_t>(component.component.dtype)) << name;
  const auto own = RowMajorOf(shard, plan, name, rank, source);
  EXPECT_TRUE(own == SliceOf(component, rank, *source.tensors))
      << name << " on rank " << rank << " in layout " << shard.layout;
  ++held->compared;
  ++held->of[shard.method];
  const bool gate = name.find(".gate.weight") != std::string::npos;
  if (gate && shard.total_rows != shard.rows) ++held->gate_up[shard.method];
  held->joined += shard.total_rows != shard.rows ? 1 : 0;
  held->repacked += std::string_view(shard.layout) != "row" ? 1 : 0;
}

}  // namespace

std::vector<std::byte> RowMajorOf(const assay_shard& shard, const shard::ModelPlan& plan,
                                  const std::string& component, int rank, const Source& source) {
  StoredShape shape{static_cast<DType>(shard.dtype), shard.total_rows, shard.columns};
  const auto row = shape.columns * SizeOf(shape.dtype).count();
  std::vector<std::byte> whole(static_cast<size_t>(row * shape.rows));
  const auto* data = static_cast<const std::byte*>(shard.data);
  if (std::string_view(shard.layout) == "row") {
    EXPECT_EQ(shard.bytes, whole.size()) << component;
    if (shard.bytes == whole.size() && !whole.empty()) {
      std::memcpy(whole.data(), data, whole.size());
    }
  } else {
    const std::string op = OpOf(component), part = component.substr(op.size() + 1);
    if (const shard::ComponentPlan* weight = plan.Find(op + ".weight")) {
      shape.k = InputsOf(*weight, rank);
      shape.group = weight->component.group.count();
    }
    if (op.ends_with(".kv_b")) shape.nope = source.config.qk_nope, shape.v = source.config.v_dim;
    std::vector<int32_t> order;
    const shard::ComponentPlan* g_idx = plan.Find(op + ".g_idx");
    if (part == "weight" && g_idx != nullptr) {
      const auto bytes = SliceOf(*g_idx, rank, *source.tensors);
      std::vector<int32_t> groups(bytes.size() / 4);
      if (!groups.empty()) std::memcpy(groups.data(), bytes.data(), bytes.size());
      const Layout* moved = LayoutOfPart(shard.layout, shard.method, "g_idx");
      if (moved != nullptr && moved->tag != "row") order = marlin::SortedOrder(groups);
    }
    shape.order = order;
    const Layout* layout = FindLayout(shard.layout, shard.method, part);
    if (layout == nullptr) {
      ADD_FAILURE() << component << ": no layout " << shard.layout << " of " << shard.method;
      return {};
    }
    EXPECT_EQ(static_cast<int64_t>(shard.bytes), layout->bytes(shape)) << component;
    layout->unpack(shape, data, whole.data());
  }
  const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(row) * shard.first_row;
  return {begin, begin + static_cast<std::ptrdiff_t>(row) * shard.rows};
}

Held LoadAndCompare(Driver& driver, const Source& source, const shard::Degrees& degrees,
                    std::string* why) {
  Held held;
  const auto planned =
      shard::PlanModel(source.config, *source.tensors, degrees, shard::Selection{});
  const std::vector<std::string> names = source.tensors->Names();
  int status = ASSAY_OK;
  for (int rank = 0; rank < degrees.tp && status == ASSAY_OK; ++rank) {
    status = driver.Load(rank, *source.tensors, names, -1,
                         planned.ok() && planned->plan ? planned->plan->Print() : "");
  }
  *why = driver.error().message;
  if (!planned.ok()) {
    // Checkpoints name their file, and a load has none.
    const std::string& message = planned.error().message;
    EXPECT_NE(status, ASSAY_OK);
    EXPECT_EQ(why->substr(0, why->find(':')), message.substr(0, message.find_first_of(" :")));
    return held;
  }
  if (planned->refusal) {
    EXPECT_EQ(status, ASSAY_REFUSED) << *why;
    EXPECT_EQ(*why, planned->refusal->Message());
    return held;
  }
  if (status == ASSAY_UNSUPPORTED && why->find("layout") != std::string::npos) return held;
  EXPECT_EQ(status, ASSAY_OK) << *why;
  if (status != ASSAY_OK) return held;
  for (const shard::ComponentPlan& component : planned->plan->components) {
    for (int rank = 0; rank < degrees.tp; ++rank) {
      CompareOne(driver, *planned->plan, component, rank, source, &held);
    }
  }
  return held;
}

Shipped::Shipped(const std::string& path)
    : checkpoint(OpenCheckpoint(path)),
      source{checkpoint->config_json(), checkpoint->config(), checkpoint.get()} {}

std::vector<std::string> ShippedPaths() {
  std::vector<std::string> paths;
  for (const char* root : {"goldens/checkpoints", "goldens/quantised"}) {
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      if (!entry.is_directory()) continue;
      paths.push_back(entry.path().string());
      for (const auto& file : std::filesystem::directory_iterator(entry.path())) {
        if (file.path().extension() == ".gguf") paths.push_back(file.path().string());
      }
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace assay::kernels::native
