// Bytes of components and layouts, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/layouts/layouts.h"

namespace assay::kernels {

using Image = std::vector<std::byte>;

inline Image Bytes(const std::vector<int>& values) {
  Image image;
  for (const int value : values) image.push_back(static_cast<std::byte>(value));
  return image;
}

inline Image RandomBytes(size_t count, uint32_t seed) {
  Image image(count);
  for (std::byte& b : image) {
    seed = seed * 1664525 + 1013904223;
    b = static_cast<std::byte>(seed >> 24);
  }
  return image;
}

using RepackFn = void (*)(const StoredShape&, const std::byte*, std::byte*);

// The packed bytes, between two guards that nobody may write.
inline Image Pack(RepackFn pack, const StoredShape& shape, const Image& in, int64_t bytes) {
  constexpr size_t kGuard = 32;
  Image out(static_cast<size_t>(bytes) + 2 * kGuard, std::byte{0xA5});
  pack(shape, in.data(), out.data() + kGuard);
  for (size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(out[i], std::byte{0xA5}) << "before the output";
    EXPECT_EQ(out[out.size() - 1 - i], std::byte{0xA5}) << "behind the output";
  }
  return {out.begin() + kGuard, out.end() - kGuard};
}

// A run of bytes at a place, in the checkpoint or in the layout.
struct ByteRun {
  int64_t at;
  std::vector<int> bytes;
};

inline Image Written(const std::vector<ByteRun>& runs, int zero, int64_t bytes) {
  Image image(static_cast<size_t>(bytes), static_cast<std::byte>(zero));
  for (const ByteRun& run : runs) {
    const Image part = Bytes(run.bytes);
    std::copy(part.begin(), part.end(), image.begin() + run.at);
  }
  return image;
}

}  // namespace assay::kernels
