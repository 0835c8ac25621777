#include "harness/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "harness/checkpoint/safetensors_writer.h"
#include "harness/checkpoint/shown.h"
#include "harness/checkpoint/test_support.h"

namespace assay {
namespace {

struct BadFile {
  const char* what;
  std::string bytes;
  std::vector<std::string> says;
};

std::string One(std::string_view entry, std::string_view data = "") {
  return RawSafetensors(fmt::format("{{\"w\":{}}}", entry), data);
}

std::string WithLength(uint64_t length, std::string_view rest) {
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  return bytes.append(rest);
}

std::vector<BadFile> BadHeaders() {
  const std::string good = RawSafetensors("{" + ByteEntry("w", 0, 4) + "}", "abcd");
  return {
      {"empty", "", {"0 bytes", "8-byte header length"}},
      {"seven bytes", "1234567", {"7 bytes", "8-byte header length"}},
      {"header cut", good.substr(0, 30), {"header length is 53 bytes", "only 22 follow"}},
      {"length over the file", WithLength(1000, "{}"), {"1000 bytes", "only 2 follow"}},
      {"length over the cap", WithLength(100'000'001, "{}"), {"at most 100000000"}},
      {"length of all ones", WithLength(~uint64_t{0}, "{}"), {"18446744073709551615", "at most"}},
      {"length 0", WithLength(0, ""), {"does not begin with '{'"}},
      {"length 1", WithLength(1, "{"), {"does not begin with '{'"}},
      {"array", RawSafetensors("[]", ""), {"does not begin with '{'"}},
      {"space before", RawSafetensors(" {}", ""), {"does not begin with '{'"}},
      {"not JSON", RawSafetensors("{nonsense}", ""), {"header", "not JSON at byte 3"}},
      {"JSON cut", RawSafetensors("{\"w\":{", ""), {"not JSON at byte"}},
      {"text after", RawSafetensors("{} x", ""), {"not JSON at byte 4"}},
      {"no UTF-8", RawSafetensors("{\"\xff\":1}", ""), {"not JSON at byte"}},
      {"control character", RawSafetensors("{\"a\nb\":1}", ""), {"not JSON at byte"}},
      {"tensor twice",
       RawSafetensors("{" + ByteEntry("w", 0, 2) + "," + ByteEntry("w", 2, 2) + "}", "abcd"),
       {"key 'w'", "twice", "once"}},
      {"dtype twice",
       One(R"({"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]})"),
       {"key 'dtype'", "in 'w'", "twice"}},
      {"deep nesting",
       RawSafetensors("{\"w\":" + std::string(100'000, '['), ""),
       {"nested deeper than 4"}},
      {"deep objects",
       RawSafetensors("{\"w\":{\"a\":{\"a\":{\"a\":{\"a\":1}}}}}", ""),
       {"nested deeper than 4"}},
      {"metadata no object",
       RawSafetensors("{\"__metadata__\":3}", ""),
       {"__metadata__ is 3", "object of strings"}},
      {"metadata no string",
       RawSafetensors("{\"__metadata__\":{\"a\":[]}}", ""),
       {"__metadata__ 'a'", "must be a string"}},
      {"no tensors, but data", RawSafetensors("{}", "xyz"), {"no tensors", "3 bytes"}},
  };
}

std::vector<BadFile> BadEntries() {
  const auto entry = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return fmt::format(R"({{"dtype":{},"shape":{},"data_offsets":{}}})", dtype, shape, offsets);
  };
  const std::string u8 = "\"U8\"";
  return {
      {"no object", One("[]"), {"an array of 0", "dtype, shape and data_offsets"}},
      {"no dtype", One(R"({"shape":[0],"data_offsets":[0,0]})"), {"no 'dtype'"}},
      {"no shape", One(R"({"dtype":"U8","data_offsets":[0,0]})"), {"no 'shape'"}},
      {"no offsets", One(R"({"dtype":"U8","shape":[0]})"), {"no 'data_offsets'"}},
      {"unknown key",
       One(R"({"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1})"),
       {"unknown key 'x'", "allowed"}},
      {"unknown dtype", One(entry("\"F7\"", "[0]", "[0,0]")), {"'F7'", "known are F64", "U64"}},
      {"small letters", One(entry("\"bf16\"", "[0]", "[0,0]")), {"'bf16'", "known are"}},
      {"a block of GGUF", One(entry("\"Q4_1\"", "[0]", "[0,0]")), {"'Q4_1'", "known are"}},
      {"dtype a number", One(entry("7", "[0]", "[0,0]")), {"dtype is 7"}},
      {"shape no array", One(entry(u8, "4", "[0,4]"), "abcd"), {"shape is 4", "array"}},
      {"negative", One(entry(u8, "[-1]", "[0,0]")), {"shape holds -1", "from 0"}},
      {"fraction", One(entry(u8, "[1.5]", "[0,1]"), "a"), {"shape holds 1.5", "integers"}},
      {"whole fraction", One(entry(u8, "[1.0]", "[0,1]"), "a"), {"shape holds 1.0", "integers"}},
      {"string", One(entry(u8, "[\"4\"]", "[0,4]"), "abcd"), {"the string '4'", "integers"}},
      {"above 2^63", One(entry(u8, "[9223372036854775808]", "[0,0]")), {"2^63-1"}},
      {"above 2^64", One(entry(u8, "[36893488147419103232]", "[0,0]")), {"integers"}},
      {"product overflows",
       One(entry("\"F32\"", "[4294967296,4294967296]", "[0,0]")),
       {"overflows", "4294967296, 4294967296"}},
      {"product wraps to 0", One(entry(u8, "[4294967296,4294967296,0]", "[0,0]")), {"overflows"}},
      {"bytes overflow", One(entry("\"F64\"", "[2305843009213693952]", "[0,0]")), {"overflows"}},
      {"17 dimensions",
       One(entry(u8, "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"), "a"),
       {"array of 17", "at most 16"}},
      {"one offset", One(entry(u8, "[1]", "[1]"), "a"), {"[begin, end]"}},
      {"three offsets", One(entry(u8, "[1]", "[0,1,2]"), "a"), {"[begin, end]"}},
      {"negative offset", One(entry(u8, "[1]", "[-1,0]"), "a"), {"data_offsets holds -1"}},
      {"reversed", One(entry(u8, "[4]", "[4,0]"), "abcd"), {"[4, 0] are reversed"}},
      {"beyond the data",
       One(entry(u8, "[5]", "[0,5]"), "abcd"),
       {"byte 5", "only 4", "truncated"}},
      {"far beyond",
       One(entry(u8, "[1]", "[9223372036854775806,9223372036854775807]"), "a"),
       {"9223372036854775807", "only 1"}},
      {"too small",
       One(entry("\"I32\"", "[2]", "[0,4]"), "abcd"),
       {"span 4 bytes", "[2] of I32 takes 8"}},
      {"too large", One(entry(u8, "[2]", "[0,4]"), "abcd"), {"span 4 bytes", "takes 2"}},
      {"scalar of 2 bytes", One(entry(u8, "[]", "[0,2]"), "ab"), {"span 2 bytes", "takes 1"}},
      {"bytes after", One(entry(u8, "[2]", "[0,2]"), "abcd"), {"2 bytes follow", "trailing"}},
      {"hole before", One(entry(u8, "[2]", "[2,4]"), "abcd"), {"hole of 2 bytes"}},
  };
}

// Table rows that all concern one tensor must name it.
void ExpectBad(const BadFile& bad, bool names_tensor) {
  SCOPED_TRACE(bad.what);
  TempFolder folder;
  const std::string path = folder.Write("bad.safetensors", bad.bytes);
  const auto file = SafetensorsFile::Open(path);
  ASSERT_FALSE(file.ok());
  EXPECT_TRUE(Says(file.error(), {path}));
  EXPECT_TRUE(Says(file.error(), {names_tensor ? "tensor 'w'" : ""}));
  for (const std::string& text : bad.says) EXPECT_TRUE(Says(file.error(), {text}));
  EXPECT_EQ(file.error().kind, ErrorKind::kBadInput);
}

TEST(Safetensors, BadHeadersAreOneClearError) {
  for (const BadFile& bad : BadHeaders()) ExpectBad(bad, false);
}

TEST(Safetensors, BadEntriesNameFileTensorAndReason) {
  for (const BadFile& bad : BadEntries()) ExpectBad(bad, true);
}

TEST(Safetensors, TensorsMustTileTheData) {
  const auto two = [](int begin, int count) {
    return RawSafetensors("{" + ByteEntry("first", 0, 4) + "," + ByteEntry("w", begin, count) + "}",
                          "12345678");
  };
  ExpectBad({"overlap by one", two(3, 5), {"overlaps tensor 'first'", "ends at 4"}}, true);
  ExpectBad({"hole of one", two(5, 3), {"hole of 1 bytes"}}, true);
  ExpectBad({"inside", two(1, 2), {"overlaps tensor 'first'"}}, true);
  ExpectBad({"short", two(4, 3), {"1 bytes follow"}}, true);
  TempFolder folder;
  EXPECT_TRUE(SafetensorsFile::Open(folder.Write("good", two(4, 4))).ok());
}

TEST(Safetensors, NamesAreChecked) {
  const auto named = [](std::string_view json_name) {
    return RawSafetensors("{" + ByteEntry(json_name, 0, 1) + "}", "a");
  };
  ExpectBad({"empty name", named(""), {"tensor ''", "the name is empty"}}, false);
  ExpectBad({"zero byte", named("a\\u0000b"), {R"(tensor 'a\x00b')", "control"}}, false);
  ExpectBad({"escape", named("\\u001b[2J"), {R"(tensor '\x1b[2J')", "control"}}, false);
  ExpectBad({"long", named(std::string(1025, 'n')), {"...(1025 bytes)...", "at most 1024"}}, false);
  TempFolder folder;
  EXPECT_TRUE(SafetensorsFile::Open(folder.Write("ok", named(std::string(1024, 'n')))).ok());
}

TEST(Safetensors, LegalOddities) {
  TempFolder folder;
  // No tensors; zero-length ones at either end and between; a scalar; unordered; spaces behind.
  EXPECT_TRUE(SafetensorsFile::Open(folder.Write("none", RawSafetensors("{}", ""))).ok());
  const std::string header = "{" + ByteEntry("z", 0, 2) + "," + ByteEntry("between", 2, 0) + "," +
                             ByteEntry("a", 2, 2) + "," + ByteEntry("begin", 0, 0) + "," +
                             ByteEntry("end", 5, 0) +
                             R"(,"scalar":{"dtype":"I8","shape":[],"data_offsets":[4,5]},)"
                             R"("__metadata__":{"format":"pt"}}   )";
  const auto file = SafetensorsFile::Open(folder.Write("odd", RawSafetensors(header, "zzaas")));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ((*file)->Names(),
            (std::vector<std::string>{"a", "begin", "between", "end", "scalar", "z"}));
  EXPECT_EQ((*file)->metadata().at("format"), "pt");
  EXPECT_EQ((*file)->header(), header);
  const TensorView* a = (*file)->Find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->bytes.size(), 2u);
  EXPECT_EQ(static_cast<char>(a->bytes[0]), 'a');
  EXPECT_TRUE((*file)->Find("begin")->bytes.empty());
  EXPECT_EQ((*file)->Find("missing"), nullptr);
}

