// Everything that is wrong with a container is told, once, and the rest of it stays usable.
#include "harness/checkpoint/scan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/gguf_writer.h"
#include "harness/checkpoint/test_support.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";

// "kind file tensor", sorted; of files the names alone.
std::vector<std::string> Kinds(const Scan& scan) {
  std::vector<std::string> kinds;
  for (const ScanFinding& finding : scan.findings) {
    kinds.push_back(fmt::format("{} {} {}", finding.kind,
                                fs::path(finding.file).filename().string(), finding.tensor));
    EXPECT_FALSE(finding.detail.empty());
    EXPECT_TRUE(Says(Error{finding.detail}, {}));  // one printable line
  }
  std::sort(kinds.begin(), kinds.end());
  return kinds;
}

std::vector<std::string> Names(const std::vector<ScanTensor>& tensors) {
  std::vector<std::string> names;
  for (const ScanTensor& tensor : tensors) names.push_back(tensor.view.name);
  return names;
}

Scan Scanned(const std::string& path) {
  Result<Scan> scan = ScanCheckpoint(path);
  EXPECT_TRUE(scan.ok()) << scan.error().message;
  return scan.ok() ? std::move(*scan) : Scan();
}

using Lines = std::vector<std::string>;

// A header of one file and what is to be found in it. The data are 8 bytes.
struct OneFile {
  const char* what;
  std::string bytes;
  Lines findings, whole, damaged;
};

TEST(Scan, OneFile) {
  const auto two = [](const std::string& a, const std::string& b, int data = 8) {
    return RawSafetensors("{" + a + "," + b + "}", std::string(static_cast<size_t>(data), 'x'));
  };
  const std::string a = ByteEntry("a", 0, 4), b = ByteEntry("b", 4, 4);
  const auto entry = [](const char* name, const char* dtype, const char* shape,
                        const char* offsets) {
    return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape,
                       offsets);
  };
  const OneFile files[] = {
      {"right", two(a, b), {}, {"a", "b"}, {}},
      {"cut in b", two(a, b, 6), {"truncated m b"}, {"a"}, {"b"}},
      {"cut in a", two(a, b, 3), {"truncated m a"}, {}, {"a", "b"}},
      {"cut in the header", two(a, b).substr(0, 40), {"truncated m "}, {}, {}},
      {"nothing", "", {"truncated m "}, {}, {}},
      {"no JSON", RawSafetensors("{nonsense}", ""), {"header m "}, {}, {}},
      {"length", std::string(8, '\xff') + "{}", {"header m "}, {}, {}},
      {"twice", two(a, ByteEntry("a", 4, 4)), {"duplicate m a"}, {"a"}, {}},
      {"overlap", two(a, ByteEntry("b", 3, 5)), {"overlap m b"}, {}, {"a", "b"}},
      {"hole", two(a, ByteEntry("b", 5, 3)), {"hole m b"}, {"a", "b"}, {}},
      {"trailing", two(a, ByteEntry("b", 4, 3)), {"trailing m b"}, {"a", "b"}, {}},
      {"moved", two(a, ByteEntry("b", 2, 4)), {"overlap m b", "trailing m b"}, {}, {"a", "b"}},
      {"lying shape", two(a, entry("b", "F32", "[2]", "[4,8]")), {"shape m b"}, {"a"}, {"b"}},
      {"overflow",
       two(a, entry("b", "F32", "[4294967296,4294967296]", "[4,8]")),
       {"shape m b"},
       {"a"},
       {"b"}},
      {"wild offsets",
       two(a, entry("b", "U8", "[4]", "[4,900000000000]")),
       {"shape m b"},
       {"a"},
       {"b"}},
      {"type", two(a, entry("b", "F7", "[4]", "[4,8]")), {"dtype m b"}, {"a"}, {}},
      {"no entry", two(a, R"("b":3)"), {"header m b"}, {"a"}, {}},
      {"name", two(a, entry("b\\u0001", "U8", "[4]", "[4,8]")), {"name m b\x01"}, {"a"}, {}},
      {"metadata", two(a, b + R"(,"__metadata__":[])"), {"header m "}, {"a", "b"}, {}},
      {"empty",
       two(a + "," + b, entry("c", "I64", "[0]", "[8,8]")),
       {"empty m c"},
       {"a", "b", "c"},
       {}},
      {"two faults in two tensors",
       two(entry("a", "F7", "[4]", "[0,4]"), entry("b", "F32", "[2]", "[4,8]")),
       {"dtype m a", "shape m b"},
       {},
       {"b"}},
  };
  for (const OneFile& file : files) {
    SCOPED_TRACE(file.what);
    const TempFolder folder;
    folder.Write("config.json", LlamaJson());
    Scan scan = Scanned(folder.Write("m.safetensors", file.bytes));
    for (ScanFinding& finding : scan.findings) {
      const fs::path path = finding.file;
      EXPECT_EQ(path, folder.Path("m.safetensors"));
      EXPECT_EQ(finding.detail.find(finding.file), std::string::npos) << finding.detail;
      finding.file = "m";
    }
    EXPECT_EQ(Kinds(scan), file.findings);
    EXPECT_EQ(Names(scan.tensors), file.whole);
    EXPECT_EQ(Names(scan.damaged), file.damaged);
    // The strict reader says of the same files whether anything is wrong; without elements is not.
    const bool strict = SafetensorsFile::Open(folder.Path("m.safetensors")).ok();
    EXPECT_EQ(strict, file.findings.empty() || file.findings == Lines{"empty m c"});
  }
}

