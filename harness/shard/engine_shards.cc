#include "harness/shard/engine_shards.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

namespace assay::shard {
namespace {

using Json = nlohmann::json;

int64_t SizeOfType(const std::string& dtype) {
  const std::map<std::string, int64_t> sizes = {
      {"bfloat16", 2}, {"float16", 2}, {"float32", 4}, {"int32", 4},
      {"int64", 8},    {"int8", 1},    {"uint8", 1},   {"float8_e4m3fn", 1}};
  return sizes.at(dtype);
}

// An entry is an object, or in the reduced files [type, shape, hash].
EngineTensor ReadTensor(const std::string& key, const Json& entry) {
  EngineTensor tensor;
  const size_t dot = key.find('.');
  tensor.rank = std::stoi(key.substr(4, dot - 4));  // "rank0.…"
  tensor.name = key.substr(dot + 1);
  const bool compact = entry.is_array();
  tensor.dtype = (compact ? entry.at(0) : entry.at("dtype")).get<std::string>();
  tensor.shape = (compact ? entry.at(1) : entry.at("shape")).get<std::vector<int64_t>>();
  tensor.hash = (compact ? entry.at(2) : entry.at("blake2b16")).get<std::string>();
  return tensor;
}

}  // namespace

size_t EngineTensor::bytes() const {
  int64_t bytes = SizeOfType(dtype);
  for (const int64_t extent : shape) bytes *= extent;
  return static_cast<size_t>(bytes);
}

EngineFile ReadEngineFile(const std::string& path) {
  EngineFile file;
  std::ifstream in(path);
  const Json json = Json::parse(in, nullptr, false);
  if (!json.is_object()) {
    ADD_FAILURE() << path << " is no JSON object";
    return file;
  }
  file.tp = json.at("tp").get<int>();
  if (json.contains("refused")) {
    const Json& refused = json.at("refused");
    // Of a model what went wrong; of linear-* a map of layers.
    const bool layers = refused.is_object() && !refused.contains("message");
    file.refused = !layers;
    if (layers) {
      for (const auto& [layer, why] : refused.items()) file.refused_of[layer] = why.at("message");
    }
  }
  if (!json.contains("parameters")) return file;
  for (const auto& [key, entry] : json.at("parameters").items()) {
    file.tensors.push_back(ReadTensor(key, entry));
  }
  return file;
}

Grid Grid::Zero(int64_t rows, int64_t columns, int64_t size) {
  return {rows, columns, size, std::vector<std::byte>(static_cast<size_t>(rows * columns * size))};
}

Grid ShardOf(const ComponentPlan& plan, int rank, const TensorSource& source) {
  const ShardShape shape = ShapeOf(plan, rank);
  Grid grid = Grid::Zero(shape.rows, shape.columns, SizeOf(plan.component.dtype).count());
  const TensorView* tensor = source.Find(plan.component.source);
  if (tensor == nullptr) {
    ADD_FAILURE() << plan.component.source << " is not there";
    return grid;
  }
  const Status copied = CopyShard(plan, rank, *tensor, grid.bytes);
  EXPECT_TRUE(copied.ok()) << copied.error().message;
  return grid;
}

Grid Transposed(const Grid& grid) {
  Grid turned = Grid::Zero(grid.columns, grid.rows, grid.size);
  for (int64_t r = 0; r < grid.rows; ++r) {
    for (int64_t c = 0; c < grid.columns; ++c) {
      std::memcpy(turned.bytes.data() + (c * grid.rows + r) * grid.size,
                  grid.bytes.data() + (r * grid.columns + c) * grid.size,
                  static_cast<size_t>(grid.size));
    }
  }
  return turned;
}

Grid Join(const std::vector<Grid>& parts, Along rows) {
  if (rows != Along::kN) {
    std::vector<Grid> turned;
    for (const Grid& part : parts) turned.push_back(Transposed(part));
    return Transposed(Join(turned, Along::kN));
  }
  Grid joined = Grid::Zero(0, parts.front().columns, parts.front().size);
  for (const Grid& part : parts) {
    EXPECT_EQ(part.columns, joined.columns);
    joined.rows += part.rows;
    joined.bytes.insert(joined.bytes.end(), part.bytes.begin(), part.bytes.end());
  }
  return joined;
}

Grid Alternate(const Grid& a, const Grid& b) {
  Grid joined = Grid::Zero(2 * a.rows, a.columns, a.size);
  const auto line = static_cast<size_t>(a.columns * a.size);
  for (int64_t r = 0; r < a.rows; ++r) {
    const auto at = static_cast<size_t>(r) * line;
    std::memcpy(joined.bytes.data() + 2 * at, a.bytes.data() + at, line);
    std::memcpy(joined.bytes.data() + 2 * at + line, b.bytes.data() + at, line);
  }
  return joined;
}

Grid Padded(const Grid& grid, int64_t rows, int64_t columns) {
  Grid padded = Grid::Zero(rows, columns, grid.size);
  EXPECT_LE(grid.rows, rows);
  EXPECT_LE(grid.columns, columns);
  for (int64_t r = 0; r < std::min(rows, grid.rows); ++r) {
    std::memcpy(padded.bytes.data() + r * columns * grid.size,
                grid.bytes.data() + r * grid.columns * grid.size,
                static_cast<size_t>(std::min(columns, grid.columns) * grid.size));
  }
  return padded;
}

std::string HashOf(const std::vector<Grid>& grids) {
  constexpr size_t kBytes = 16;
  EXPECT_GE(sodium_init(), 0);
  crypto_generichash_state state;
  crypto_generichash_init(&state, nullptr, 0, kBytes);
  for (const Grid& grid : grids) {
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(grid.bytes.data()),
                              grid.bytes.size());
  }
  std::array<unsigned char, kBytes> hash;
  crypto_generichash_final(&state, hash.data(), hash.size());
  std::string text;
  for (const unsigned char byte : hash) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace assay::shard
