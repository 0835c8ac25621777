// k2_layer DIR [EXPERTS [SEED]]: a layer of Kimi-K2 at full size, for showing an audit's speed.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "harness/audit/k2_layer.h"

namespace {

template <class Number>
bool Parse(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

int main(int argc, char** argv) {
  assay::audit::LayerOptions options;
  if (argc < 2 || argc > 4 || (argc > 2 && !Parse(argv[2], &options.experts)) ||
      (argc > 3 && !Parse(argv[3], &options.seed))) {
    std::fputs("usage: k2_layer DIR [EXPERTS (384) [SEED (1)]]\n", stderr);
    return 2;
  }
  const auto start = std::chrono::steady_clock::now();
  if (const auto made = assay::audit::MakeLayer(argv[1], options); !made) {
    std::fputs(fmt::format("k2_layer: {}\n", made.error().message).c_str(), stderr);
    return 2;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const auto bytes = static_cast<double>(assay::audit::LayerBytes(options));
  std::puts(fmt::format("{:.2f} GB in {:.1f} s, {:.2f} GB/s", bytes / 1e9, took.count(),
                        bytes / 1e9 / took.count())
                .c_str());
  return 0;
}
