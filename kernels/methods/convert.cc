#include "kernels/methods/convert.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <set>

#include "kernels/methods/convert_plan.h"

namespace assay::kernels {
namespace {

struct FreeBytes {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};

// Converted tensors of its own over those of another source that stay as they are.
class Overlay : public TensorSource {
 public:
  explicit Overlay(const TensorSource& base) : base_(base) {}
  void Keep(std::string name) { kept_.insert(std::move(name)); }

  // Zeros until they are written; memory that nobody touches costs nothing.
  void Put(const OutTensor& out) {
    Own own;
    const auto size = static_cast<size_t>(out.bytes);
    own.bytes.reset(static_cast<std::byte*>(std::calloc(std::max<size_t>(size, 1), 1)));
    if (own.bytes == nullptr) throw std::bad_alloc();
    own.view = {out.name, out.dtype, out.shape, {own.bytes.get(), size}, "memory"};
    own_.insert_or_assign(out.name, std::move(own));
  }
  std::byte* Bytes(std::string_view name) { return own_.find(name)->second.bytes.get(); }

  const TensorView* Find(std::string_view name) const override {
    if (const auto found = own_.find(name); found != own_.end()) return &found->second.view;
    return kept_.contains(name) ? base_.Find(name) : nullptr;
  }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names(kept_.begin(), kept_.end());
    for (const auto& entry : own_) names.push_back(entry.first);
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  struct Own {
    TensorView view;
    std::unique_ptr<std::byte, FreeBytes> bytes;
  };
  const TensorSource& base_;
  std::map<std::string, Own, std::less<>> own_;
  std::set<std::string, std::less<>> kept_;
};

// Makes every converted tensor of the plan.
Status Fill(const TensorSource& source, const ConvertPlan& plan, const Scheme& scheme,
            const ConvertOptions& options, Overlay* overlay) {
  int64_t done = 0;
  for (const ConvertStep& step : plan.steps) {
    done += static_cast<int64_t>(step.in->bytes.size());
    if (step.converts) {
      const Status good = RunStep(source, plan, step, scheme, options,
                                  [&](size_t out, int64_t offset, std::span<const std::byte> part) {
                                    std::memcpy(overlay->Bytes(step.out[out].name) + offset,
                                                part.data(), part.size());
                                    return Ok();
                                  });
      if (!good.ok()) return good;
    }
    if (options.progress) options.progress(done, plan.in_bytes);
  }
  return Ok();
}

}  // namespace

Result<Converted> PlanConverted(const TensorSource& source, std::string_view config_json,
                                const Scheme& scheme, const ConvertOptions& options) {
  Result<ConvertPlan> planned = PlanConversion(source, scheme, options);
  if (!planned.ok()) return planned.error();
  Result<std::string> config = WithQuantConfig(
      config_json,
      QuantConfigJson(scheme, planned->ignored, planned->modules, planned->description));
  if (!config.ok()) return config.error();
  auto overlay = std::make_unique<Overlay>(source);
  for (const ConvertStep& step : planned->steps) {
    if (!step.converts) overlay->Keep(step.in->name);
    for (const OutTensor& out : step.out) {
      if (step.converts) overlay->Put(out);
    }
  }
  Converted converted;
  converted.config_json = std::move(*config);
  converted.description = planned->description;
  converted.modules = planned->modules;
  converted.ignored = planned->ignored;
  converted.fill = [&source, scheme, options, overlay = overlay.get(),
                    plan = std::make_shared<ConvertPlan>(std::move(*planned))] {
    return Fill(source, *plan, scheme, options, overlay);
  };
  converted.source = std::move(overlay);
  return converted;
}

Result<Converted> MakeConverted(const TensorSource& source, std::string_view config_json,
                                const Scheme& scheme, const ConvertOptions& options) {
  Result<Converted> converted = PlanConverted(source, config_json, scheme, options);
  if (!converted.ok()) return converted;
  if (const Status good = converted->fill(); !good.ok()) return good.error();
  return converted;
}

}  // namespace assay::kernels