TEST(Scan, OffsetsAreThoseOfTheFile) {
  const TempFolder folder;
  folder.Write("config.json", LlamaJson());
  const std::string path = folder.Write(
      "m.safetensors",
      RawSafetensors("{" + ByteEntry("b", 0, 3) + "," + ByteEntry("a", 3, 2) + "}", "bbbaa"));
  const Scan scan = Scanned(path);
  ASSERT_EQ(Names(scan.tensors), (Lines{"a", "b"}));
  const std::string bytes = ReadBytes(path);
  EXPECT_EQ(bytes.substr(scan.tensors[0].offset, 2), "aa");
  EXPECT_EQ(bytes.substr(scan.tensors[1].offset, 3), "bbb");
  EXPECT_EQ(scan.tensors[0].file, path);
  EXPECT_TRUE(scan.tensors[0].view.bytes.empty());
  EXPECT_EQ(scan.files, Lines{path});
  EXPECT_EQ(scan.file_bytes, bytes.size());
  EXPECT_FALSE(scan.is_gguf);
}

// Two files with an index that is right; a test breaks one thing.
class Sharded : public testing::Test {
 protected:
  Sharded() {
    folder_.Write("config.json", LlamaJson());
    Put("a.safetensors", {"a1", "a2"});
    Put("b.safetensors", {"b1"});
    Index({{"a1", "a"}, {"a2", "a"}, {"b1", "b"}}, 3);
  }
  void Put(const std::string& file, const Lines& names) {
    std::string header;
    for (const std::string& name : names) {
      const int at = static_cast<int>(&name - names.data());
      header += (at == 0 ? "{" : ",") + ByteEntry(name, at, 1);
    }
    folder_.Write(file, RawSafetensors(header + "}", std::string(names.size(), 'x')));
  }
  void Index(const std::vector<std::pair<std::string, std::string>>& map, int total) {
    std::string text;
    for (const auto& [tensor, file] : map) {
      text += fmt::format(R"({}"{}":"{}.safetensors")", text.empty() ? "" : ",", tensor, file);
    }
    folder_.Write(kIndex, fmt::format(R"({{"metadata":{{"total_size":{}}},"weight_map":{{{}}}}})",
                                      total, text));
  }
  Scan Now() { return Scanned(folder_.path()); }
  // Whether the strict reader opens it too.
  bool Opens() { return Checkpoint::Open(folder_.path()).ok(); }
  TempFolder folder_;
};

