// A refusal or a shape error, explained: which tensor, axis, unit and representation.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "harness/locate/internal.h"

namespace assay::locate {
namespace {

using reference::Oracle;
using reference::Slice;

struct Extent {
  const char* axis;
  std::string unit;  // "element", "word", "byte", "group"
  const char* what;  // "packed", "unpacked"
  int64_t count;
};

// The ways in which a component's extents can be counted.
std::vector<Extent> ExtentsOf(const Slice& slice) {
  const auto rows = static_cast<int64_t>(slice.rows.size());
  const auto columns = static_cast<int64_t>(slice.columns.size());
  std::vector<Extent> extents{{"n", "row", "", rows}};
  if (slice.unit == "word") {
    const int64_t bytes = SizeOf(slice.dtype).count();
    extents.push_back({"k", "word", "packed", columns});
    extents.push_back({"k", "byte", "packed", columns * bytes});
    extents.push_back({"k", "element", "unpacked", columns * slice.elements_per_column});
  } else if (slice.unit == "group") {
    extents.push_back({"k", "group", "one a group", columns});
    extents.push_back({"k", "element", "one an element", columns * slice.elements_per_column});
  } else {
    extents.push_back({"k", "element", "unpacked", columns});
  }
  return extents;
}

std::vector<int64_t> NumbersIn(const std::string& text) {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < text.size();) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) {
      ++i;
      continue;
    }
    // Digits inside a name ("L1", "int4") are not extents.
    const bool inside = i > 0 && (std::isalpha(static_cast<unsigned char>(text[i - 1])) != 0 ||
                                  text[i - 1] == '_' || text[i - 1] == '.');
    int64_t number = 0;
    size_t digits = 0;
    for (; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0; ++i) {
      if (++digits < 18) number = number * 10 + (text[i] - '0');
    }
    if (!inside && digits < 18) numbers.push_back(number);
  }
  return numbers;
}

struct Fit {
  std::string component;
  Extent got, expected;
};

std::vector<Fit> FitsOf(const Oracle& oracle, const std::string& component, int64_t got,
                        int64_t expected) {
  std::vector<Fit> fits;
  auto slice = oracle.ExpectedSlice(component, {});
  if (!slice.ok()) return fits;
  const std::vector<Extent> extents = ExtentsOf(*slice);
  for (const Extent& a : extents) {
    for (const Extent& b : extents) {
      if (std::string_view(a.axis) != b.axis || a.unit == b.unit) continue;
      if (a.count == got && b.count == expected && got != expected) {
        fits.push_back({component, a, b});
      }
    }
  }
  return fits;
}

// "48 bytes (packed)"
std::string Counted(const Extent& e) {
  return fmt::format("{} {}s{}", e.count, e.unit,
                     *e.what != '\0' ? fmt::format(" ({})", e.what) : "");
}

// The component that an engine's name stands for: Assay's name, or the checkpoint's.
std::string Known(const Oracle& oracle, const std::string& name,
                  const std::vector<std::string>& components) {
  for (const std::string& component : components) {
    if (component == name) return component;
    auto source = oracle.SourceName(component);
    if (source.ok() && *source == name) return component;
  }
  return "";
}

void SetComponent(const Oracle& oracle, const std::string& component, Divergence* d) {
  d->tensor = component;
  const reference::Node* node = ConsumerOf(oracle, component);
  if (node == nullptr) return;
  if (node->layer >= 0) d->layer = node->layer;
  if (node->expert >= 0) d->expert = node->expert;
  const size_t dot = node->path.rfind('.');
  d->op = dot == std::string::npos ? node->path : node->path.substr(dot + 1);
  d->tap = node->tap;
}

// The unit in an engine's words for it: "packed bytes (u4x2)" is "byte".
std::string UnitIn(const std::string& words) {
  for (const char* unit : {"byte", "word", "group", "element", "row", "head"}) {
    if (words.find(unit) != std::string::npos) return unit;
  }
  return words;
}

