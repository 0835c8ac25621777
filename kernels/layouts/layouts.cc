#include "kernels/layouts/layouts.h"

#include <algorithm>
#include <string>

#include "kernels/layouts/row.h"
#include "kernels/layouts/rules.h"
#include "kernels/layouts/sizes.h"

namespace assay::kernels {
namespace {

constexpr Layout kRow = {"row", "all", "", row::Bytes, row::Copy, row::Copy};

const std::vector<Rule>& Rules() {
  static const std::vector<Rule> rules = [] {
    std::vector<Rule> all;
    for (const std::span<const Rule> part :
         {Rows16Rules(), TileRules(), MarlinRules(), AiterRules(), AiterInt4Rules(), SwizzleRules(),
          MlaRules(), AscendRules()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return rules;
}

}  // namespace

int64_t Product(std::initializer_list<int64_t> extents) {
  int64_t product = 1;
  for (const int64_t extent : extents) {
    if (extent < 0 || __builtin_mul_overflow(product, extent, &product)) return -1;
  }
  return product;
}

int64_t RowBytes(const StoredShape& shape) {
  return Product({shape.columns, SizeOf(shape.dtype).count()});
}

std::span<const Layout> Layouts() {
  static const std::vector<std::string> methods = KnownSchemes();
  static const std::vector<Layout> layouts = [] {
    std::vector<Layout> all;
    for (const std::string& method : methods) {
      all.push_back(kRow);
      all.back().method = method;
      const std::optional<Scheme> scheme = ParseScheme(method);
      for (const Rule& rule : Rules()) {
        if (!scheme || !rule.takes(*scheme)) continue;
        all.push_back(rule.layout);
        all.back().method = method;
      }
    }
    return all;
  }();
  return layouts;
}

const Layout* FindLayout(std::string_view tag, std::string_view method, std::string_view part) {
  if (tag == kRow.tag) return &kRow;
  const std::optional<Scheme> scheme = ParseScheme(method);
  if (!scheme) return nullptr;
  for (const Rule& rule : Rules()) {
    if (rule.layout.tag == tag && rule.layout.part == part && rule.takes(*scheme)) {
      return &rule.layout;
    }
  }
  return nullptr;
}

std::vector<std::string_view> Tags(std::string_view method, std::string_view part) {
  std::vector<std::string_view> tags = {kRow.tag};
  const std::optional<Scheme> scheme = ParseScheme(method);
  for (const Rule& rule : Rules()) {
    if (scheme && rule.layout.part == part && rule.takes(*scheme)) tags.push_back(rule.layout.tag);
  }
  return tags;
}

const Layout* LayoutOfPart(std::string_view tag, std::string_view method, std::string_view part) {
  if (const Layout* layout = FindLayout(tag, method, part)) return layout;
  const std::optional<Scheme> scheme = ParseScheme(method);
  const bool known = scheme && std::any_of(Rules().begin(), Rules().end(), [&](const Rule& rule) {
                       return rule.layout.tag == tag && rule.takes(*scheme);
                     });
  return known ? &kRow : nullptr;
}

}  // namespace assay::kernels
