// The native engine behind a library that shows the logits of a model and nothing inside it, as
// most engines do. The environment variable QUIET_ENGINE makes it wrong: "scaled" multiplies what
// it shows by 1 + 2^-5; "but:TAP" shows everything but
// TAP of rank 1.
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "harness/abi/assay_engine.h"
#include "kernels/engines/native/native.h"

namespace {

const assay_host* real_host = nullptr;
assay_host quiet_host;

void ShowLogits(void* context, const assay_tensor* value) {
  const char* wrong = std::getenv("QUIET_ENGINE");
  const bool logits = std::string_view(value->name) == "logits";
  constexpr std::string_view kBut = "but:";
  if (wrong != nullptr && std::string_view(wrong).starts_with(kBut)) {
    const bool hidden = std::string_view(wrong).substr(kBut.size()) == value->name;
    if (!hidden || value->rank != 1) real_host->tap(context, value);
    return;
  }
  if (!logits) return;
  if (wrong == nullptr || std::string_view(wrong) != "scaled" || value->dtype != ASSAY_F32) {
    real_host->tap(context, value);
    return;
  }
  constexpr float kScale = 1.0f + 0x1p-5f;
  std::vector<float> scaled(value->bytes / sizeof(float));
  std::memcpy(scaled.data(), value->data, value->bytes);
  for (float& x : scaled) x *= kScale;
  assay_tensor changed = *value;
  changed.data = scaled.data();
  real_host->tap(context, &changed);
}

int Open(const assay_open* request, const assay_host* host, assay_session** session,
         assay_error* error) {
  real_host = host;
  quiet_host = *host;
  quiet_host.tap = ShowLogits;
  return assay::kernels::NativeEngine()->open(request, &quiet_host, session, error);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const assay_engine* assay_engine_get(uint32_t) {
  static assay_engine quiet;
  quiet = *assay::kernels::NativeEngine();
  quiet.name = "quiet";
  quiet.open = Open;
  return &quiet;
}
