// Stored values and names of components.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

#include "harness/locate/shard_tests.h"

namespace assay::locate {

Values Unpack(std::span<const std::byte> bytes, int64_t rows, int64_t columns, DType dtype) {
  Values values;
  values.rows = rows;
  values.columns = columns * PartsOf(dtype);
  values.width = static_cast<int>(SizeOf(dtype).count() / PartsOf(dtype));
  values.bits.resize(static_cast<size_t>(rows * values.columns));
  for (size_t i = 0; i < values.bits.size(); ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * static_cast<size_t>(values.width),
                static_cast<size_t>(values.width));
    values.bits[i] = bits;
  }
  return values;
}

int64_t PartsOf(DType dtype) { return IsBlock(dtype) ? SizeOf(dtype).count() : 1; }

namespace {

// Of a float with `mantissa` bits behind the exponent and one sign before it; its NaNs and
// infinities are the numbers that their bits would be.
double SmallFloat(uint64_t bits, int mantissa, int bias) {
  const auto low = static_cast<double>(bits & ((1u << mantissa) - 1));
  const int exponent = static_cast<int>((bits & 0x7F) >> mantissa);
  const double fraction = std::ldexp(low, -mantissa) + (exponent > 0 ? 1 : 0);
  const double value = std::ldexp(fraction, std::max(exponent, 1) - bias);
  return bits & 0x80 ? -value : value;
}

}  // namespace

double NumberOf(uint64_t bits, DType dtype) {
  if (dtype == DType::kF8E4M3) return SmallFloat(bits, 3, 7);
  if (dtype == DType::kF8E5M2) return SmallFloat(bits, 2, 15);
  if (dtype == DType::kF8E8M0) return std::ldexp(1.0, static_cast<int>(bits) - 127);
  if (IsBlock(dtype)) return static_cast<double>(bits);  // a byte of it
  TapValue one{dtype, {1}, std::vector<std::byte>(static_cast<size_t>(SizeOf(dtype).count()))};
  std::memcpy(one.bytes.data(), &bits, one.bytes.size());
  return judge::ToTensor(one).data[0];
}

std::string HexOf(uint64_t bits, DType dtype) {
  return fmt::format("{:0{}x}", bits, 2 * SizeOf(dtype).count() / PartsOf(dtype));
}

std::string ParameterOf(std::string_view component) {
  const size_t dot = component.rfind('.');
  return std::string(dot == std::string_view::npos ? component : component.substr(0, dot));
}

std::string SuffixOf(std::string_view component) {
  const size_t dot = component.rfind('.');
  return dot == std::string_view::npos ? "" : std::string(component.substr(dot));
}

std::string KindOf(std::string_view component) {
  std::string kind;
  size_t begin = 0;
  while (begin <= component.size()) {
    const size_t end = std::min(component.find('.', begin), component.size());
    const std::string_view part = component.substr(begin, end - begin);
    const bool numbered = part.size() > 1 && (part[0] == 'L' || part[0] == 'e') &&
                          std::all_of(part.begin() + 1, part.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
    if (!numbered) {
      if (!kind.empty()) kind += '.';
      kind += part;
    }
    begin = end + 1;
  }
  return kind;
}

int64_t WrongCount(const ShardCase& c) {
  int64_t wrong = 0;
  for (size_t i = 0; i < c.want.bits.size(); ++i) wrong += c.want.bits[i] != c.got.bits[i];
  return wrong;
}

std::string Units(const ShardCase& c) {
  const auto n = static_cast<int64_t>(c.want.bits.size());
  return fmt::format("{} of {} {}s", n, n, c.unit());
}

std::string Wrong(const ShardCase& c) {
  return fmt::format("{} of {} {}s are wrong", WrongCount(c), c.want.bits.size(), c.unit());
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}

std::optional<Bits> BitsOf(const ShardCase& c, const std::string& component, const Where& where,
                           const reference::Oracle* of) {
  auto slice = (of != nullptr ? of : c.oracle)->ExpectedSlice(component, where);
  if (!slice.ok() || slice->dtype != c.expected->dtype ||
      slice->bytes.size() != c.expected->bytes.size()) {
    return std::nullopt;
  }
  return Unpack(slice->bytes, static_cast<int64_t>(slice->rows.size()),
                static_cast<int64_t>(slice->columns.size()), slice->dtype)
      .bits;
}

std::optional<Values> WholeOf(const ShardCase& c, const std::string& component) {
  auto slice = c.oracle->ExpectedSlice(component, {c.where.degrees, -1});
  if (!slice.ok() || slice->dtype != c.expected->dtype) return std::nullopt;
  return Unpack(slice->bytes, static_cast<int64_t>(slice->rows.size()),
                static_cast<int64_t>(slice->columns.size()), slice->dtype);
}

void SetPlace(std::string_view component, Divergence* divergence) {
  const std::string parameter = ParameterOf(component);
  const auto number = [](std::string_view part, char mark) -> std::optional<int64_t> {
    if (part.size() < 2 || part[0] != mark) return std::nullopt;
    int64_t value = 0;
    for (const char digit : part.substr(1)) {
      if (std::isdigit(static_cast<unsigned char>(digit)) == 0) return std::nullopt;
      value = 10 * value + (digit - '0');
    }
    return value;
  };
  size_t begin = 0;
  while (begin <= parameter.size()) {
    const size_t end = std::min(parameter.find('.', begin), parameter.size());
    const std::string_view part = std::string_view(parameter).substr(begin, end - begin);
    if (const auto layer = number(part, 'L')) divergence->layer = *layer;
    if (const auto expert = number(part, 'e')) divergence->expert = *expert;
    divergence->op = part;
    begin = end + 1;
  }
}

const reference::Node* ConsumerOf(const reference::Oracle& oracle, std::string_view component) {
  const std::string parameter = ParameterOf(component);
  for (const reference::Node& node : oracle.graph()) {
    if (node.weight == parameter) return &node;
  }
  return oracle.FindNode(parameter);
}

}  // namespace assay::locate
