// Checkpoints that are broken on purpose: each is named in one clear line, and its clean twin is
// not complained about.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <ostream>

#include "harness/audit/render.h"
#include "harness/audit/testing/fixture.h"

namespace assay::audit {
namespace {

using namespace testing;  // the fixture
namespace fs = std::filesystem;

std::string Layer() { return SmallLayer("case"); }
std::string Mxfp4() { return CopyOf("goldens/quantised/gptoss-mini-mxfp4", "case"); }
std::string Fp8() { return CopyOf("goldens/quantised/qwen3moe-mini-fp8", "case"); }
std::string GptqClean() { return Gptq("case", Identity()); }

std::string Slim() { return ModelSlim("case"); }

// A folder whose only file is one of GGUF's.
std::string Gguf() {
  const std::string folder = Fresh("case");
  fs::create_directories(folder);
  fs::copy_file(fs::canonical("goldens/formats/formats.gguf"), folder + "/formats.gguf");
  fs::permissions(folder + "/formats.gguf", fs::perms::owner_read | fs::perms::owner_write);
  return folder;
}

constexpr const char* kGptqModule = "model.layers.0.mlp.up_proj.";

struct Case {
  const char* name;
  std::string (*make)();
  std::function<void(const std::string& folder)> damage;
  std::string kind, tensor;
  std::vector<std::string> says;  // parts of the line
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

void PokeScale(const std::string& folder, uint16_t bits) {
  // Row 3, group 1 of [128, 2].
  Poke(folder + "/" + kExpertFile, Expert(1, "up_proj.weight_scale"), (3 * 2 + 1) * 2,
       Little(bits));
}

const std::string kScale = Expert(1, "up_proj.weight_scale");
const std::string kPacked = Expert(0, "gate_proj.weight_packed");

const std::vector<Case> kCases = {
    {"Truncated",
     Layer,
     [](const std::string& f) {
       fs::resize_file(f + "/" + kLastFile, fs::file_size(f + "/" + kLastFile) - 100);
     },
     "truncated",
     "",
     {kLastFile}},
    {"TruncatedInItsHeader",
     Layer,
     [](const std::string& f) { fs::resize_file(f + "/" + kLastFile, 64); },
     "",
     "",
     {kLastFile}},
    {"EmptyFile",
     Layer,
     [](const std::string& f) { fs::resize_file(f + "/" + kLastFile, 0); },
     "",
     "",
     {kLastFile}},
    {"Duplicated",
     Layer,
     [](const std::string& f) {
       // The first file's last tensor gets a name of the second file.
       EditHeader(f + "/" + kLastFile, [](std::string* header) {
         Replace(header, "\"" + Expert(2, "gate_proj.weight_shape") + "\"",
                 "\"" + Expert(1, "gate_proj.weight_shape") + "\"");
       });
     },
     "",
     Expert(1, "gate_proj.weight_shape"),
     {}},
    {"LyingShape",
     Layer,
     [](const std::string& f) {
       Poke(f + "/" + kExpertFile, Expert(0, "gate_proj.weight_shape"), 8, Little(int64_t{72}));
     },
     "weight-shape",
     Expert(0, "gate_proj.weight_shape"),
     {"states [128, 72]", "8 words", "up to 64"}},
    {"ShapeOfOtherRows",
     Layer,
     [](const std::string& f) {
       Poke(f + "/" + kExpertFile, Expert(0, "gate_proj.weight_shape"), 0, Little(int64_t{127}));
     },
     "weight-shape",
     Expert(0, "gate_proj.weight_shape"),
     {"n must be 128"}},
    {"NanScale",
     Layer,
     [](const std::string& f) { PokeScale(f, 0x7FC0); },
     "nan",
     kScale,
     {"row 3, group 1", "positive finite"}},
    {"InfiniteScale",
     Layer,
     [](const std::string& f) { PokeScale(f, 0x7F80); },
     "infinite",
     kScale,
     {"row 3, group 1"}},
    {"ZeroScale",
     Layer,
     [](const std::string& f) { PokeScale(f, 0); },
     "zero",
     kScale,
     {"row 3, group 1"}},
    {"DenormalScale",
     Layer,
     [](const std::string& f) { PokeScale(f, 0x0010); },
     "denormal",
     kScale,
     {"row 3, group 1"}},
    {"E8M0Nan",
     Mxfp4,
     [](const std::string& f) {
       // Expert 2, row 5, group 4 of [5, 64, 9].
       Poke(f + "/model.safetensors", "model.layers.1.mlp.experts.down_proj_scales",
            (2 * 64 + 5) * 9 + 4, "\xff");
     },
     "nan",
     "model.layers.1.mlp.experts.down_proj_scales",
     {"255", "expert 2, row 5, group 4", "0 to 254"}},
    {"Fp8Nan",
     Fp8,
     [](const std::string& f) {
       Poke(f + "/model.safetensors", "model.layers.0.mlp.experts.1.up_proj.weight", 7 * 80 + 9,
            "\xff");
     },
     "nan",
     "model.layers.0.mlp.experts.1.up_proj.weight",
     {"row 7, column 9", "0x7F"}},
    {"GIdxOutOfRange",
     GptqClean,
     [](const std::string& f) {
       Poke(f + "/model.safetensors", std::string(kGptqModule) + "g_idx", 5 * 4,
            Little(int32_t{4}));
     },
     "g-idx",
     std::string(kGptqModule) + "g_idx",
     {"element 5 is in group 4", "0 to 3"}},
    {"GIdxGroupsOfOtherSizes",
     GptqClean,
     [](const std::string& f) {
       Poke(f + "/model.safetensors", std::string(kGptqModule) + "g_idx", 5 * 4,
            Little(int32_t{1}));
     },
     "g-idx",
     std::string(kGptqModule) + "g_idx",
     {"group 0 has 15 elements", "16"}},
    {"MissingShard",
     Layer,
     [](const std::string& f) { fs::remove(f + "/" + kExpertFile); },
     "",
     "",
     {kExpertFile}},
    {"ExtraShard",
     Layer,
     [](const std::string& f) {
       fs::copy_file(f + "/" + kExpertFile, f + "/model-00004-of-00004.safetensors");
     },
     "",
     "",
     {"model-00004-of-00004.safetensors"}},
    {"SwappedDtype",
     Layer,
     [](const std::string& f) {
       EditHeader(f + "/" + kExpertFile,
                  [](std::string* h) { ReplaceIn(h, kScale, "BF16", "F16"); });
     },
     "dtype",
     kScale,
     {"F16", "BF16"}},
    {"CodesThatAreFloats",
     Layer,
     [](const std::string& f) {
       EditHeader(f + "/" + kExpertFile,
                  [](std::string* h) { ReplaceIn(h, kPacked, "I32", "F32"); });
     },
     "dtype",
     kPacked,
     {"F32", "I32"}},
    {"HeaderOverlap",
     Layer,
     [](const std::string& f) {
       EditHeader(f + "/" + kExpertFile, [](std::string* header) {
         // up_proj's packed codes begin where gate_proj's scale does.
         const std::string entry = "\"" + Expert(0, "gate_proj.weight_scale") + "\"";
         const size_t at = header->find("data_offsets\":[", header->find(entry)) + 15;
         const std::string offsets = header->substr(at, header->find(']', at) - at);
         const size_t comma = offsets.find(',');
         const int64_t begin = std::stoll(offsets.substr(0, comma)) - 8;
         const int64_t end = std::stoll(offsets.substr(comma + 1)) - 8;
         header->replace(at, offsets.size(), std::to_string(begin) + "," + std::to_string(end));
       });
     },
     "",
     Expert(0, "gate_proj.weight_scale"),
     {}},
    {"ZeroLengthTensor",
     Layer,
     [](const std::string& f) {
       const std::string file = f + "/" + kLastFile;
       EditHeader(file, [](std::string* header) {
         const std::string name = Expert(3, "down_proj.weight_shape");
         const size_t at = header->find("\"" + name + "\"");
         const size_t end = header->find('}', at);
         const size_t begin = header->find("data_offsets\":[", at) + 15;
         const std::string first = header->substr(begin, header->find(',', begin) - begin);
         header->replace(at, end + 1 - at,
                         "\"" + name + "\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[" +
                             first + "," + first + "]}");
       });
       fs::resize_file(file, fs::file_size(file) - 16);
     },
     "",
     Expert(3, "down_proj.weight_shape"),
     {}},
    {"WrongIndex",
     Layer,
     [](const std::string& f) {
       std::string index = ReadText(f + "/model.safetensors.index.json");
       Replace(&index, "\"" + Expert(0, "up_proj.weight_scale") + "\":\"" + kExpertFile + "\"",
               "\"" + Expert(0, "up_proj.weight_scale") + "\":\"" + kLastFile + "\"");
       WriteText(f + "/model.safetensors.index.json", index);
     },
     "",
     Expert(0, "up_proj.weight_scale"),
     {kLastFile}},
    {"IndexNamesWhatNobodyHas",
     Layer,
     [](const std::string& f) {
       std::string index = ReadText(f + "/model.safetensors.index.json");
       Replace(&index, "{\"model.embed_tokens.weight\"",
               "{\"model.layers.0.ghost.weight\":\"" + std::string(kLastFile) +
                   "\",\"model.embed_tokens.weight\"");
       WriteText(f + "/model.safetensors.index.json", index);
     },
     "",
     "model.layers.0.ghost.weight",
     {}},
    {"TensorThatTheIndexForgot",
     Layer,
     [](const std::string& f) {
       std::string index = ReadText(f + "/model.safetensors.index.json");
       Replace(&index, "\"" + Expert(3, "up_proj.weight_scale") + "\":\"" + kLastFile + "\",", "");
       WriteText(f + "/model.safetensors.index.json", index);
     },
     "",
     Expert(3, "up_proj.weight_scale"),
     {}},
    {"NanWeight",
     Layer,
     [](const std::string& f) {
       Poke(f + "/model-00001-of-00003.safetensors", "model.layers.0.self_attn.o_proj.weight",
            (5 * 512 + 77) * 2, Little(uint16_t{0xFFC1}));
     },
     "nan",
     "model.layers.0.self_attn.o_proj.weight",
     {"row 5, column 77"}},
    {"AllZeroCodes",
     Layer,
     [](const std::string& f) {
       Poke(f + "/" + kExpertFile, kPacked, 0, std::string(128 * 8 * 4, '\0'));
     },
     "all-zero",
     kPacked,
     {"4096 bytes"}},
    {"MissingScale",
     Layer,
     [](const std::string& f) {
       for (const std::string& file :
            {std::string(kExpertFile), std::string("model.safetensors.index.json")}) {
         std::string text = ReadText(f + "/" + file);
         Replace(&text, "\"" + kScale + "\"", "\"" + Expert(1, "up_proj.weight_scalf") + "\"");
         WriteText(f + "/" + file, text);
       }
     },
     "missing",
     Expert(1, "up_proj.weight_packed"),
     {"scale"}},
    {"TrailingBytes",
     Layer,
     [](const std::string& f) {
       WriteText(f + "/" + kLastFile, ReadText(f + "/" + kLastFile) + "more");
     },
     "trailing",
     "",
     {kLastFile, "4 bytes"}},
    {"NameTwiceInOneHeader",
     Layer,
     [](const std::string& f) {
       EditHeader(f + "/" + kLastFile, [](std::string* header) {
         Replace(header, "\"" + Expert(3, "up_proj.weight_packed") + "\"",
                 "\"" + Expert(2, "up_proj.weight_packed") + "\"");
       });
     },
     "duplicate",
     Expert(2, "up_proj.weight_packed"),
     {}},
    {"IndexThatIsNoJson",
     Layer,
     [](const std::string& f) { WriteText(f + "/model.safetensors.index.json", "{"); },
     "index",
     "",
     {"model.safetensors.index.json"}},
    {"NoConfig",
     Layer,
     [](const std::string& f) { fs::remove(f + "/config.json"); },
     "config",
     "",
     {"config.json"}},
    {"OffsetOutOfRange",
     Slim,
     [](const std::string& f) {
       Poke(f + "/model.safetensors", "model.layers.0.mlp.up_proj.weight_offset", 5 * 4,
            Little(200.0f));
     },
     "zero-point",
     "model.layers.0.mlp.up_proj.weight_offset",
     {"row 5", "-128 to 127"}},
    {"GgufTruncated",
     Gguf,
     [](const std::string& f) {
       fs::resize_file(f + "/formats.gguf", fs::file_size(f + "/formats.gguf") - 64);
     },
     "truncated",
     "",
     {"formats.gguf"}},
    {"GgufNanScale",
     Gguf,
     [](const std::string& f) {
       Poke(f + "/formats.gguf", "quantised.q4_0", (5 + 1) * 18, "\xff\x7f");
     },
     "nan",
     "quantised.q4_0",
     {"row 1, block 1"}},
    {"GgufE8M0Nan",
     Gguf,
     [](const std::string& f) { Poke(f + "/formats.gguf", "quantised.mxfp4", 3 * 17, "\xff"); },
     "nan",
     "quantised.mxfp4",
     {"row 0, block 3"}},
    {"ConfigWantsMore",
     Layer,
     [](const std::string& f) {
       std::string config = ReadText(f + "/config.json");
       Replace(&config, "\"n_routed_experts\":4", "\"n_routed_experts\":5");
       WriteText(f + "/config.json", config);
     },
     "",
     "",
     {"5"}},
};

class Broken : public ::testing::TestWithParam<Case> {};

TEST_P(Broken, IsNamedInOneClearLine) {
  const Case& each = GetParam();
  const std::string folder = each.make();
  const Report clean = AuditOf(folder);
  EXPECT_TRUE(clean.findings.empty()) << "the clean twin:" << Lines(clean);
  each.damage(folder);
  if (HasFatalFailure()) return;
  const Report report = AuditOf(folder);
  const auto found =
      std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& finding) {
        const std::string line = FindingLine(finding);
        return (each.kind.empty() || finding.kind == each.kind) &&
               (each.tensor.empty() || finding.tensor == each.tensor) &&
               line.find('\n') == line.npos &&
               std::all_of(each.says.begin(), each.says.end(),
                           [&](const std::string& part) { return line.find(part) != line.npos; });
      });
  EXPECT_TRUE(found) << Lines(report);
  // One cause, few lines.
  EXPECT_LE(report.findings.size(), 5u) << Lines(report);
}

INSTANTIATE_TEST_SUITE_P(Audit, Broken, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace assay::audit
