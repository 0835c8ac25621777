// Stored values and names of components.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "harness/locate/internal.h"

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

double NumberOf(uint64_t bits, DType dtype) {
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

const reference::Node* ConsumerOf(const reference::Oracle& oracle, std::string_view component) {
  const std::string parameter = ParameterOf(component);
  for (const reference::Node& node : oracle.graph()) {
    if (node.weight == parameter) return &node;
  }
  return oracle.FindNode(parameter);
}

}  // namespace assay::locate