TEST_F(Sharded, NothingIsWrong) {
  const Scan scan = Now();
  EXPECT_EQ(Kinds(scan), Lines{});
  EXPECT_EQ(Names(scan.tensors), (Lines{"a1", "a2", "b1"}));
  EXPECT_EQ(scan.files.size(), 2u);
  EXPECT_TRUE(Opens());
}

TEST_F(Sharded, AFileThatIsNotThere) {
  fs::remove(folder_.Path("a.safetensors"));
  const Scan scan = Now();
  ASSERT_EQ(Kinds(scan), Lines{"missing-shard a.safetensors "});
  EXPECT_NE(scan.findings[0].detail.find("2 tensors"), std::string::npos);
  EXPECT_EQ(Names(scan.tensors), Lines{"b1"});
  EXPECT_FALSE(Opens());
}

TEST_F(Sharded, AFileTooMany) {
  Put("c.safetensors", {"a1"});
  EXPECT_EQ(Kinds(Now()), Lines{"extra-shard c.safetensors "});
}

TEST_F(Sharded, AFileThatCannotBeRead) {
  folder_.Write("a.safetensors", "short");
  EXPECT_EQ(Kinds(Now()), Lines{"truncated a.safetensors "});
  fs::remove(folder_.Path("a.safetensors"));
  fs::create_directory(folder_.Path("a.safetensors"));
  EXPECT_EQ(Kinds(Now()), Lines{"unreadable a.safetensors "});
}

TEST_F(Sharded, ANameInTwoFiles) {
  Put("b.safetensors", {"b1", "a2"});
  const Scan scan = Now();
  EXPECT_EQ(Kinds(scan), Lines{"duplicate b.safetensors a2"});
  EXPECT_EQ(Names(scan.tensors), (Lines{"a1", "a2", "b1"}));
  EXPECT_EQ(fs::path(scan.tensors[1].file).filename(), "a.safetensors");
  // The index decides which one counts.
  Index({{"a1", "a"}, {"a2", "b"}, {"b1", "b"}}, 3);
  const Scan other = Now();
  EXPECT_EQ(Kinds(other), Lines{"duplicate a.safetensors a2"});
  EXPECT_EQ(fs::path(other.tensors[1].file).filename(), "b.safetensors");
}

TEST_F(Sharded, AnIndexThatSaysOtherwise) {
  Put("a.safetensors", {"a1", "a2", "a3"});
  Index({{"a1", "b"}, {"a3", "a"}, {"b1", "b"}, {"ghost", "b"}}, 3);
  const Scan scan = Now();
  EXPECT_EQ(Kinds(scan), (Lines{"index a.safetensors a2", fmt::format("index {} a1", kIndex),
                                fmt::format("index {} ghost", kIndex)}));
  EXPECT_EQ(Names(scan.tensors), (Lines{"a1", "a2", "a3", "b1"}));
  EXPECT_FALSE(Opens());
}

TEST_F(Sharded, AnIndexThatCannotBeRead) {
  for (const char* text : {"{", "[]", "{}", R"({"weight_map":{}})", R"({"weight_map":{"a1":1}})",
                           R"({"weight_map":{"a1":"../a.safetensors"}})"}) {
    folder_.Write(kIndex, text);
    const Scan scan = Now();
    ASSERT_FALSE(scan.findings.empty()) << text;
    EXPECT_EQ(scan.findings[0].kind, "index") << text;
    EXPECT_FALSE(Opens()) << text;
  }
  folder_.Write(kIndex, "{");
  EXPECT_EQ(Names(Now().tensors), (Lines{"a1", "a2", "b1"}));  // of the folder's files
  fs::remove(folder_.Path(kIndex));
  EXPECT_EQ(Kinds(Now()), Lines{fmt::format("index {} ", kIndex)});
}

