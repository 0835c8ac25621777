// Shipped models for the tests of conversions.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/checkpoint/checkpoint.h"
#include "harness/units/scheme.h"

namespace assay::kernels {
namespace fs = std::filesystem;

inline std::unique_ptr<Checkpoint> Open(const std::string& path) {
  auto opened = Checkpoint::Open(path);
  EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
  return opened.ok() ? std::move(*opened) : nullptr;
}

inline std::unique_ptr<Checkpoint> Shipped(const std::string& name) {
  return Open("goldens/checkpoints/" + name);
}

// The tensors and the text of one file of a shipped model, without asking whether it is known.
struct Raw {
  std::unique_ptr<SafetensorsFile> file;
  std::string config;
};

inline Raw OpenRaw(const std::string& name) {
  const std::string folder = "goldens/checkpoints/" + name;
  auto file = SafetensorsFile::Open(folder + "/model.safetensors");
  EXPECT_TRUE(file.ok());
  std::ifstream config(folder + "/config.json");
  return {std::move(*file), {std::istreambuf_iterator<char>(config), {}}};
}

inline Scheme SchemeOf(const std::string& id) { return ParseScheme(id).value(); }

inline bool SameTensor(const TensorView* a, const TensorView* b) {
  return a != nullptr && b != nullptr && a->dtype == b->dtype && a->shape == b->shape &&
         a->bytes.size() == b->bytes.size() &&
         std::memcmp(a->bytes.data(), b->bytes.data(), a->bytes.size()) == 0;
}

inline void ExpectSame(const TensorSource& a, const TensorSource& b) {
  ASSERT_EQ(a.Names(), b.Names());
  for (const std::string& name : a.Names())
    EXPECT_TRUE(SameTensor(a.Find(name), b.Find(name))) << name;
}

// Empty, and gone afterwards.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "assay-convert-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string Path(const std::string& name) const { return (path_ / name).string(); }
  std::set<std::string> Entries() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_)) names.insert(entry.path().filename());
    return names;
  }

 private:
  fs::path path_;
};

}  // namespace assay::kernels