TEST(Safetensors, OnlyRegularFilesAreRead) {
  TempFolder folder;
  const auto missing = SafetensorsFile::Open(folder.Path("nothing"));
  ASSERT_FALSE(missing.ok());
  EXPECT_TRUE(Says(missing.error(), {folder.Path("nothing"), "cannot open", "No such file"}));
  const auto directory = SafetensorsFile::Open(folder.path());
  ASSERT_FALSE(directory.ok());
  EXPECT_TRUE(Says(directory.error(), {"not a regular file"}));
  ASSERT_EQ(mkfifo(folder.Path("pipe").c_str(), 0600), 0);
  const auto pipe = SafetensorsFile::Open(folder.Path("pipe"));  // must not wait for a writer
  ASSERT_FALSE(pipe.ok());
  EXPECT_TRUE(Says(pipe.error(), {"not a regular file"}));
  const auto zero = SafetensorsFile::Open(std::string("a\0b", 3));
  ASSERT_FALSE(zero.ok());
  EXPECT_TRUE(Says(zero.error(), {"zero byte"}));
}

std::vector<std::byte> Bytes8(int count, int start) {
  std::vector<std::byte> bytes;
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(start + i));
  return bytes;
}

TEST(SafetensorsWriter, RoundTripsAndIsDeterministic) {
  TempFolder folder;
  MemorySource source;
  source.Put("b.odd", DType::kBF16, {3}, Bytes8(6, 1));
  source.Put("a.scale", DType::kF32, {1, 2}, Bytes8(8, 50));
  source.Put("c.double", DType::kF64, {2}, Bytes8(16, 90));
  source.Put("empty", DType::kI64, {0, 5}, {});
  source.Put("quote\"and\\", DType::kU8, {1}, Bytes8(1, 7));
  std::vector<TensorView> tensors;
  for (const std::string& name : source.Names()) tensors.push_back(*source.Find(name));
  const std::string first = folder.Path("first.safetensors");
  const std::string second = folder.Path("second.safetensors");
  ASSERT_TRUE(WriteSafetensors(first, tensors, {{"by", "test"}}).ok());
  std::reverse(tensors.begin(), tensors.end());
  ASSERT_TRUE(WriteSafetensors(second, tensors, {{"by", "test"}}).ok());
  EXPECT_EQ(ReadBytes(first), ReadBytes(second));

  const auto file = SafetensorsFile::Open(first);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ((*file)->Names(), source.Names());
  EXPECT_EQ((*file)->metadata(), (std::map<std::string, std::string>{{"by", "test"}}));
  for (const TensorView& tensor : tensors) {
    const TensorView* read = (*file)->Find(tensor.name);
    ASSERT_NE(read, nullptr) << tensor.name;
    EXPECT_EQ(read->dtype, tensor.dtype);
    EXPECT_EQ(read->shape, tensor.shape);
    EXPECT_TRUE(std::equal(read->bytes.begin(), read->bytes.end(), tensor.bytes.begin(),
                           tensor.bytes.end()));
    const auto address = reinterpret_cast<uintptr_t>(read->bytes.data());
    EXPECT_EQ(address % SizeOf(read->dtype).count(), 0u) << tensor.name;
  }
}

