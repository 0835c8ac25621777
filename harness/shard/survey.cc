#include "harness/shard/survey.h"

#include <algorithm>
#include <utility>

#include "harness/shard/cut.h"

namespace assay::shard {

struct Survey::Impl {
  const ModelConfig* config = nullptr;
  std::vector<Listed> listed;
  std::vector<Error> errors;
};

Survey::Survey(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Survey::~Survey() = default;
Survey::Survey(Survey&&) noexcept = default;

Result<Survey> Survey::Of(const ModelConfig& config, const TensorSource& source, int64_t layer) {
  const auto widths = CheckWidths(config);
  if (!widths) return widths.error();
  std::vector<Spec> specs;
  Selection headers;
  headers.headers_only = true;
  if (layer < 0) {
    specs = HeadSpecs(config);
    specs.insert(specs.begin(), EmbedSpec(config));
  } else {
    Selection selection;
    selection.layer = layer;
    selection.headers_only = true;
    if (Status good = CheckSelection(config, selection); !good) return good.error();
    specs = LayerSpecs(config, *widths, layer, selection, source);
  }
  auto impl = std::make_unique<Impl>();
  impl->config = &config;
  for (const Spec& spec : specs) {
    const size_t before = impl->listed.size();
    const Status status = ResolveSpec(spec, config.quant, source, headers, &impl->listed);
    if (status.ok()) continue;
    impl->listed.erase(impl->listed.begin() + static_cast<std::ptrdiff_t>(before),
                       impl->listed.end());
    impl->errors.push_back(status.error());
  }
  return Survey(std::move(impl));
}

const std::vector<Error>& Survey::errors() const { return impl_->errors; }
size_t Survey::size() const { return impl_->listed.size(); }
const Component& Survey::component(size_t index) const { return impl_->listed[index].component; }
int64_t Survey::expert(size_t index) const { return impl_->listed[index].expert; }

std::optional<Refusal> Survey::Forbidden(const Degrees& degrees) const {
  return RefuseDegrees(*impl_->config, degrees);
}

std::vector<Survey::Verdict> Survey::At(const Degrees& degrees) const {
  const Cutter cutter(*impl_->config, degrees, impl_->listed);
  std::vector<Verdict> verdicts(impl_->listed.size());
  for (size_t i = 0; i < verdicts.size(); ++i) {
    verdicts[i].refusal = cutter.Check(impl_->listed[i]);
    if (!verdicts[i].refusal) verdicts[i].plan = cutter.Plan(impl_->listed[i]);
  }
  return verdicts;
}

bool Survey::Legal(const Degrees& degrees) const {
  if (Forbidden(degrees)) return false;
  const Cutter cutter(*impl_->config, degrees, impl_->listed);
  return std::all_of(impl_->listed.begin(), impl_->listed.end(),
                     [&](const Listed& listed) { return !cutter.Check(listed); });
}

}  // namespace assay::shard
