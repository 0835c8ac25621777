#include "harness/checkpoint/gguf.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "harness/checkpoint/gguf_writer.h"
#include "harness/checkpoint/safetensors.h"
#include "harness/checkpoint/test_support.h"

namespace assay {
namespace {

template <class T>
std::string Raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// A length and the text.
std::string RawText(std::string_view text) {
  return Raw<uint64_t>(text.size()) + std::string(text);
}

std::vector<std::byte> Counting(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

// One F32 tensor of 2 × 3 and one of 2 × 2 blocks of Q4_1: 24 bytes, padded to 32, and 80.
GgufWriter Small() {
  GgufWriter writer;
  writer.PutText("general.architecture", "none");
  writer.PutTensor({"plain", DType::kF32, {2, 3}, Counting(24)});
  writer.PutTensor({"blocks", DType::kQ4_1, {2, 2}, Counting(80)});
  return writer;
}

// Preamble with these counts, then `rest`.
std::string WithCounts(uint64_t tensors, uint64_t keys, std::string_view rest) {
  return "GGUF" + Raw<uint32_t>(3) + Raw(tensors) + Raw(keys) + std::string(rest);
}
std::string OneKey(std::string_view key, uint32_t type, std::string_view value) {
  return WithCounts(0, 1, RawText(key) + Raw(type) + std::string(value));
}
struct InfoFields {
  std::string name = "w";
  uint32_t extents = 2;
  std::vector<uint64_t> shape = {32, 2};
  uint32_t type = 3;
  uint64_t offset = 0;
};
// One tensor, and 40 bytes of data unless told otherwise.
std::string OneTensor(const InfoFields& f, size_t data = 40) {
  std::string bytes = WithCounts(1, 0, RawText(f.name) + Raw(f.extents));
  for (const uint64_t extent : f.shape) bytes += Raw(extent);
  bytes += Raw(f.type) + Raw(f.offset);
  bytes.resize((bytes.size() + 31) / 32 * 32, '\0');
  return bytes + std::string(data, 'x');
}

std::unique_ptr<GgufFile> Opened(const TempFolder& folder, const std::string& bytes) {
  auto file = GgufFile::Open(folder.Write("m.gguf", bytes));
  EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
  return file.ok() ? std::move(*file) : nullptr;
}

TEST(Gguf, ViewsHaveExtentsInCsOrderAndCountBlocks) {
  const TempFolder folder;
  const auto file = Opened(folder, Small().Bytes());
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->Names(), (std::vector<std::string>{"blocks", "plain"}));
  const TensorView* plain = file->Find("plain");
  ASSERT_NE(plain, nullptr);
  EXPECT_EQ(plain->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(plain->dtype, DType::kF32);
  EXPECT_EQ(std::to_integer<int>(plain->bytes[23]), 23);
  const TensorView* blocks = file->Find("blocks");
  ASSERT_NE(blocks, nullptr);
  EXPECT_EQ(blocks->shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(blocks->bytes.size(), 80u);
  EXPECT_EQ(std::to_integer<int>(blocks->bytes[79]), 79);
  EXPECT_EQ(blocks->file, folder.Path("m.gguf"));
  EXPECT_EQ(file->Find("absent"), nullptr);
}

TEST(Gguf, VersionsTwoAndThreeAndOtherAlignments) {
  const TempFolder folder;
  for (const uint32_t version : {2u, 3u}) {
    for (const uint32_t alignment : {1u, 8u, 64u, 4096u}) {
      GgufWriter writer = Small();
      writer.version = version;
      writer.PutAlignment(alignment);
      const auto file = Opened(folder, writer.Bytes());
      ASSERT_NE(file, nullptr);
      EXPECT_EQ(file->version(), version);
      EXPECT_EQ(file->alignment(), alignment);
      EXPECT_EQ(file->header().size() % alignment, 0u);
      EXPECT_EQ(std::to_integer<int>(file->Find("blocks")->bytes[5]), 5);
    }
  }
}

TEST(Gguf, PaddingOfTheLastTensorMayBeMissing) {
  const TempFolder folder;
  std::string bytes = Small().Bytes();
  bytes.resize(bytes.size() - 16);  // 80 bytes are padded to 96
  EXPECT_NE(Opened(folder, bytes), nullptr);
  bytes.resize(bytes.size() - 1);
  const auto cut = GgufFile::Open(folder.Write("m.gguf", bytes));
  ASSERT_FALSE(cut.ok());
  EXPECT_TRUE(Says(cut.error(), {"tensor 'blocks'", "80 bytes at offset 32", "111 bytes of data"}));
}

TEST(Gguf, ScalarsAndFilesWithoutTensors) {
  const TempFolder folder;
  GgufWriter writer;
  EXPECT_NE(Opened(folder, writer.Bytes()), nullptr);
  writer.PutTensor({"scalar", DType::kF16, {}, Counting(2)});
  const auto file = Opened(folder, writer.Bytes());
  ASSERT_NE(file, nullptr);
  EXPECT_TRUE(file->Find("scalar")->shape.empty());
}

struct BadFile {
  const char* what;
  std::string bytes;
  std::vector<std::string> says;
  ErrorKind kind = ErrorKind::kBadInput;
};

void ExpectRefused(const std::vector<BadFile>& files) {
  const TempFolder folder;
  for (const BadFile& bad : files) {
    SCOPED_TRACE(bad.what);
    const std::string path = folder.Write("bad.gguf", bad.bytes);
    const auto file = GgufFile::Open(path);
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().kind, bad.kind);
    EXPECT_TRUE(Says(file.error(), {path}));
    for (const std::string& text : bad.says) EXPECT_TRUE(Says(file.error(), {text}));
  }
}

TEST(Gguf, BadPreambles) {
  const std::string good = Small().Bytes();
  const auto with_version = [&](uint32_t version) {
    return "GGUF" + Raw(version) + good.substr(8);
  };
  ExpectRefused({
      {"empty", "", {"byte 0", "begins with ''", "'GGUF'"}},
      {"magic cut", "GGU", {"begins with 'GGU'"}},
      {"another magic", "GGML" + good.substr(4), {"begins with 'GGML'"}},
      {"safetensors", RawSafetensors("{}", ""), {"byte 0", "'GGUF'"}},
      {"preamble cut", good.substr(0, 23), {"23 bytes", "begins with 24"}},
      {"version 1", with_version(1), {"byte 4", "version 1", "2 and 3"}, ErrorKind::kUnsupported},
      {"version 0", with_version(0), {"version 0"}, ErrorKind::kUnsupported},
      {"version 4", with_version(4), {"version 4"}, ErrorKind::kUnsupported},
      {"big endian",
       with_version(0x03000000),
       {"big-endian", "(version 3)"},
       ErrorKind::kUnsupported},
      {"tensors over the file",
       WithCounts(2, 0, std::string(25, '\0')),
       {"byte 8", "2 tensors", "at most 1 "}},
      {"tensors of all ones",
       WithCounts(~uint64_t{0}, 0, ""),
       {"18446744073709551615 tensors", "at most 0 "}},
      {"keys over the file",
       WithCounts(0, 3, std::string(41, '\0')),
       {"byte 16", "3 keys", "at most 2 "}},
      {"keys over the cap",
       WithCounts(0, 65537, std::string(65537 * 14, '\0')),
       {"65537 keys", "at most 65536"}},
  });
}

TEST(Gguf, BadKeys) {
  const auto strings = [](uint64_t count, std::string_view rest) {
    return Raw<uint32_t>(8) + Raw(count) + std::string(rest);
  };
  ExpectRefused({
      {"name cut",
       WithCounts(0, 1, Raw<uint64_t>(100) + std::string(8, 'k')),
       {"byte 24", "key 0", "100 bytes", "only 8 are left"}},
      {"name too long",
       WithCounts(0, 1, RawText(std::string(65536, 'k')) + Raw(0) + "xx"),
       {"65536 bytes", "at most 65535"}},
      {"no name", OneKey("", 4, "1234"), {"key ''", "must have a name"}},
      {"control characters", OneKey("a\nb", 4, "1234"), {"key 'a\\x0ab'", "control"}},
      {"type 13", OneKey("k", 13, "1234"), {"byte 33", "key 'k'", "type 13", "0 to 12"}},
      {"type cut", WithCounts(0, 1, RawText("kkkkk") + "x"), {"its type takes 4 bytes", "only 1"}},
      {"value cut", OneKey("k", 12, "1234567"), {"key 'k'", "f64", "8 bytes", "only 7"}},
      {"bool of 2", OneKey("k", 7, "\2"), {"byte 37", "bool of 2", "0 or 1"}},
      {"text cut", OneKey("k", 8, RawText("abc").substr(0, 10)), {"key 'k'", "3 bytes", "only 2"}},
      {"text's length cut", OneKey("kk", 8, "1234567"), {"length of its text", "only 7"}},
      {"text of all ones", OneKey("k", 8, Raw(~uint64_t{0})), {"18446744073709551615 bytes"}},
      {"array's type cut", OneKey("kkk", 9, "12"), {"type of its elements", "only 2"}},
      {"array of type 99",
       OneKey("k", 9, Raw<uint32_t>(99) + Raw<uint64_t>(0)),
       {"elements of type 99", "0 to 12"}},
      {"array of arrays",
       OneKey("k", 9, Raw<uint32_t>(9) + Raw<uint64_t>(0)),
       {"key 'k'", "array of arrays"},
       ErrorKind::kUnsupported},
      {"array's count cut", OneKey("k", 9, Raw<uint32_t>(4) + "123"), {"count of its elements"}},
      {"array cut",
       OneKey("k", 9, Raw<uint32_t>(4) + Raw<uint64_t>(3) + std::string(11, '\0')),
       {"3 elements of type u32", "only 11 bytes"}},
      {"array of all ones",
       OneKey("k", 9, Raw<uint32_t>(10) + Raw(~uint64_t{0})),
       {"18446744073709551615 elements", "only 0 bytes"}},
      {"texts over the file",
       OneKey("k", 9, strings(3, RawText("a"))),
       {"3 elements of type string"}},
      {"text in an array cut",
       OneKey("k", 9, strings(2, RawText("") + Raw<uint64_t>(5) + "abcd")),
       {"key 'k'", "element 1", "5 bytes", "only 4"}},
      {"array of bools",
       OneKey("k", 9, Raw<uint32_t>(7) + Raw<uint64_t>(2) + "\1\3"),
       {"bool of 3"}},
      {"twice",
       WithCounts(
           0, 2, (RawText("k") + Raw<uint32_t>(0) + "x") + (RawText("k") + Raw<uint32_t>(0) + "x")),
       {"key 'k'", "twice", "once"}},
  });
}

TEST(Gguf, BadAlignments) {
  const auto aligned = [](uint32_t type, std::string_view value) {
    return OneKey("general.alignment", type, value);
  };
  ExpectRefused({
      {"0", aligned(4, Raw<uint32_t>(0)), {"'general.alignment' is 0", "power of two"}},
      {"48", aligned(4, Raw<uint32_t>(48)), {"is 48", "power of two"}},
      {"negative", aligned(5, Raw<int32_t>(-32)), {"is -32"}},
      {"huge", aligned(4, Raw<uint32_t>(1u << 31)), {"2147483648", "up to 1048576"}},
      {"of all ones", aligned(10, Raw(~uint64_t{0})), {"'general.alignment'", "u64"}},
      {"a text", aligned(8, RawText("32")), {"'general.alignment'", "string", "integer"}},
  });
}

TEST(Gguf, BadTensors) {
  const auto two = [](const InfoFields& a, const InfoFields& b) {
    const std::string first = OneTensor(a, 0).substr(24), second = OneTensor(b, 0).substr(24);
    const auto size = [](const InfoFields& f) { return 8 + f.name.size() + 4 + 16 + 12; };
    std::string bytes = WithCounts(2, 0, first.substr(0, size(a)) + second.substr(0, size(b)));
    bytes.resize((bytes.size() + 31) / 32 * 32, '\0');
    return bytes + std::string(1000, 'x');
  };
  const uint64_t kBig = uint64_t{1} << 40;
  ExpectRefused({
      {"name cut",
       WithCounts(1, 0, Raw<uint64_t>(40) + std::string(30, 'w')),
       {"byte 24", "tensor 0", "40 bytes", "only 30"}},
      {"no name", OneTensor({.name = ""}), {"tensor ''", "empty"}},
      {"long name", OneTensor({.name = std::string(1025, 'w')}), {"1025 bytes", "at most 1024"}},
      {"control characters", OneTensor({.name = "a\tb"}), {"'a\\x09b'", "control"}},
      {"five extents", OneTensor({.extents = 5}), {"tensor 'w'", "5 extents", "at most 4"}},
      {"extent of 0", OneTensor({.shape = {32, 0}}), {"extent 1 is 0", "from 1"}},
      {"extent of 2^63", OneTensor({.shape = {uint64_t{1} << 63, 1}}), {"extent 0", "2^63-1"}},
      {"product over 2^63",
       OneTensor({.shape = {kBig, kBig}, .type = 0}),
       {"tensor 'w'", "overflow", "2^63-1 bytes"}},
      {"a part of a block",
       OneTensor({.shape = {48, 2}}),
       {"48 elements of Q4_1", "whole number of blocks of 32"}},
      {"a part of a large block",
       OneTensor({.shape = {128, 2}, .type = 12}),
       {"Q4_K", "blocks of 256"}},
      {"a scalar of blocks", OneTensor({.extents = 0, .shape = {}}), {"1 elements of Q4_1"}},
      {"type 42", OneTensor({.type = 42}), {"tensor 'w'", "type 42", "F32 (0)", "NVFP4 (40)"}},
      {"type IQ4_NL",
       OneTensor({.type = 20}),
       {"tensor 'w'", "IQ4_NL (20)", "not read"},
       ErrorKind::kUnsupported},
      {"a removed type", OneTensor({.type = 4}), {"Q4_2 (4)"}, ErrorKind::kUnsupported},
      {"offset cut",
       WithCounts(1, 0, RawText("ww") + Raw<uint32_t>(0) + Raw<uint32_t>(0) + "1234567"),
       {"tensor 'ww'", "its offset takes 8 bytes", "only 7"}},
      {"offset not aligned", OneTensor({.offset = 8}), {"offset 8", "alignment, 32"}},
      {"offset behind the data", OneTensor({.offset = 64}), {"at offset 64", "40 bytes of data"}},
      {"offset of all ones", OneTensor({.offset = ~uint64_t{0} - 31}), {"tensor 'w'", "truncated"}},
      {"data cut", OneTensor({}, 39), {"40 bytes at offset 0", "39 bytes of data"}},
      {"no data", OneTensor({}, 0).substr(0, 80), {"header ends here", "byte 96", "80 bytes"}},
      {"trailing bytes", OneTensor({}, 65), {"1 bytes follow", "tensor 'w'", "not allowed"}},
      {"twice", two({}, {}), {"tensor 'w'", "twice"}},
      {"overlap", two({}, {.name = "v", .offset = 32}), {"tensor 'v'", "overlaps tensor 'w'"}},
      {"same place", two({}, {.name = "v"}), {"overlaps tensor"}},
      {"hole", two({}, {.name = "v", .offset = 96}), {"tensor 'v'", "offset 96", "at 64", "hole"}},
      {"hole at the front", OneTensor({.offset = 32}, 72), {"offset 32", "at 0", "hole"}},
      {"only trailing bytes", WithCounts(0, 0, "12345678x"), {"no tensors", "1 bytes follow"}},
  });
}

TEST(Gguf, TypedMetadata) {
  const TempFolder folder;
  GgufWriter writer;
  writer.PutU32("u32", 7);
  writer.PutRaw("i8", 1, "\xFE");
  writer.PutRaw("i16", 3, Raw<int16_t>(-300));
  writer.PutRaw("u8", 0, "\xFE");
  writer.PutRaw("u16", 2, Raw<uint16_t>(65535));
  writer.PutRaw("i64", 11, Raw<int64_t>(INT64_MIN));
  writer.PutRaw("u64", 10, Raw(~uint64_t{0}));
  writer.PutF32("f32", 1e-5f);
  writer.PutF64("f64", 1e-5);
  writer.PutBool("bool", true);
  writer.PutText("text", "a b");
  writer.PutTexts("texts", {"", "x", "yz"});
  writer.PutI32s("ints", {3, -4});
  const auto file = Opened(folder, writer.Bytes());
  ASSERT_NE(file, nullptr);
  const auto integer = [&](std::string_view key) { return file->Integer(key)->value_or(-99); };
  EXPECT_EQ(integer("u32"), 7);
  EXPECT_EQ(integer("i8"), -2);
  EXPECT_EQ(integer("i16"), -300);
  EXPECT_EQ(integer("u8"), 254);
  EXPECT_EQ(integer("u16"), 65535);
  EXPECT_EQ(integer("i64"), INT64_MIN);
  EXPECT_EQ(integer("absent"), -99);
  EXPECT_EQ(**file->Number("f32"), static_cast<double>(1e-5f));
  EXPECT_EQ(**file->Number("f64"), 1e-5);
  EXPECT_EQ(**file->Bool("bool"), true);
  EXPECT_EQ(**file->Text("text"), "a b");
  EXPECT_EQ(**file->Length("texts"), 3);
  EXPECT_EQ(**file->Integers("ints"), (std::vector<int64_t>{3, -4}));
  EXPECT_FALSE(file->Text("absent")->has_value());
}

TEST(Gguf, MetadataOfAnotherKindIsNamed) {
  const TempFolder folder;
  GgufWriter writer;
  writer.PutU32("u32", 7);
  writer.PutF32("f32", 1);
  writer.PutRaw("u64", 10, Raw(~uint64_t{0}));
  writer.PutTexts("texts", {"x"});
  const auto file = Opened(folder, writer.Bytes());
  ASSERT_NE(file, nullptr);
  EXPECT_TRUE(Says(file->Integer("f32").error(), {"m.gguf", "key 'f32'", "f32", "integer"}));
  EXPECT_TRUE(Says(file->Integer("u64").error(), {"u64 18446744073709551615", "2^63-1"}));
  EXPECT_TRUE(Says(file->Number("u32").error(), {"key 'u32'", "f32 or f64"}));
  EXPECT_TRUE(Says(file->Bool("u32").error(), {"bool"}));
  EXPECT_TRUE(Says(file->Text("u32").error(), {"string"}));
  EXPECT_TRUE(Says(file->Integers("texts").error(), {"array of 1 string", "integers"}));
  EXPECT_TRUE(Says(file->Integers("u32").error(), {"array"}));
  EXPECT_TRUE(Says(file->Length("u32").error(), {"array"}));
}

// Other people's files: every block type by gguf-py, a container by llama.cpp's converter.
TEST(Gguf, EveryBlockTypeOfGgufPy) {
  const auto file = GgufFile::Open("goldens/formats/formats.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto expected = SafetensorsFile::Open("goldens/formats/gguf-expected.safetensors");
  ASSERT_TRUE(expected.ok());
  size_t blocks = 0;
  for (const auto& [name, view] : (*file)->tensors()) {
    const TensorView* values = (*expected)->Find(name);
    if (!IsBlock(view.dtype) && values == nullptr) continue;  // plain.f32 and plain.f16
    ASSERT_NE(values, nullptr) << name;
    ASSERT_EQ(view.shape.size(), 2u);
    EXPECT_EQ(view.shape[0], values->shape[0]) << name;
    EXPECT_EQ(view.shape[1] * ElementsOf(view.dtype).count(), values->shape[1]) << name;
    blocks += IsBlock(view.dtype);
  }
  EXPECT_EQ(blocks, 18u);
  // The last tensor is where its extents and offset say: BF16 is exact in F64.
  const TensorView *plain = (*file)->Find("plain.bf16"), *values = (*expected)->Find("plain.bf16");
  for (size_t i = 0; i < 18; ++i) {
    uint32_t bits = 0;
    std::memcpy(reinterpret_cast<char*>(&bits) + 2, plain->bytes.data() + 2 * i, 2);
    float got;
    double want;
    std::memcpy(&got, &bits, sizeof got);
    std::memcpy(&want, values->bytes.data() + 8 * i, sizeof want);
    EXPECT_EQ(static_cast<double>(got), want) << i;
  }
}

TEST(Gguf, HoldsWhatTheSafetensorsOfTheSameModelHold) {
  const auto file = GgufFile::Open("goldens/checkpoints/k3-mini/k3-mini.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto source = SafetensorsFile::Open("goldens/checkpoints/k3-mini/model.safetensors");
  ASSERT_TRUE(source.ok());
  EXPECT_EQ((*file)->tensors().size(), 160u);
  EXPECT_EQ(**(*file)->Integers("kimi-k3.attention.head_count_kv"),
            (std::vector<int64_t>{0, 0, 0, 1, 0, 1}));
  size_t equal = 0;
  for (const auto& [name, view] : (*source)->tensors()) {
    for (const auto& [other, ours] : (*file)->tensors()) {
      equal += view.dtype == DType::kBF16 && ours.dtype == view.dtype && ours.shape == view.shape &&
               std::equal(view.bytes.begin(), view.bytes.end(), ours.bytes.begin());
    }
  }
  EXPECT_GT(equal, 50u);
}

}  // namespace
}  // namespace assay
