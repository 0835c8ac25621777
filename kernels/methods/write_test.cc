// Whole checkpoints in other methods, on disk.
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/methods/convert.h"
#include "kernels/methods/convert_support.h"

namespace assay::kernels {
namespace {

TEST(Write, FilesHoldWhatMemoryHolds) {
  const Folder folder;
  for (const auto& [model, id] : {std::pair{"qwen3moe-mini", "ct-int4-g32"},
                                  {"qwen3moe-mini", "gptq-int4-g32-actorder"},
                                  {"gptoss-mini", "gptoss-mxfp4"},
                                  {"llama-mini", "ct-nvfp4"},
                                  {"llama-mini", "bf16"}}) {
    SCOPED_TRACE(id);
    const auto dense = Shipped(model);
    const Scheme scheme = SchemeOf(id);
    const auto made = MakeConverted(*dense, dense->config_json(), scheme);
    ASSERT_TRUE(made.ok()) << made.error().message;
    for (const int64_t most : {int64_t{1} << 40, int64_t{100'000}}) {
      // Several threads make the same files as one.
      const std::string path = folder.Path(std::string(id) + std::to_string(most));
      int64_t last = 0, calls = 0, all = 0;
      ConvertOptions options;
      options.max_file_bytes = most;
      options.threads = most == 100'000 ? 3 : 1;
      options.progress = [&](int64_t done, int64_t total) {
        EXPECT_GE(done, last);
        last = done, all = total, ++calls;
      };
      const Status status = WriteConverted(*dense, dense->config_json(), scheme, options, path);
      ASSERT_TRUE(status.ok()) << status.error().message;
      EXPECT_EQ(last, all);
      EXPECT_EQ(calls, static_cast<int64_t>(dense->Names().size()));
      EXPECT_EQ(fs::exists(path + "/model.safetensors.index.json"), most == 100'000);
      std::ifstream config(path + "/config.json");
      EXPECT_EQ(std::string(std::istreambuf_iterator<char>(config), {}), made->config_json);
      const auto written = Checkpoint::Open(path);
      ASSERT_TRUE(written.ok()) << written.error().message;
      ExpectSame(**written, *made->source);
    }
  }
}

TEST(Write, AModelSlimFolderHasItsDescriptionBeside) {
  const Folder folder;
  const auto dense = Shipped("llama-mini");
  const Status status = WriteConverted(*dense, dense->config_json(), SchemeOf("modelslim-w8a8"), {},
                                       folder.Path("slim"));
  ASSERT_TRUE(status.ok()) << status.error().message;
  std::ifstream description(folder.Path("slim/quant_model_description.json"));
  const auto json = nlohmann::json::parse(description);
  EXPECT_EQ(json.at("model.layers.0.mlp.up_proj.deq_scale"), "W8A8");
  EXPECT_EQ(json.at("model.norm.weight"), "FLOAT");
  std::ifstream config(folder.Path("slim/config.json"));
  EXPECT_FALSE(nlohmann::json::parse(config).contains("quantization_config"));
}

TEST(Write, AFolderIsThereWholeOrNotAtAll) {
  const Folder folder;
  const auto dense = Shipped("llama-mini");
  const Scheme scheme = SchemeOf("ct-int4-g32");
  const auto write = [&](const TensorSource& source, const std::string& name, int threads = 1) {
    ConvertOptions options;
    options.threads = threads;
    return WriteConverted(source, "{}", scheme, options, folder.Path(name));
  };
  // One that is not empty stays as it is.
  fs::create_directory(folder.Path("full"));
  std::ofstream(folder.Path("full/kept")) << "kept";
  EXPECT_FALSE(write(*dense, "full").ok());
  std::ofstream(folder.Path("file")) << "file";
  EXPECT_FALSE(write(*dense, "file").ok());
  EXPECT_FALSE(write(*dense, "nowhere/deep").ok());
  // A value in the last tensor that cannot be stored: the others were written by then.
  MemorySource source;
  std::vector<float> w(64 * 64, 1);
  const auto put = [&](const char* name) {
    const auto bytes = std::as_bytes(std::span(w));
    source.Put(name, DType::kF32, {64, 64}, {bytes.begin(), bytes.end()});
  };
  put("model.layers.0.a.weight");
  w[0] = std::numeric_limits<float>::quiet_NaN();
  put("model.layers.0.b.weight");
  EXPECT_FALSE(write(source, "nan").ok());
  EXPECT_FALSE(write(source, "nan", 4).ok());
  EXPECT_EQ(folder.Entries(), (std::set<std::string>{"full", "file"}));
  EXPECT_TRUE(fs::exists(folder.Path("full/kept")));
  // An empty one is taken.
  fs::create_directory(folder.Path("empty"));
  w[0] = 1;
  put("model.layers.0.b.weight");
  EXPECT_TRUE(write(source, "empty/").ok());
  EXPECT_TRUE(fs::exists(folder.Path("empty/config.json")));
  EXPECT_EQ(folder.Entries(), (std::set<std::string>{"full", "file", "empty"}));
}

TEST(Write, GgufBlocksAreNoSafetensors) {
  const Folder folder;
  const auto dense = Shipped("llama-mini");
  const Status status =
      WriteConverted(*dense, dense->config_json(), SchemeOf("gguf-q4_0"), {}, folder.Path("gguf"));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind, ErrorKind::kUnsupported);
  EXPECT_TRUE(folder.Entries().empty());
}

}  // namespace
}  // namespace assay::kernels