TEST_F(Sharded, ASumThatIsNotTheFiles) {
  Index({{"a1", "a"}, {"a2", "a"}, {"b1", "b"}}, 4);
  const Scan scan = Now();
  ASSERT_EQ(Kinds(scan), Lines{fmt::format("total-size {} ", kIndex)});
  EXPECT_NE(scan.findings[0].detail.find("is 4"), std::string::npos);
  EXPECT_NE(scan.findings[0].detail.find("3 bytes"), std::string::npos);
  EXPECT_TRUE(Opens());  // engines do not read it
}

TEST_F(Sharded, ManyOfAKindAreCounted) {
  Lines names;
  for (int i = 0; i < 50; ++i) names.push_back(fmt::format("n{:02}", i));
  Put("a.safetensors", names);
  Index({{"b1", "b"}, {"n00", "a"}}, 51);
  const Scan scan = Now();
  ASSERT_EQ(scan.findings.size(), 21u);
  EXPECT_EQ(scan.findings[19].tensor, "n20");
  EXPECT_EQ(scan.findings[20].detail, "and 29 more of this kind");
  EXPECT_EQ(scan.tensors.size(), 51u);
}

TEST_F(Sharded, AConfigThatCannotBeRead) {
  EXPECT_TRUE(Now().config.has_value());
  folder_.Write("config.json", "{");
  const Scan scan = Now();
  EXPECT_EQ(Kinds(scan), Lines{"config config.json "});
  EXPECT_FALSE(scan.config.has_value());
  EXPECT_NE(scan.why_no_config.find("not JSON"), std::string::npos);
  EXPECT_EQ(scan.tensors.size(), 3u);
  fs::remove(folder_.Path("config.json"));
  EXPECT_EQ(Kinds(Now()), Lines{"config config.json "});
}

TEST(Scan, WhatIsNoCheckpoint) {
  const TempFolder folder;
  folder.Write("readme", "x");
  EXPECT_TRUE(Says(ScanCheckpoint(folder.path()).error(), {"no checkpoint"}));
  EXPECT_TRUE(Says(ScanCheckpoint(folder.Path("nothing")).error(), {"no such file"}));
  EXPECT_TRUE(Says(ScanCheckpoint(folder.Path("readme")).error(), {"not a folder"}));
  EXPECT_FALSE(ScanCheckpoint("").ok());
  EXPECT_FALSE(ScanCheckpoint(std::string("a\0b", 3)).ok());
  folder.Write("a.gguf", "");
  folder.Write("b.gguf", "");
  EXPECT_TRUE(Says(ScanCheckpoint(folder.path()).error(), {"several GGUF files"}));
}

// --- GGUF

std::string TwoTensors(uint32_t type = 0, uint64_t offset = 32, size_t data = 64) {
  GgufWriter writer;
  writer.PutText("general.architecture", "nothing");
  writer.PutTensor({"a", DType::kF32, {8}, std::vector<std::byte>(32)});
  writer.PutTensor({"b", DType::kF32, {8}, std::vector<std::byte>(32)});
  std::string bytes = writer.Bytes();
  // The last tensor's type and offset are the header's last 12 bytes before the padding.
  const size_t name = bytes.rfind(std::string("b\1\0\0\0", 5));
  std::memcpy(bytes.data() + name + 1 + 4 + 8, &type, sizeof(type));
  std::memcpy(bytes.data() + name + 1 + 4 + 8 + 4, &offset, sizeof(offset));
  bytes.resize(bytes.size() - 64 + data);
  return bytes;
}