TEST(SafetensorsWriter, ReplacesWholeFilesAndLeavesNothingBeside) {
  TempFolder folder;
  const std::string path = folder.Write("x.safetensors", "what was there before");
  const std::vector<std::byte> bytes = Bytes8(2, 1);
  ASSERT_TRUE(WriteSafetensors(path, {{"t", DType::kU8, {2}, bytes, ""}}, {}).ok());
  EXPECT_TRUE(SafetensorsFile::Open(path).ok());
  // A target that cannot be replaced: the old one stays, no partial file is left.
  std::filesystem::create_directories(folder.Path("taken/inside"));
  EXPECT_FALSE(WriteSafetensors(folder.Path("taken"), {}, {}).ok());
  EXPECT_FALSE(WriteSafetensors(folder.Path("no/such/folder"), {}, {}).ok());
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    ++entries;
  }
  EXPECT_EQ(entries, 2);
}

TEST(SafetensorsWriter, RefusesWhatItCouldNotReadBack) {
  TempFolder folder;
  const std::vector<std::byte> bytes = Bytes8(4, 1);
  const auto expect = [&](const std::vector<TensorView>& tensors,
                          std::initializer_list<std::string_view> texts) {
    const Status status = WriteSafetensors(folder.Path("w"), tensors, {});
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(Says(status.error(), texts));
  };
  const TensorView good{"t", DType::kU8, {4}, bytes, ""};
  expect({good, good}, {"tensor 't'", "twice"});
  expect({{"t", DType::kI32, {2}, bytes, ""}}, {"tensor 't'", "4 bytes", "I32"});
  expect({{"t", DType::kI32, {-1}, bytes, ""}}, {"tensor 't'"});
  expect({{"t", DType::kQ4_1, {1}, Bytes8(20, 1), ""}}, {"tensor 't'", "blocks of Q4_1"});
  expect({{"", DType::kU8, {4}, bytes, ""}}, {"name is empty"});
  expect({{"__metadata__", DType::kU8, {4}, bytes, ""}}, {"not a name"});
  expect({{"a\nb", DType::kU8, {4}, bytes, ""}}, {"control"});
  expect({{"\xff", DType::kU8, {4}, bytes, ""}}, {"UTF-8"});
  EXPECT_FALSE(std::filesystem::exists(folder.Path("w")));
}

