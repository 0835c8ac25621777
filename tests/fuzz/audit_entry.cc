#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/audit/audit.h"
#include "harness/audit/render.h"
#include "tests/fuzz/entries.h"
#include "tests/fuzz/require.h"

namespace assay::fuzz {
namespace {

namespace fs = std::filesystem;

// A small model in int4, so that the planner has something to say of the tensors.
constexpr const char* kConfig =
    R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":32,)"
    R"("intermediate_size":64,"num_hidden_layers":1,"num_attention_heads":2,)"
    R"("num_key_value_heads":1,"vocab_size":8,"max_position_embeddings":64,"rms_norm_eps":1e-5,)"
    R"("rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":true,)"
    R"("quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized",)"
    R"("config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int",)"
    R"("group_size":32,"strategy":"group","symmetric":false}}},"ignore":["lm_head"]}})";

// A checkpoint's folder, gone when the process ends in order.
class Folder {
 public:
  Folder() {
    const char* base = std::getenv("TEST_TMPDIR");
    if (access("/dev/shm", W_OK | X_OK) == 0) base = "/dev/shm";
    path_ = std::string(base != nullptr ? base : "/tmp") + "/auditXXXXXX";
    if (mkdtemp(path_.data()) == nullptr) Broken("no folder for files", path_);
    std::ofstream(path_ + "/config.json") << kConfig;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Where the bytes go: a file of their own, or a folder's only shard.
std::string Checkpoint(const uint8_t* data, size_t size) {
  if (size >= 4 && std::string_view(reinterpret_cast<const char*>(data), 4) == "GGUF") {
    return FileOf("x.gguf", data, size);
  }
  static Folder folder;
  std::ofstream(folder.path() + "/model.safetensors", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  return folder.path();
}

}  // namespace

int FuzzAudit(const uint8_t* data, size_t size) {
  audit::AuditOptions options;
  options.degrees = {1, 2, 3};
  options.threads = 1;
  const auto report = audit::Audit(Checkpoint(data, size), options);
  if (!report) {
    RequireOneLine(report.error());
    return 0;
  }
  for (const auto* findings : {&report->findings, &report->notes}) {
    for (const audit::Finding& finding : *findings) {
      RequireOneLine(Error{audit::FindingLine(finding)});
    }
  }
  std::string json;
  audit::WriteJson(*report, [&](std::string_view text) { json += text; });
  if (!nlohmann::json::accept(json)) Broken("a report that is no JSON", json);
  if (audit::RenderTerminal(*report, false).empty()) Broken("an empty report", "");
  if (audit::RenderHtml(*report).empty()) Broken("an empty page", "");
  return 0;
}

}  // namespace assay::fuzz
