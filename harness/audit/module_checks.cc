// Whether the tensors of a module fit each other.
#include <algorithm>
#include <optional>
#include <utility>

#include "harness/audit/extents.h"
#include "harness/audit/module.h"
#include "harness/units/scheme.h"

namespace assay::audit {
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