TEST(StoredBytes, AreOverflowSafe) {
  EXPECT_EQ(StoredBytes(DType::kI32, std::vector<int64_t>{2, 3})->count(), 24);
  EXPECT_EQ(StoredBytes(DType::kF64, std::vector<int64_t>{})->count(), 8);
  EXPECT_FALSE(StoredBytes(DType::kU8, std::vector<int64_t>{-1}).has_value());
  EXPECT_FALSE(StoredBytes(DType::kF64, std::vector<int64_t>{int64_t{1} << 60}).has_value());
}

TEST(MemorySource, OwnsAndReplaces) {
  MemorySource source;
  source.Put("t", DType::kU8, {2}, Bytes8(2, 1));
  source.Put("t", DType::kU8, {3}, Bytes8(3, 5));
  const MemorySource moved = std::move(source);
  ASSERT_NE(moved.Find("t"), nullptr);
  EXPECT_EQ(moved.Find("t")->bytes.size(), 3u);
  EXPECT_EQ(moved.Find("t")->bytes[0], std::byte{5});
  EXPECT_EQ(moved.Names(), std::vector<std::string>{"t"});
  EXPECT_EQ(moved.Find("u"), nullptr);
  MemorySource bad;
  EXPECT_DEATH(bad.Put("t", DType::kI32, {2}, Bytes8(4, 0)), "expected");
}

