// What a real engine's loader holds (goldens/shards), and our shards joined as it joins them. For
// this room's tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/checkpoint/tensor_source.h"
#include "harness/shard/executor.h"

namespace assay::shard {

// A parameter of one rank.
struct EngineTensor {
  int rank = 0;
  std::string name;  // the engine's, without "rank0."
  std::string dtype;
  std::vector<int64_t> shape;
  std::string hash;  // BLAKE2b of 16 bytes, of the row-major little-endian bytes
  size_t bytes() const;
};

struct EngineFile {
  int tp = 0;
  bool refused = false;                           // the engine does not take the degree
  std::map<std::string, std::string> refused_of;  // of linear-*: layer -> why
  std::vector<EngineTensor> tensors;
};
// Fails the running test where the file cannot be read.
EngineFile ReadEngineFile(const std::string& path);

// Stored values of one shard, or of several joined.
struct Grid {
  int64_t rows = 0, columns = 0, size = 1;  // size: bytes of a value
  std::vector<std::byte> bytes;
  static Grid Zero(int64_t rows, int64_t columns, int64_t size);
};
Grid ShardOf(const ComponentPlan& plan, int rank, const TensorSource& source);
// One after the other along the outputs, wherever the component has them.
Grid Join(const std::vector<Grid>& parts, Along rows);
// Rows by turns: a's first, b's first, a's second ...
Grid Alternate(const Grid& a, const Grid& b);
Grid Padded(const Grid& grid, int64_t rows, int64_t columns);
Grid Transposed(const Grid& grid);
std::string HashOf(const std::vector<Grid>& grids);

}  // namespace assay::shard
