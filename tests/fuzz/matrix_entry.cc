#include "harness/run/matrix.h"
#include "tests/fuzz/entries.h"
#include "tests/fuzz/require.h"

namespace assay::fuzz {

int FuzzMatrix(const uint8_t* data, size_t size) {
  const std::string path = FileOf("matrix.json", data, size);
  auto rows = run::ReadMatrix(path);
  if (!rows) RequireOneLine(rows.error());
  auto skips = run::ReadSkips(path);
  if (!skips) RequireOneLine(skips.error());
  if (!rows) return 0;
  for (const run::MatrixRow& row : *rows) {
    for (const auto& [key, values] : row.cross) {
      if (values.empty()) Broken("a key of a matrix row has no values", key);
      auto filter = run::ParseFilter(key + "=" + values[0]);
      if (!filter) RequireOneLine(filter.error());
    }
  }
  return 0;
}

}  // namespace assay::fuzz
