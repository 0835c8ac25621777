#include "harness/audit/module.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "harness/units/scheme.h"

namespace assay::audit {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

int64_t Extent(const TensorView* tensor, size_t axis) {
  return tensor != nullptr && axis < tensor->shape.size() ? tensor->shape[axis] : 1;
}

// The fastest axis; 1 of a scalar.
int64_t Last(const TensorView* tensor) {
  return tensor == nullptr || tensor->shape.empty() ? 1 : tensor->shape.back();
}

int64_t Values(const TensorView& tensor) {
  int64_t count = 1;
  for (const int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(count, extent, &count)) return 0;
  }
  return count;
}

bool IsByte(DType dtype) { return dtype == DType::kU8 || dtype == DType::kI8; }
bool IsFp8(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2; }
bool IsExponent(const TensorView* t) {
  return t != nullptr && (t->dtype == DType::kU8 || t->dtype == DType::kF8E8M0);
}

Finding Wrong(std::string kind, const TensorView& tensor, std::string detail) {
  return {std::move(kind), tensor.name, tensor.file, std::move(detail)};
}

std::string ShapeOf(const TensorView& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
}

// Words of 32 bits that hold `count` codes.
int64_t WordsOf(int64_t count, int bits, bool old_packing) {
  if (old_packing) return CeilDiv(count, 32 / bits);
  return count > INT64_MAX / 32 ? 0 : CeilDiv(count * bits, 32);
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

namespace {

// [rows, columns] of what stands beside the codes.
std::optional<Finding> Fits(const TensorView* tensor, int64_t rows, int64_t columns,
                            const std::string& because) {
  if (tensor == nullptr || rows == 0 || columns == 0) return std::nullopt;
  if (tensor->shape.size() == 2 && tensor->shape[0] == rows && tensor->shape[1] == columns) {
    return std::nullopt;
  }
  if (columns == 1 && tensor->shape.size() == 1 && tensor->shape[0] == rows) return std::nullopt;
  return Wrong("shape", *tensor,
               fmt::format("has shape {}; it must be [{}, {}], since {}", ShapeOf(*tensor), rows,
                           columns, because));
}

std::optional<Finding> CheckScale(const Module& m) {
  const std::string codes = fmt::format("{} is {}", m.codes->name, ShapeOf(*m.codes));
  if (m.role.suffix == "_blocks") {
    const auto& shape = m.codes->shape;
    if (shape.size() != 4 || shape.back() != 16) {
      return Wrong(
          "shape", *m.codes,
          fmt::format("has shape {}; blocks are [experts, rows, groups, 16]", ShapeOf(*m.codes)));
    }
    if (m.scale->shape == std::vector<int64_t>(shape.begin(), shape.end() - 1)) return std::nullopt;
    return Wrong("shape", *m.scale,
                 fmt::format("has shape {}; it must be [{}, {}, {}], since {}", ShapeOf(*m.scale),
                             shape[0], shape[1], shape[2], codes));
  }
  if (m.codes->shape.size() != 2) return std::nullopt;  // fused tensors: their own conventions
  const std::optional<Scheme> s = ParseScheme(m.method);
  if (!s) return std::nullopt;
  switch (s->granularity) {
    case Granularity::kGroup:
      if (m.role.along_k) {
        return Fits(m.scale, CeilDiv(m.k, std::max<int64_t>(m.group, 1)), m.n,
                    fmt::format("{} and a group is {} elements", codes, m.group));
      }
      if (s->family == MethodFamily::kCtInt) {
        // The group is the config's, so k is the scale's; the codes must hold as many.
        const int64_t words = WordsOf(m.k, s->bits, m.old_packing);
        if (words != m.codes->shape[1]) {
          return Wrong(
              "shape", *m.scale,
              fmt::format("has shape {}: {} groups of {} are {} elements and {} words of "
                          "{}-bit codes a row, but {}",
                          ShapeOf(*m.scale), m.groups, m.group, m.k, words, s->bits, codes));
        }
        return Fits(m.scale, m.n, m.groups, codes);
      }
      return Fits(m.scale, m.n, CeilDiv(m.k, std::max<int64_t>(m.group, 1)),
                  fmt::format("{} and a group is {} elements", codes, m.group));
    case Granularity::kBlock:
      return Fits(m.scale, CeilDiv(m.n, s->block_n), CeilDiv(m.k, s->block_k),
                  fmt::format("{} and a block is {} x {}", codes, s->block_n, s->block_k));
    case Granularity::kChannel:
      if (m.role.along_k) return Fits(m.scale, 1, m.n, codes);
      return Fits(m.scale, m.n, 1, codes + " and a row has one scale");
    case Granularity::kTensor:
    case Granularity::kNone:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Finding> CheckZero(const Module& m) {
  if (m.zero == nullptr || m.codes->dtype != DType::kI32 || m.zero->dtype != DType::kI32) {
    return std::nullopt;
  }
  const int bits = m.coding.bits;
  const std::string because = fmt::format("{} is {} and zero points are {}-bit codes",
                                          m.codes->name, ShapeOf(*m.codes), bits);
  if (m.role.along_k) {
    const int64_t groups = m.group > 0 ? CeilDiv(m.k, m.group) : m.groups;
    return Fits(m.zero, groups, WordsOf(m.n, bits, false), because);
  }
  const int64_t groups = m.groups > 0 ? m.groups : 1;
  return Fits(m.zero, WordsOf(m.n, bits, m.old_packing), groups, because);
}

std::optional<Finding> CheckGptqCodes(const Module& m) {
  if (!m.role.along_k || m.codes->shape.size() != 2 || m.scale->shape.size() != 2) {
    return std::nullopt;
  }
  const int64_t n = m.scale->shape[1], width = m.codes->shape[1];
  const int64_t per_word = 32 / m.coding.bits;
  const bool awq = m.method.starts_with("awq");
  if (awq ? width == CeilDiv(n, per_word) : width == n) return std::nullopt;
  return Wrong("shape", *m.codes,
               fmt::format("has {} columns; {} has {}, so it must have {} (GPTQ) or {} (AWQ)",
                           width, m.scale->name, n, n, CeilDiv(n, per_word)));
}

}  // namespace

std::vector<Finding> CheckModule(const Module& m) {
  std::vector<Finding> findings;
  const auto add = [&](std::optional<Finding> finding) {
    if (finding) findings.push_back(std::move(*finding));
  };
  // Types that do not fit are told of by themselves; nothing follows from them.
  if (!m.role.type_fits) return findings;
  if (m.scale == nullptr) {
    add(Wrong("missing", *m.codes,
              "holds codes, but nothing in the checkpoint is its scale; a quantised weight needs "
              "one (weight_scale, weight_scale_inv, scales or scale)"));
    return findings;
  }
  if (auto codes = CheckGptqCodes(m)) {
    add(std::move(codes));
    return findings;
  }
  add(CheckScale(m));
  add(CheckZero(m));
  if (m.method == "ct-nvfp4" && m.global == nullptr) {
    add(Wrong("missing", *m.codes, "is NVFP4 and has no weight_global_scale beside it"));
  }
  if (m.method == "modelopt-nvfp4" && m.global == nullptr) {
    add(Wrong("missing", *m.codes, "is NVFP4 and has no weight_scale_2 beside it"));
  }
  if (m.codes->dtype == DType::kI32 && !m.role.along_k && m.shape == nullptr) {
    add(Wrong("missing", *m.codes, "has no weight_shape beside it; packed codes need one"));
  }
  return findings;
}

namespace {

// Integers of an I32 or I64 tensor.
std::vector<int64_t> Integers(const TensorView& tensor, std::span<const std::byte> bytes) {
  std::vector<int64_t> values;
  const size_t width = tensor.dtype == DType::kI64 ? 8 : 4;
  values.reserve(bytes.size() / width);
  for (size_t at = 0; at + width <= bytes.size(); at += width) {
    int64_t value = 0;
    int32_t narrow = 0;
    if (width == 8) {
      std::copy_n(bytes.data() + at, width, reinterpret_cast<std::byte*>(&value));
    } else {
      std::copy_n(bytes.data() + at, width, reinterpret_cast<std::byte*>(&narrow));
      value = narrow;
    }
    values.push_back(value);
  }
  return values;
}

bool IsInteger(const TensorView& tensor) {
  return tensor.dtype == DType::kI32 || tensor.dtype == DType::kI64;
}

}  // namespace

std::optional<Finding> CheckStatedShape(const Module& m, const TensorView& shape,
                                        std::span<const std::byte> bytes) {
  if (!IsInteger(shape)) return std::nullopt;
  const std::vector<int64_t> stated = Integers(shape, bytes);
  const std::string packed = fmt::format("{} is {}", m.codes->name, ShapeOf(*m.codes));
  if (stated.size() != m.codes->shape.size()) {
    return Wrong("weight-shape", shape,
                 fmt::format("states {} extents; {}", stated.size(), packed));
  }
  if (stated.size() != 2 || m.codes->shape[1] > INT64_MAX / 32) return std::nullopt;
  if (stated[0] != m.codes->shape[0]) {
    return Wrong("weight-shape", shape,
                 fmt::format("states [{}, {}], but {}: n must be {}", stated[0], stated[1], packed,
                             m.codes->shape[0]));
  }
  if (m.codes->dtype != DType::kI32) return std::nullopt;
  const int bits = m.coding.bits;
  const int64_t words = m.codes->shape[1];
  const bool fits = stated[1] > 0 && (WordsOf(stated[1], bits, false) == words ||
                                      WordsOf(stated[1], bits, true) == words);
  if (!fits) {
    return Wrong("weight-shape", shape,
                 fmt::format("states [{}, {}], but {}: {} words of {}-bit codes hold up to {} "
                             "elements",
                             stated[0], stated[1], packed, words, bits, words * 32 / bits));
  }
  if (m.scale != nullptr && m.group > 0 && m.groups > 0 &&
      CeilDiv(stated[1], m.group) != m.groups) {
    return Wrong(
        "weight-shape", shape,
        fmt::format("states [{}, {}], which is {} groups of {}, but {} has {}", stated[0],
                    stated[1], CeilDiv(stated[1], m.group), m.group, m.scale->name, m.groups));
  }
  return std::nullopt;
}

GIdx CheckGIdx(const Module* m, const TensorView& tensor, std::span<const std::byte> bytes) {
  GIdx result;
  if (!IsInteger(tensor)) return result;
  const std::vector<int64_t> groups = Integers(tensor, bytes);
  const auto wrong = [&](std::string detail) {
    result.finding = Wrong("g-idx", tensor, std::move(detail));
    return result;
  };
  result.unused = !groups.empty() && std::all_of(groups.begin(), groups.end(),
                                                 [](int64_t group) { return group == -1; });
  if (result.unused || m == nullptr || m->scale == nullptr || m->groups <= 0) return result;
  const auto k = static_cast<int64_t>(groups.size());
  if (m->k > 0 && k != m->k) {
    return wrong(fmt::format("has {} entries; k has {} elements", k, m->k));
  }
  std::vector<int64_t> sizes(static_cast<size_t>(std::min<int64_t>(m->groups, k)), 0);
  result.identity = true;
  for (int64_t i = 0; i < k; ++i) {
    const int64_t group = groups[static_cast<size_t>(i)];
    if (group < 0 || group >= m->groups) {
      result.identity = false;
      return wrong(fmt::format("element {} is in group {}; {} has groups 0 to {}", i, group,
                               m->scale->name, m->groups - 1));
    }
    if (group < static_cast<int64_t>(sizes.size())) ++sizes[static_cast<size_t>(group)];
    result.identity = result.identity && m->group > 0 && group == i / m->group;
  }
  for (size_t group = 0; group < sizes.size() && m->group > 0; ++group) {
    const bool last = static_cast<int64_t>(group) == m->groups - 1;
    // Groups are at most k here: more of them were found empty.
    const int64_t due = last ? k - std::min(k, m->group) * (m->groups - 1) : m->group;
    if (sizes[group] == due) continue;
    return wrong(fmt::format("group {} has {} elements; a group has {}{}", group, sizes[group],
                             m->group, due == m->group ? "" : fmt::format(", the last {}", due)));
  }
  return result;
}

}  // namespace assay::audit
