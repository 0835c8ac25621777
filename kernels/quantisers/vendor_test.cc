// Every quantiser against what its own library made of the same rows, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "harness/checkpoint/safetensors.h"
#include "kernels/quantisers/elements.h"
#include "kernels/quantisers/quantisers.h"

namespace assay::kernels {
namespace {

using Bytes = std::vector<std::byte>;

constexpr const char* kFolder = "goldens/activations";

std::unique_ptr<SafetensorsFile> Open(const std::string& file) {
  auto opened = SafetensorsFile::Open(std::string(kFolder) + "/" + file + ".safetensors");
  if (opened.ok()) return std::move(opened.value());
  ADD_FAILURE() << opened.error().message;
  return nullptr;
}

// The file that holds a quantiser's results. Most have its name.
std::string FileOf(std::string_view name) {
  static const std::map<std::string_view, std::string> kOthers = {
      {"fp8-g128-vllm-ue8m0", "fp8-g128-ue8m0-vllm"},
      {"int8-token-vllm-asym", "int8-token-asym-vllm-cpu"},
      {"mxfp4-gguf", "gguf-mxfp4"},
      {"q8_0-gguf", "gguf-q8_0"},
      {"mxfp4-round-down-triton", "mxfp4-round-down-triton-kernels"},
      {"mxfp4-round-up-triton", "mxfp4-round-up-triton-kernels"},
      {"mxfp8-round-down-triton", "mxfp8-round-down-triton-kernels"},
      {"mxfp8-round-up-triton", "mxfp8-round-up-triton-kernels"},
  };
  const auto at = kOthers.find(name);
  return at == kOthers.end() ? std::string(name) : at->second;
}

// The same rows that the libraries were given: "bf16" or "fp32", all or the first of them.
class Inputs {
 public:
  Inputs() : file_(Open("inputs")) {}
  Activation Rows(const std::string& type, int64_t rows) const {
    const TensorView* view = file_->Find(type);
    return {view->dtype, rows, view->shape[1], view->bytes.data()};
  }

