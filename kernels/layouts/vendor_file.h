// A file of bytes that an engine's own code packed, and the checks against it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/safetensors.h"
#include "kernels/layouts/layouts.h"

namespace assay::kernels {

using Image = std::vector<std::byte>;

// Remembers which tensors a check has read: one that nobody looks at fails the test.
class VendorFile {
 public:
  explicit VendorFile(const std::string& name) {
    auto file = SafetensorsFile::Open("goldens/layouts/" + name + ".safetensors");
    EXPECT_TRUE(file.ok());
    if (file.ok()) file_ = std::move(file.value());
  }
  ~VendorFile() {
    if (!file_) return;
    for (const std::string& name : file_->Names()) EXPECT_TRUE(read_.contains(name)) << name;
  }
  VendorFile(const VendorFile&) = delete;
  VendorFile& operator=(const VendorFile&) = delete;

  const TensorView& Tensor(const std::string& name) {
    read_.insert(name);
    const TensorView* view = file_ ? file_->Find(name) : nullptr;
    if (view == nullptr) {
      ADD_FAILURE() << "no tensor " << name;
      static const TensorView kNone;
      return kNone;
    }
    return *view;
  }
  Image Bytes(const std::string& name) {
    const TensorView& view = Tensor(name);
    return {view.bytes.begin(), view.bytes.end()};
  }
  // Matrix i of a stack of `count` along the first axis.
  Image Bytes(const std::string& name, size_t i, size_t count) {
    const Image all = Bytes(name);
    const size_t one = all.size() / count;
    return {all.begin() + static_cast<std::ptrdiff_t>(i * one),
            all.begin() + static_cast<std::ptrdiff_t>((i + 1) * one)};
  }
  template <class T>
  std::vector<T> Values(const std::string& name) {
    const Image bytes = Bytes(name);
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }
  // Rows and columns of the last two axes; a vector is a column.
  StoredShape Shape(const std::string& name) {
    const TensorView& view = Tensor(name);
    const size_t axes = view.shape.size();
    if (axes == 0) return {view.dtype, 1, 1};
    if (axes == 1) return {view.dtype, view.shape[0], 1};
    return {view.dtype, view.shape[axes - 2], view.shape[axes - 1]};
  }
  // From the file's metadata.
  int64_t Number(const std::string& key) { return std::stoll(file_->metadata().at(key)); }

 private:
  std::unique_ptr<SafetensorsFile> file_;
  std::set<std::string> read_;
};

template <class T>
Image ImageOf(const std::vector<T>& values) {
  Image image(values.size() * sizeof(T));
  std::memcpy(image.data(), values.data(), image.size());
  return image;
}

inline Image Packed(const Layout& layout, const StoredShape& shape, const Image& in) {
  const int64_t bytes = layout.bytes(shape);
  if (bytes < 0) {
    ADD_FAILURE() << layout.tag << " does not take the shape";
    return {};
  }
  Image out(static_cast<size_t>(bytes), std::byte{0xA5});
  layout.pack(shape, in.data(), out.data());
  return out;
}

// The layout's bytes are the engine's, and its inverse gives the component back.
inline void ExpectPacks(std::string_view tag, std::string_view method, std::string_view part,
                        const StoredShape& shape, const Image& in, const Image& engines) {
  SCOPED_TRACE(std::string(tag) + " of " + std::string(method) + " " + std::string(part));
  const Layout* layout = FindLayout(tag, method, part);
  ASSERT_NE(layout, nullptr);
  if (layout->objection != nullptr) {
    ASSERT_EQ(layout->objection(shape, in.data()), nullptr);
  }
  const Image packed = Packed(*layout, shape, in);
  ASSERT_EQ(packed.size(), engines.size());
  EXPECT_TRUE(packed == engines) << "other bytes than the engine's";
  Image back(in.size(), std::byte{0x5A});
  layout->unpack(shape, engines.data(), back.data());
  EXPECT_TRUE(back == in) << "the inverse of the engine's bytes is not the component";
}

// For controls: the same bytes under another layout, shape or method must not be the engine's.
inline void ExpectDiffers(std::string_view tag, std::string_view method, std::string_view part,
                          const StoredShape& shape, const Image& in, const Image& engines) {
  const Layout* layout = FindLayout(tag, method, part);
  ASSERT_NE(layout, nullptr) << tag << " of " << method << " " << part;
  EXPECT_FALSE(Packed(*layout, shape, in) == engines) << tag << " of " << method << " " << part;
}

}  // namespace assay::kernels