TEST(Shown, KeepsWhatIsHarmlessAndEscapesTheRest) {
  EXPECT_EQ(Shown("model.layers.0"), "model.layers.0");
  EXPECT_EQ(Shown("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(Shown("a\n\x1b'\\"), R"(a\x0a\x1b'\x5c)");
  EXPECT_EQ(Quoted("it's"), R"('it\x27s')");
  EXPECT_EQ(Shown("\xff\xc0\x80"), R"(\xff\xc0\x80)");
  EXPECT_EQ(Shown("\xed\xa0\x80"), R"(\xed\xa0\x80)");  // a surrogate
  EXPECT_EQ(Shown("\xe2\x80\xae"
                  "x"),
            R"(\xe2\x80\xaex)");                // right to left
  EXPECT_EQ(Shown("\xc2\x9b"), R"(\xc2\x9b)");  // a terminal's control sequence
  EXPECT_EQ(Shown("\xe2\x82"), R"(\xe2\x82)");  // cut
  EXPECT_EQ(Shown("0123456789", 4), "01...(10 bytes)...89");
}

TEST(SafetensorsWriter, PiecesInAnyOrderMakeTheSameFile) {
  TempFolder folder;
  MemorySource source;
  source.Put("wide", DType::kF32, {2, 3}, Bytes8(24, 0));
  source.Put("narrow", DType::kU8, {5}, Bytes8(5, 100));
  source.Put("none", DType::kF16, {0}, {});
  const auto view = [&](const char* name) { return *source.Find(name); };
  const std::string whole = folder.Path("whole"), pieces = folder.Path("pieces");
  ASSERT_TRUE(WriteSafetensors(whole, {view("wide"), view("narrow"), view("none")}, {}).ok());
  auto writer = SafetensorsWriter::Create(
      pieces,
      {{"none", DType::kF16, {0}}, {"narrow", DType::kU8, {5}}, {"wide", DType::kF32, {2, 3}}}, {});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  EXPECT_EQ(writer->file_bytes(), ReadBytes(whole).size());
  EXPECT_EQ(writer->OffsetOf("wide") % 8, 0u);
  EXPECT_EQ(writer->OffsetOf("narrow"), writer->OffsetOf("wide") + 24);
  EXPECT_EQ(writer->OffsetOf("ghost"), 0u);
  ASSERT_TRUE(writer->Write("wide", 20, view("wide").bytes.subspan(20)).ok());
  ASSERT_TRUE(writer->Write("narrow", 0, view("narrow").bytes).ok());
  ASSERT_TRUE(writer->Write("wide", 0, view("wide").bytes.subspan(0, 20)).ok());
  EXPECT_FALSE(std::filesystem::exists(pieces));  // not before it is whole
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(ReadBytes(pieces), ReadBytes(whole));
}

TEST(SafetensorsWriter, WhatIsNotWholeIsGone) {
  TempFolder folder;
  const std::string path = folder.Write("file", "old");
  const std::vector<std::byte> five(5);
  {
    auto writer = SafetensorsWriter::Create(path, {{"a", DType::kU8, {5}}}, {});
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE(Says(writer->Write("b", 0, five).error(), {"tensor 'b'", "announced"}));
    EXPECT_TRUE(Says(writer->Write("a", 1, five).error(), {"5 bytes at 1", "it has 5"}));
    EXPECT_TRUE(Says(writer->Write("a", ~uint64_t{0}, five).error(), {"it has 5"}));
    EXPECT_TRUE(Says(writer->Finish().error(), {"tensor 'a'", "0 bytes were written"}));
    ASSERT_TRUE(writer->Write("a", 0, std::span(five).subspan(1)).ok());
    EXPECT_TRUE(Says(writer->Finish().error(), {"4 bytes were written"}));
  }
  EXPECT_EQ(ReadBytes(path), "old");
  const std::filesystem::directory_iterator files(folder.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
  const auto overflow =
      SafetensorsWriter::Create(path, {{"a", DType::kU8, {INT64_MAX}}, {"b", DType::kU8, {1}}}, {});
  EXPECT_TRUE(Says(overflow.error(), {"overflows"}));
  EXPECT_FALSE(SafetensorsWriter::Create(folder.Path("no/such"), {}, {}).ok());
}

}  // namespace
}  // namespace assay
