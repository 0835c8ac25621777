#include "harness/audit/module.h"

#include <algorithm>
#include <utility>

#include "harness/audit/extents.h"
#include "harness/units/scheme.h"

namespace assay::audit {
namespace {

bool IsByte(DType dtype) { return dtype == DType::kU8 || dtype == DType::kI8; }
bool IsFp8(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2; }
bool IsExponent(const TensorView* t) {
  return t != nullptr && (t->dtype == DType::kU8 || t->dtype == DType::kF8E8M0);
}

// The scheme's granularity where the scale's shape says it: [N, G], [N, 1], [N], [1] or [].
void ReadGranularity(Module* m, const QuantConfig& quant, Scheme* s) {
  const int64_t columns = m->scale->shape.size() >= 2 ? m->scale->shape.back() : 1;
  const bool one = Values(*m->scale) == 1;
  s->granularity = one && m->n != 1 ? Granularity::kTensor : Granularity::kChannel;
  if (quant.strategy == "channel" || quant.strategy == "tensor") return;
  if (quant.strategy == "group" || quant.group_size > 0 || columns > 1) {
    s->granularity = Granularity::kGroup;
    m->groups = columns;
    m->group = quant.group_size > 0 ? quant.group_size : m->k > 0 ? CeilDiv(m->k, columns) : 0;
    s->group = m->group;
  }
}

void ReadCtInt(Module* m, const QuantConfig& quant, Scheme* s) {
  s->family = MethodFamily::kCtInt;
  s->bits = quant.bits >= 2 && quant.bits <= 8 ? quant.bits : 4;
  const int64_t words = m->codes->shape.size() >= 2 ? m->codes->shape.back() : 0;
  m->n = Extent(m->codes, 0);
  if (m->scale == nullptr) return;
  m->k = words > INT64_MAX / 32 ? 0 : words * 32 / s->bits;
  ReadGranularity(m, quant, s);
  if (s->granularity == Granularity::kTensor) s->granularity = Granularity::kChannel;
  if (s->granularity == Granularity::kGroup && quant.group_size > 0 &&
      m->groups <= INT64_MAX / quant.group_size) {
    m->k = m->groups * quant.group_size;
    m->old_packing = words != WordsOf(m->k, s->bits, false) &&
                     words == WordsOf(m->k, s->bits, true) && 32 % s->bits != 0;
  }
  s->old_packing = m->old_packing;
  s->asymmetric = m->zero != nullptr;
  s->actorder = m->g_idx != nullptr && s->granularity == Granularity::kGroup;
}

void ReadGptqOrAwq(Module* m, const QuantConfig& quant, Scheme* s) {
  s->bits = quant.bits == 8 ? 8 : 4;
  const int64_t per_word = 32 / s->bits;
  const int64_t n = m->scale == nullptr ? 0 : Last(m->scale);
  const bool awq =
      quant.method == "awq" || (m->g_idx == nullptr && n > 0 && Extent(m->codes, 1) != n &&
                                Extent(m->codes, 1) == n / per_word);
  s->family = awq ? MethodFamily::kAwq : MethodFamily::kGptq;
  m->n = n;
  const int64_t rows = Extent(m->codes, 0);
  m->k = awq ? rows : rows > INT64_MAX / per_word ? 0 : rows * per_word;
  m->groups = Extent(m->scale, 0);
  m->group = quant.group_size > 0 ? quant.group_size : m->groups > 0 ? CeilDiv(m->k, m->groups) : 0;
  s->granularity =
      m->groups == 1 && quant.group_size == 0 && !awq ? Granularity::kChannel : Granularity::kGroup;
  s->group = s->granularity == Granularity::kGroup ? m->group : 0;
  s->asymmetric = awq || !quant.symmetric;
  s->actorder = !awq && quant.desc_act;
  s->v2 = !awq && quant.v2;
}

void ReadFp8(Module* m, const QuantConfig& quant, Scheme* s) {
  s->bits = 8;
  s->fnuz = quant.fnuz;
  m->n = Extent(m->codes, m->codes->shape.size() >= 2 ? m->codes->shape.size() - 2 : 0);
  m->k = Last(m->codes);
  if (IsExponent(m->scale) && !m->scale->name.ends_with("_inv")) {
    s->family = MethodFamily::kCtMxfp8;
    s->granularity = Granularity::kGroup;
    s->group = m->group = 32;
    m->groups = Last(m->scale);
    return;
  }
  const bool inverse = m->scale->name.ends_with("_inv");
  s->family = inverse ? MethodFamily::kDeepseekFp8 : MethodFamily::kCtFp8;
  ReadGranularity(m, QuantConfig(), s);
  const bool block = quant.block_n > 0 || inverse ||
                     (m->scale->shape.size() == 2 && s->granularity == Granularity::kGroup);
  m->groups = m->group = s->group = 0;
  if (!block || (quant.strategy == "channel" || quant.strategy == "tensor")) {
    if (s->granularity == Granularity::kGroup) s->granularity = Granularity::kChannel;
    return;
  }
  s->granularity = Granularity::kBlock;
  s->block_n = quant.block_n > 0 ? quant.block_n : 128;
  s->block_k = quant.block_k > 0 ? quant.block_k : 128;
}

// Two codes a byte; the family is the producer's.
void ReadFp4(Module* m, Scheme* s) {
  s->bits = 4;
  s->granularity = Granularity::kGroup;
  const bool e4m3 = m->scale != nullptr && m->scale->dtype == DType::kF8E4M3;
  const bool packed = m->codes->name.ends_with("weight_packed");
  const bool blocks = m->role.suffix == "_blocks";
  if (blocks) {
    s->family = MethodFamily::kGptOssMxfp4;
  } else if (e4m3) {
    s->family = packed ? MethodFamily::kCtNvfp4 : MethodFamily::kModelOptNvfp4;
  } else if (packed) {
    s->family = MethodFamily::kCtMxfp4;
  } else {
    s->family =
        m->codes->dtype == DType::kI8 ? MethodFamily::kDeepseekV4Mxfp4 : MethodFamily::kQuarkMxfp4;
  }
  s->group = m->group = e4m3 ? 16 : 32;
  const auto& shape = m->codes->shape;
  if (blocks && shape.size() == 4) {
    m->n = shape[1];
    m->groups = shape[2];
    m->k = shape[2] > INT64_MAX / 32 ? 0 : shape[2] * 32;
  } else if (shape.size() >= 2) {
    m->n = shape[shape.size() - 2];
    m->k = shape.back() > INT64_MAX / 2 ? 0 : shape.back() * 2;
    m->groups = m->scale == nullptr || m->scale->shape.empty() ? 0 : m->scale->shape.back();
  }
}

void ReadInt8(Module* m, const QuantConfig& quant, const TensorSource& source, Scheme* s) {
  const bool slim = quant.method == "ascend" || !quant.description.empty() ||
                    source.Find(Sibling(m->name, ".deq_scale")) != nullptr ||
                    source.Find(Sibling(m->name, ".weight_offset")) != nullptr ||
                    source.Find(Sibling(m->name, "_weight_offset")) != nullptr;
  s->bits = 8;
  m->n = Extent(m->codes, 0);
  m->k = Last(m->codes);
  ReadGranularity(m, QuantConfig(), s);
  s->asymmetric = m->zero != nullptr;
  s->family = MethodFamily::kCtW8a8;
  if (!slim) {
    m->groups = m->group = s->group = 0;
    if (s->granularity == Granularity::kGroup) s->granularity = Granularity::kChannel;
    return;
  }
  const auto described = quant.description.find(m->codes->name);
  const bool w4 = described != quant.description.end()
                      ? described->second.starts_with("W4")
                      : m->scale != nullptr && m->scale->shape.size() >= 2 &&
                            Extent(m->scale, m->scale->shape.size() - 2) / 2 ==
                                Extent(m->codes, m->codes->shape.size() - 2);
  s->family = w4 ? MethodFamily::kModelSlimW4a8 : MethodFamily::kModelSlimW8a8;
  s->granularity = Granularity::kNone;
  s->asymmetric = false;
  if (w4) s->bits = 4;
  m->groups = m->group = s->group = 0;
}

const TensorView* FindFirst(const TensorSource& source, std::string_view module,
                            std::initializer_list<std::string_view> suffixes) {
  for (const std::string_view suffix : suffixes) {
    if (const TensorView* found = source.Find(Sibling(module, suffix))) return found;
  }
  return nullptr;
}

// Whether an id is one that the tables of methods know.
std::string IdOf(const Scheme& scheme) {
  std::string id = NameOf(scheme);
  return ParseScheme(id) ? id : std::string();
}

}  // namespace

std::optional<Module> ReadModule(std::string_view name, const TensorSource& source,
                                 const ModelConfig* config) {
  Module m;
  m.name = name;
  m.codes =
      FindFirst(source, name, {".weight_packed", ".qweight", "_blocks", ".weight", "_weight"});
  if (m.codes == nullptr) return std::nullopt;
  m.role = RoleOf(*m.codes, source);
  if (m.role.part != Part::kCodes) return std::nullopt;
  m.scale = FindFirst(
      source, name,
      {".weight_scale", ".weight_scale_inv", ".scales", "_scales", ".scale", "_weight_scale"});
  m.zero = FindFirst(source, name,
                     {".weight_zero_point", ".qzeros", ".weight_offset", "_weight_offset"});
  m.g_idx = FindFirst(source, name, {".weight_g_idx", ".g_idx"});
  m.shape = FindFirst(source, name, {".weight_shape"});
  m.global = FindFirst(source, name, {".weight_global_scale", ".weight_scale_2"});
  const QuantConfig quant = config == nullptr ? QuantConfig() : config->quant.For(name);
  m.coding.bits = quant.bits >= 2 && quant.bits <= 8 ? quant.bits : 4;
  m.coding.fnuz = quant.fnuz;
  Scheme scheme;
  if (m.codes->dtype == DType::kI32) {
    if (m.role.along_k) {
      ReadGptqOrAwq(&m, quant, &scheme);
    } else {
      ReadCtInt(&m, quant, &scheme);
    }
  } else if (m.scale == nullptr) {
    return m;
  } else if (IsFp8(m.codes->dtype)) {
    ReadFp8(&m, quant, &scheme);
  } else if (IsByte(m.codes->dtype)) {
    const bool fp4 = m.codes->dtype == DType::kU8 || m.scale->dtype == DType::kF8E8M0;
    if (fp4) {
      ReadFp4(&m, &scheme);
    } else {
      ReadInt8(&m, quant, source, &scheme);
    }
  } else {
    return m;
  }
  m.coding.bits = scheme.bits;
  m.coding.group = m.zero == nullptr ? m.group : 0;
  m.method = m.scale == nullptr ? "" : IdOf(scheme);
  return m;
}

}  // namespace assay::audit
