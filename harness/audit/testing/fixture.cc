#include "harness/audit/testing/fixture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "harness/audit/k2_layer.h"
#include "harness/audit/render.h"
#include "harness/checkpoint/gguf.h"
#include "harness/checkpoint/safetensors.h"

namespace assay::audit::testing {

namespace fs = std::filesystem;

std::string Fresh(const std::string& name) {
  const char* root = std::getenv("TEST_TMPDIR");
  const std::string path = std::string(root == nullptr ? "/tmp" : root) + "/audit-" + name;
  fs::remove_all(path);
  return path;
}

std::string SmallLayer(const std::string& name) {
  const std::string folder = Fresh(name);
  LayerOptions options;
  options.experts = 4;
  options.experts_per_file = 2;
  options.hidden = 64;
  options.intermediate = 128;
  options.heads = 4;
  options.vocab = 192;
  const Status made = MakeLayer(folder, options);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return folder;
}

std::string CopyOf(const std::string& from, const std::string& name) {
  const std::string folder = Fresh(name);
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(from)) {
    const fs::path to = fs::path(folder) / entry.path().filename();
    // Goldens may be links, and are read-only.
    fs::copy_file(fs::canonical(entry.path()), to);
    fs::permissions(to, fs::perms::owner_read | fs::perms::owner_write);
  }
  return folder;
}

std::string ModelSlim(const std::string& name) {
  const std::string folder = Fresh(name), module = "model.layers.0.mlp.up_proj.";
  fs::create_directories(folder);
  std::string codes, scales;
  for (int i = 0; i < 8 * 32; ++i) codes += static_cast<char>(i * 7);
  for (int i = 0; i < 8; ++i) scales += Little(0.01f * static_cast<float>(i + 1));
  WriteRaw(folder + "/model.safetensors",
           {{module + "weight", "I8", {8, 32}, codes},
            {module + "weight_scale", "F32", {8, 1}, scales},
            {module + "weight_offset", "F32", {8, 1}, std::string(32, '\0')}});
  WriteText(folder + "/config.json",
            R"({"architectures":["OtherForCausalLM"],"model_type":"other"})");
  return folder;
}

std::vector<int32_t> Identity() {
  std::vector<int32_t> groups;
  for (int32_t k = 0; k < 64; ++k) groups.push_back(k / 16);
  return groups;
}

std::string Gptq(const std::string& name, const std::vector<int32_t>& g_idx) {
  const std::string folder = Fresh(name);
  fs::create_directories(folder);
  std::string words, scales, indices;
  for (uint32_t i = 0; i < 8 * 16; ++i) words += Little(i * 2654435761u);
  for (uint16_t i = 0; i < 4 * 16; ++i) scales += Little(static_cast<uint16_t>(0x2000 + i));
  for (const int32_t group : g_idx) indices += Little(group);
  std::string zeros;
  for (uint32_t i = 0; i < 4 * 2; ++i) zeros += Little(0x76543210u + i);
  const std::string module = "model.layers.0.mlp.up_proj.";
  WriteRaw(folder + "/model.safetensors",
           {{module + "qweight", "I32", {8, 16}, words},
            {module + "qzeros", "I32", {4, 2}, zeros},
            {module + "scales", "F16", {4, 16}, scales},
            {module + "g_idx", "I32", {static_cast<int64_t>(g_idx.size())}, indices}});
  WriteText(folder + "/config.json",
            R"({"architectures":["OtherForCausalLM"],"model_type":"other",)"
            R"("quantization_config":{"quant_method":"gptq","bits":4,"group_size":16,)"
            R"("desc_act":true,"sym":false}})");
  return folder;
}

void WriteRaw(const std::string& path, const std::vector<Raw>& tensors) {
  std::string header = "{", data;
  for (const Raw& raw : tensors) {
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          header.size() == 1 ? "" : ",", raw.name, raw.dtype,
                          fmt::join(raw.shape, ","), data.size(), data.size() + raw.bytes.size());
    data += raw.bytes;
  }
  header += "}";
  WriteText(path, Little(uint64_t{header.size()}) + header + data);
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void Poke(const std::string& file, const std::string& tensor, uint64_t at,
          const std::string& value) {
  uint64_t offset = 0;
  if (file.ends_with(".gguf")) {
    const auto opened = GgufFile::Open(file);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const TensorView* view = (*opened)->Find(tensor);
    ASSERT_NE(view, nullptr) << tensor;
    ASSERT_LE(at + value.size(), view->bytes.size());
    offset = static_cast<uint64_t>(view->bytes.data() - (*opened)->header().data()) + at;
  } else {
    const auto opened = SafetensorsFile::Open(file);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const TensorView* view = (*opened)->Find(tensor);
    ASSERT_NE(view, nullptr) << tensor;
    ASSERT_LE(at + value.size(), view->bytes.size());
    const auto* header = reinterpret_cast<const std::byte*>((*opened)->header().data());
    offset = static_cast<uint64_t>(view->bytes.data() - header) + 8 + at;
  }
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekp(static_cast<std::streamoff>(offset));
  stream.write(value.data(), static_cast<std::streamsize>(value.size()));
  ASSERT_TRUE(stream.good());
}

void EditHeader(const std::string& file, const std::function<void(std::string*)>& edit) {
  const std::string text = ReadText(file);
  uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  std::string header = text.substr(8, length);
  edit(&header);
  if (header.size() < length) header.resize(length, ' ');
  WriteText(file, Little(uint64_t{header.size()}) + header + text.substr(8 + length));
}

void Replace(std::string* text, const std::string& from, const std::string& to) {
  const size_t at = text->find(from);
  ASSERT_NE(at, text->npos) << from;
  ASSERT_EQ(text->find(from, at + 1), text->npos) << from << " is there twice";
  text->replace(at, from.size(), to);
}

void ReplaceIn(std::string* header, const std::string& tensor, const std::string& from,
               const std::string& to) {
  const size_t begin = header->find("\"" + tensor + "\":{");
  ASSERT_NE(begin, header->npos) << tensor;
  const size_t end = header->find('}', begin);
  std::string entry = header->substr(begin, end - begin);
  Replace(&entry, from, to);
  header->replace(begin, end - begin, entry);
}

Report AuditOf(const std::string& path) {
  auto report = Audit(path, AuditOptions());
  if (!report) {
    ADD_FAILURE() << report.error().message;
    return {};
  }
  return std::move(*report);
}

std::string Lines(const Report& report) {
  std::string text;
  for (const Finding& finding : report.findings) text += "\n  " + FindingLine(finding);
  return text;
}

}  // namespace assay::audit::testing
