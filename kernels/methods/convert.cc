#include "kernels/methods/convert.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "kernels/methods/convert_plan.h"

namespace assay::kernels {
namespace {

// Converted tensors of its own over those of another source that stay as they are.
class Overlay : public TensorSource {
 public:
  explicit Overlay(const TensorSource& base) : base_(base) {}
  void Keep(std::string name) { kept_.insert(std::move(name)); }
  MemorySource& own() { return own_; }

  const TensorView* Find(std::string_view name) const override {
    if (const TensorView* view = own_.Find(name)) return view;
    return kept_.contains(name) ? base_.Find(name) : nullptr;
  }
  std::vector<std::string> Names() const override {
    std::vector<std::string> names = own_.Names();
    names.insert(names.end(), kept_.begin(), kept_.end());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  const TensorSource& base_;
  MemorySource own_;
  std::set<std::string, std::less<>> kept_;
};

}  // namespace

Result<Converted> MakeConverted(const TensorSource& source, std::string_view config_json,
                                const Scheme& scheme, const ConvertOptions& options) {
  Result<ConvertPlan> plan = PlanConversion(source, scheme, options);
  if (!plan.ok()) return plan.error();
  Result<std::string> config = WithQuantConfig(
      config_json, QuantConfigJson(scheme, plan->ignored, plan->modules, plan->description));
  if (!config.ok()) return config.error();

  auto overlay = std::make_unique<Overlay>(source);
  int64_t done = 0;
  for (const ConvertStep& step : plan->steps) {
    done += static_cast<int64_t>(step.in->bytes.size());
    if (!step.converts) {
      overlay->Keep(step.in->name);
    } else {
      std::vector<std::vector<std::byte>> bytes;
      for (const OutTensor& out : step.out) bytes.emplace_back(static_cast<size_t>(out.bytes));
      const Status good =
          RunStep(source, *plan, step, scheme, options,
                  [&](size_t out, int64_t offset, std::span<const std::byte> part) {
                    std::memcpy(bytes[out].data() + offset, part.data(), part.size());
                    return Ok();
                  });
      if (!good.ok()) return good.error();
      for (size_t i = 0; i < step.out.size(); ++i) {
        overlay->own().Put(step.out[i].name, step.out[i].dtype, step.out[i].shape,
                           std::move(bytes[i]));
      }
    }
    if (options.progress) options.progress(done, plan->in_bytes);
  }
  return Converted{std::move(overlay), std::move(*config), std::move(plan->description),
                   std::move(plan->modules), std::move(plan->ignored)};
}

}  // namespace assay::kernels