TEST(Scan, Gguf) {
  const TempFolder folder;
  const auto scanned = [&](const std::string& bytes) {
    Scan scan = Scanned(folder.Write("m.gguf", bytes));
    EXPECT_EQ(GgufFile::Open(folder.Path("m.gguf")).ok(), scan.findings.empty());
    return scan;
  };
  const Scan right = scanned(TwoTensors());
  EXPECT_EQ(Kinds(right), Lines{});
  EXPECT_TRUE(right.is_gguf);
  ASSERT_EQ(Names(right.tensors), (Lines{"a", "b"}));
  EXPECT_EQ(right.tensors[1].offset - right.tensors[0].offset, 32u);
  EXPECT_EQ(right.tensors[1].offset + 32, right.file_bytes);
  ASSERT_TRUE(right.config.has_value());

  const Scan type = scanned(TwoTensors(99));
  EXPECT_EQ(Kinds(type), Lines{"dtype m.gguf b"});
  EXPECT_EQ(Names(type.tensors), Lines{"a"});
  const Scan overlap = scanned(TwoTensors(0, 0));
  EXPECT_EQ(Kinds(overlap), (Lines{"overlap m.gguf b", "trailing m.gguf b"}));
  EXPECT_EQ(Names(overlap.damaged), (Lines{"a", "b"}));
  const Scan cut = scanned(TwoTensors(0, 32, 40));
  EXPECT_EQ(Kinds(cut), Lines{"truncated m.gguf b"});
  EXPECT_EQ(Names(cut.tensors), Lines{"a"});
  EXPECT_EQ(Names(cut.damaged), Lines{"b"});
  EXPECT_EQ(Kinds(scanned(TwoTensors(0, 64, 96))), Lines{"hole m.gguf b"});
  EXPECT_EQ(Kinds(scanned(TwoTensors(0, 32, 96))), Lines{"trailing m.gguf b"});
  EXPECT_EQ(Kinds(scanned(TwoTensors().substr(0, 90))), Lines{"truncated m.gguf "});
  EXPECT_EQ(Kinds(scanned("GGUX")), Lines{"header m.gguf "});
  EXPECT_EQ(Kinds(scanned("")), Lines{"header m.gguf "});
}

TEST(Scan, WhatIsShippedIsRight) {
  for (const char* model :
       {"checkpoints/dsv3-mini", "checkpoints/gptoss-mini", "checkpoints/k2-mini",
        "checkpoints/k3-mini", "checkpoints/k3-mini/k3-mini.gguf", "checkpoints/kimilinear-mini",
        "checkpoints/llama-mini", "checkpoints/m3-mini", "checkpoints/qwen2-mini",
        "checkpoints/qwen3-mini", "checkpoints/qwen3moe-mini", "checkpoints/v4-mini",
        "quantised/gptoss-mini-mxfp4", "quantised/k2-mini-int4-g32",
        "quantised/qwen3moe-mini-fp8"}) {
    SCOPED_TRACE(model);
    const std::string path = fmt::format("goldens/{}", model);
    const Scan scan = Scanned(path);
    EXPECT_EQ(Kinds(scan), Lines{});
    const auto checkpoint = Checkpoint::Open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ(Names(scan.tensors), (*checkpoint)->Names());
    EXPECT_EQ(scan.config_json, (*checkpoint)->config_json());
    EXPECT_EQ(scan.config->prefix, (*checkpoint)->config().prefix);
    EXPECT_EQ(scan.config->lm_head, (*checkpoint)->config().lm_head);
    std::map<std::string, std::string> files;
    for (const std::string& file : scan.files) files[file] = ReadBytes(file);
    for (const ScanTensor& tensor : scan.tensors) {
      const TensorView* view = (*checkpoint)->Find(tensor.view.name);
      ASSERT_NE(view, nullptr);
      EXPECT_EQ(view->shape, tensor.view.shape);
      EXPECT_EQ(view->dtype, tensor.view.dtype);
      const std::string& file = files[tensor.file];
      ASSERT_LE(tensor.offset + view->bytes.size(), file.size());
      EXPECT_EQ(std::memcmp(file.data() + tensor.offset, view->bytes.data(), view->bytes.size()),
                0);
    }
  }
}

}  // namespace
}  // namespace assay
