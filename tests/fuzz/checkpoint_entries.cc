#include "harness/checkpoint/checkpoint.h"
#include "tests/fuzz/entries.h"
#include "tests/fuzz/require.h"

namespace assay::fuzz {
namespace {

// Touches every byte that the source says is a tensor's: one outside the file ends the process.
void ReadAll(const TensorSource& source) {
  unsigned sum = 0;
  for (const std::string& name : source.Names()) {
    const TensorView* view = source.Find(name);
    if (view == nullptr) Broken("a name without a tensor", name);
    const auto bytes = StoredBytes(view->dtype, view->shape);
    if (!bytes || static_cast<size_t>(bytes->count()) != view->bytes.size()) {
      Broken("a tensor of another size than its shape's", name);
    }
    for (const std::byte byte : view->bytes) sum += static_cast<unsigned>(byte);
  }
  volatile unsigned sink = sum;
  (void)sink;
}

}  // namespace

int FuzzSafetensors(const uint8_t* data, size_t size) {
  auto file = SafetensorsFile::Open(FileOf("x.safetensors", data, size));
  if (file) {
    ReadAll(**file);
  } else {
    RequireOneLine(file.error());
  }
  return 0;
}

int FuzzGguf(const uint8_t* data, size_t size) {
  auto checkpoint = Checkpoint::Open(FileOf("x.gguf", data, size));
  if (!checkpoint) {
    RequireOneLine(checkpoint.error());
    return 0;
  }
  ReadAll(**checkpoint);
  // The derived config is one that we read ourselves.
  auto again = ParseModelConfig((*checkpoint)->config_json(), "derived");
  if (!again) Broken("the derived config does not read", again.error().message);
  return 0;
}

int FuzzConfig(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto config = ParseModelConfig(text, "config.json");
  if (!config) RequireOneLine(config.error());
  return 0;
}

}  // namespace assay::fuzz
