#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/scan.h"
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

// What does not stop at the first problem finds one where the strict reader does, and places what
// it calls whole inside the file.
void Scan(const char* path, bool strict) {
  const auto scan = ScanCheckpoint(path);
  if (!scan) Broken("a file that is there is not scanned", scan.error().message);
  bool broken = false;
  for (const ScanFinding& finding : scan->findings) {
    RequireOneLine(Error{finding.detail});
    broken = broken || (finding.kind != "empty" && finding.kind != "config");
  }
  if (broken == strict) Broken("scan and reader disagree", strict ? "it opens" : "it is refused");
  for (const ScanTensor& tensor : scan->tensors) {
    const auto bytes = StoredBytes(tensor.view.dtype, tensor.view.shape);
    if (!bytes || tensor.offset > scan->file_bytes ||
        static_cast<uint64_t>(bytes->count()) > scan->file_bytes - tensor.offset) {
      Broken("a tensor outside of its file", tensor.view.name);
    }
  }
}

}  // namespace

int FuzzSafetensors(const uint8_t* data, size_t size) {
  const char* path = FileOf("x.safetensors", data, size);
  auto file = SafetensorsFile::Open(path);
  Scan(path, file.ok());
  if (file) {
    ReadAll(**file);
  } else {
    RequireOneLine(file.error());
  }
  return 0;
}

int FuzzGguf(const uint8_t* data, size_t size) {
  const char* path = FileOf("x.gguf", data, size);
  Scan(path, GgufFile::Open(path).ok());
  auto checkpoint = Checkpoint::Open(path);
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
  if (!config) {
    RequireOneLine(config.error());
    return 0;
  }
  // Every module has a scheme of its own, whatever the patterns are, and every layer a kind.
  for (const char* module : {"model.layers.1.mlp.experts.0.down_proj", "lm_head", ""}) {
    const QuantConfig own = config->quant.For(module);
    if (!own.groups.empty() || !own.ignore.empty()) Broken("a module with groups", module);
  }
  if (config->family != Family::kUnknown && config->layers > 0) {
    const bool last = config->is_moe(config->layers - 1) && config->experts == 0;
    if (last) Broken("a layer with experts of a model without", config->architecture);
    if (config->is_kda(config->layers - 1) && config->kda_heads == 0) {
      Broken("a layer of delta attention without heads", config->architecture);
    }
  }
  return 0;
}

}  // namespace assay::fuzz