// "48 bytes (packed)"; an engine that says more than the unit is quoted as it is.
std::string Counted(int64_t count, const std::string& words, const Slice* slice) {
  const std::string unit = UnitIn(words);
  if (words.empty()) return fmt::format("{} values", count);
  if (words != unit) return fmt::format("{} {}", count, words);
  if (slice != nullptr) {
    for (const Extent& e : ExtentsOf(*slice)) {
      if (e.unit == unit && *e.what != '\0') return fmt::format("{} {}s ({})", count, unit, e.what);
    }
  }
  // The parameter has no such unit: what the engine holds is of another representation.
  const bool packed = unit == "byte" || unit == "word";
  return fmt::format("{} {}s{}", count, unit, packed ? " (packed)" : "");
}

// As the engine put it, for a tensor that is known.
void Structured(const Oracle& oracle, const ShapeError& error, const std::string& component,
                Divergence* d) {
  if (!component.empty()) SetComponent(oracle, component, d);
  d->unit = UnitIn(error.expected_unit);
  const std::string axis = error.axis.empty() ? "of no stated name" : error.axis;
  const std::string tensor = component.empty() ? error.tensor : component;
  auto slice = oracle.ExpectedSlice(component, {});
  const Slice* known = slice.ok() ? &*slice : nullptr;
  const bool units =
      !error.got_unit.empty() && UnitIn(error.got_unit) != UnitIn(error.expected_unit);
  d->signature = {units ? "packed-against-unpacked" : "wrong-shape",
                  fmt::format("axis {} of {}: {} where {} were due", axis, tensor,
                              Counted(error.got, error.got_unit, known),
                              Counted(error.expected, error.expected_unit, known)),
                  error.message};
}

}  // namespace

Result<Divergence> ExplainRefusal(const Oracle& oracle, const ShapeError& error,
                                  const std::vector<std::string>& components) {
  Divergence d;
  d.cls = "loader";
  const std::string named = Known(oracle, error.tensor, components);
  if (!error.tensor.empty() && (error.got != 0 || error.expected != 0)) {
    d.expected = static_cast<double>(error.expected);
    d.got = static_cast<double>(error.got);
    Structured(oracle, error, named, &d);
    return d;
  }
  const std::vector<std::string> candidates =
      named.empty() ? components : std::vector<std::string>{named};
  const std::vector<int64_t> numbers = NumbersIn(error.message);
  for (size_t i = 0; i < numbers.size(); ++i) {
    for (size_t j = i + 1; j < numbers.size(); ++j) {
      std::vector<Fit> fits;
      for (const std::string& component : candidates) {
        for (const auto& [got, expected] :
             {std::pair(numbers[i], numbers[j]), std::pair(numbers[j], numbers[i])}) {
          for (Fit& fit : FitsOf(oracle, component, got, expected)) {
            // A message names them in either order; the packed one is what the engine has.
            if (fit.got.unit == "element") continue;
            fits.push_back(std::move(fit));
          }
        }
      }
      std::set<std::string> shapes;
      for (const Fit& fit : fits) {
        shapes.insert(fmt::format("{}{}{}{}{}", fit.got.axis, fit.got.unit, fit.expected.unit,
                                  fit.got.count, fit.expected.count));
      }
      if (shapes.size() != 1) continue;  // none, or several ways to read it
      const Fit& fit = fits[0];
      SetComponent(oracle, fit.component, &d);
      d.unit = fit.expected.unit;
      d.expected = static_cast<double>(fit.expected.count);
      d.got = static_cast<double>(fit.got.count);
      d.signature = {"packed-against-unpacked",
                     fmt::format("axis {} of {}: {} where {} were due", fit.got.axis, fit.component,
                                 Counted(fit.got), Counted(fit.expected)),
                     fmt::format("{}; {} component{} of this size", error.message, fits.size(),
                                 fits.size() == 1 ? "" : "s")};
      return d;
    }
  }
  if (!named.empty()) SetComponent(oracle, named, &d);
  d.signature = {"refused", "a legal configuration was refused", error.message};
  return d;
}

}  // namespace assay::locate