 private:
  std::unique_ptr<SafetensorsFile> file_;
};

// What a library stored, as a quantiser gives it.
struct Stored {
  int64_t rows = 0;
  QuantisedActivation x;
};

Bytes Copy(const TensorView& view) { return {view.bytes.begin(), view.bytes.end()}; }

// GGUF's blocks: the scale, then int8 codes, or E2M1 codes j and j + 16 in byte j.
void ReadBlocks(const Quantiser& q, const TensorView& view, Stored* stored) {
  const size_t scale = q.scale == ScaleType::kF16 ? 2 : 1,
               codes = q.scale == ScaleType::kF16 ? 32 : 16;
  stored->x.scale_dtype = q.scale == ScaleType::kF16 ? DType::kF16 : DType::kF8E8M0;
  for (size_t at = 0; at < view.bytes.size(); at += scale + codes) {
    const auto block = view.bytes.subspan(at, scale + codes);
    stored->x.scales.insert(stored->x.scales.end(), block.begin(),
                            block.begin() + static_cast<std::ptrdiff_t>(scale));
    for (size_t j = 0; j < codes; ++j) {
      std::byte code = block[scale + j];
      if (codes == 16) {
        const std::byte even = block[scale + 2 * j % 16], odd = block[scale + (2 * j + 1) % 16];
        code = j < 8 ? (even & std::byte{15}) | odd << 4 : even >> 4 | (odd & std::byte{0xF0});
      }
      stored->x.codes.push_back(code);
    }
  }
}

// vLLM's NVFP4 gives values; each is a code's, and only a zero's sign needs a look at the bits.
Bytes CodesOf(const TensorView& values) {
  Bytes codes(values.bytes.size() / 8);
  for (size_t i = 0; i < values.bytes.size() / 4; ++i) {
    float value;
    std::memcpy(&value, values.bytes.data() + 4 * i, sizeof value);
    uint8_t code = 0;
    while (code < 15 && quantisers::Bits(quantisers::FromE2m1(code)) != quantisers::Bits(value)) {
      ++code;
    }
    EXPECT_EQ(quantisers::FromE2m1(code), value);
    codes[i / 2] |= std::byte{code} << (4 * (i % 2));
  }
  return codes;
}

Stored Read(const Quantiser& q, const SafetensorsFile& file, const std::string& type,
            std::set<std::string>* seen) {
  Stored stored;
  const auto find = [&](const char* part) {
    const std::string name = type + "." + part;
    seen->insert(name);
    return file.Find(name);
  };
  const TensorView* codes = file.Find(type + ".q") != nullptr ? find("q") : find("values");
  if (codes == nullptr) return stored;
  stored.rows = codes->shape[0];
  const TensorView* scales = find("scale");
  if (scales == nullptr) {
    ReadBlocks(q, *codes, &stored);
    return stored;
  }
  stored.x.codes = codes->dtype == DType::kF32 ? CodesOf(*codes) : Copy(*codes);
  stored.x.scales = Copy(*scales);
  stored.x.scale_dtype = scales->dtype == DType::kU8 ? DType::kF8E8M0 : scales->dtype;
  if (const TensorView* zeros = file.Find(type + ".zero"); zeros != nullptr) {
    seen->insert(type + ".zero");
    stored.x.zeros.resize(zeros->bytes.size() / 4);
    std::memcpy(stored.x.zeros.data(), zeros->bytes.data(), zeros->bytes.size());
  }
  if (const TensorView* global = file.Find(type + ".global_scale"); global != nullptr) {
    seen->insert(type + ".global_scale");
    std::memcpy(&stored.x.global_scale, global->bytes.data(), sizeof(float));
  }
  return stored;
}

// Empty, or the first difference and how many there are.
std::string FirstDifference(const char* what, const Bytes& ours, const Bytes& theirs,
                            size_t a_row) {
  if (ours.size() != theirs.size()) {
    return std::string(what) + ": " + std::to_string(ours.size()) + " bytes, the library has " +
           std::to_string(theirs.size()) + "\n";
  }
  size_t count = 0, first = 0;
  for (size_t i = ours.size(); i-- > 0;) {
    if (ours[i] != theirs[i]) ++count, first = i;
  }
  if (count == 0) return "";
  return std::string(what) + ": " + std::to_string(count) + " bytes differ, first row " +
         std::to_string(first / a_row) + " byte " + std::to_string(first % a_row) + ": " +
         std::to_string(std::to_integer<int>(ours[first])) + ", the library has " +
         std::to_string(std::to_integer<int>(theirs[first])) + "\n";
}

std::string Difference(const QuantisedActivation& ours, const Stored& theirs) {
  const auto rows = static_cast<size_t>(theirs.rows);
  std::string text;
  if (ours.scale_dtype != theirs.x.scale_dtype) text += "scales of another type\n";
  text += FirstDifference("scales", ours.scales, theirs.x.scales, ours.scales.size() / rows);
  text += FirstDifference("codes", ours.codes, theirs.x.codes, ours.codes.size() / rows);
  if (ours.zeros != theirs.x.zeros) text += "zero points differ\n";
  if (quantisers::Bits(ours.global_scale) != quantisers::Bits(theirs.x.global_scale)) {
    text += "the global scale differs\n";
  }
  return text;
}

class Vendor : public ::testing::TestWithParam<Quantiser> {};

TEST_P(Vendor, GaveTheseBytes) {
  const Quantiser& q = GetParam();
  const auto file = Open(FileOf(q.name));
  ASSERT_NE(file, nullptr);
  const Inputs inputs;
  std::set<std::string> seen;
  int compared = 0;
  for (const std::string type : {"bf16", "fp32"}) {
    const Stored stored = Read(q, *file, type, &seen);
    if (stored.rows == 0) continue;
    ++compared;
    const auto ours = Quantise(q, inputs.Rows(type, stored.rows));
    ASSERT_TRUE(ours.ok()) << ours.error().message;
    EXPECT_EQ(Difference(*ours, stored), "") << type;
  }
  EXPECT_GE(compared, q.name.ends_with("gguf") ? 1 : 2);
  for (const std::string& name : file->Names()) EXPECT_TRUE(seen.contains(name)) << name;
}

std::string TestName(const ::testing::TestParamInfo<Quantiser>& info) {
  std::string name(info.param.name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Quantisers, Vendor, ::testing::ValuesIn(Quantisers()), TestName);

TEST(Files, EachHasItsQuantiser) {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".safetensors") files.insert(entry.path().stem().string());
  }
  EXPECT_EQ(files.erase("inputs"), 1U);
  for (const Quantiser& q : Quantisers()) EXPECT_EQ(files.erase(FileOf(q.name)), 1U) << q.name;
  for (const std::string& file : files) ADD_FAILURE() << file << " has no quantiser";
}

// Whether a quantiser makes everything that another one's file holds.
bool Equals(const Quantiser& quantiser, const Quantiser& owner, const Inputs& inputs) {
  const auto file = Open(FileOf(owner.name));
  if (file == nullptr) return false;
  for (const std::string type : {"bf16", "fp32"}) {
    std::set<std::string> seen;
    const Stored stored = Read(owner, *file, type, &seen);
    if (stored.rows == 0) continue;
    const auto result = Quantise(quantiser, inputs.Rows(type, stored.rows));
    if (!result.ok() || !Difference(*result, stored).empty()) return false;
  }
  return true;
}

// Control: a name matters. Of all pairs one is the same function: AITER's and triton_kernels' MXFP8
// differ in nothing that is finite.
TEST(Files, NoOtherQuantiserHasTheirBytes) {
  const Inputs inputs;
  std::set<std::string> same;
  for (const Quantiser& owner : Quantisers()) {
    for (const Quantiser& other : Quantisers()) {
      if (other.name == owner.name || !Equals(other, owner, inputs)) continue;
      same.insert(std::string(std::min(owner.name, other.name)) + " = " +
                  std::string(std::max(owner.name, other.name)));
    }
  }
  EXPECT_EQ(same, std::set<std::string>{"mxfp8-rceil-aiter = mxfp8-round-up-triton"});
}

// Control: one bit of one scale, code, zero point or global scale is seen.
TEST(Files, OneBitIsSeen) {
  const Inputs inputs;
  for (const Quantiser& q : Quantisers()) {
    const auto file = Open(FileOf(q.name));
    ASSERT_NE(file, nullptr);
    std::set<std::string> seen;
    const Stored stored = Read(q, *file, "fp32", &seen);
    auto ours = Quantise(q, inputs.Rows("fp32", stored.rows));
    ASSERT_TRUE(ours.ok());
    ASSERT_EQ(Difference(*ours, stored), "");
    ours->codes.back() ^= std::byte{0x10};
    EXPECT_NE(Difference(*ours, stored), "") << q.name;
    ours->codes.back() ^= std::byte{0x10};
    ours->scales.front() ^= std::byte{1};
    EXPECT_NE(Difference(*ours, stored), "") << q.name;
    ours->scales.front() ^= std::byte{1};
    ours->global_scale = std::nextafter(ours->global_scale, 1e30F);
    EXPECT_NE(Difference(*ours, stored), "") << q.name;
  }
}

}  // namespace
}  // namespace assay::kernels
