// The oracle's slices against what a real engine's ranks hold after its own loading (hashes;
// goldens/shards/README.md).
#include <gtest/gtest.h>
#include <sodium.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "reference/test_support.h"

namespace assay::reference {
namespace {

using testing_support::Opened;
using testing_support::OpenModel;

std::string Blake2b16(const std::vector<std::byte>& bytes) {
  unsigned char hash[16];
  crypto_generichash(hash, sizeof hash, reinterpret_cast<const unsigned char*>(bytes.data()),
                     bytes.size(), nullptr, 0);
  char text[2 * sizeof hash + 1];
  sodium_bin2hex(text, sizeof text, hash, sizeof hash);
  return text;
}

// Components by the engine's names: a parameter is one or several of ours, one below the other.
class EngineNames {
 public:
  explicit EngineNames(const Opened& model) {
    for (const std::string& component : model.oracle->Components()) {
      const std::string source = *model.oracle->SourceName(component);
      if (!by_source_.contains(source)) by_source_[source] = component;
    }
    experts_ = model.config().experts;
    by_source_["lm_head.weight"] = "logits.weight";
  }
  std::vector<std::string> Components(const std::string& name) const {
    constexpr std::pair<const char*, std::pair<const char*, const char*>> kMerged[] = {
        {".qkv_proj.", {".q_proj.", ".k_proj. .v_proj."}},
        {".gate_up_proj.", {".gate_proj.", ".up_proj."}},
        {".fused_qkv_a_proj.", {".q_a_proj.", ".kv_a_proj_with_mqa."}},
    };
    for (const auto& [merged, parts] : kMerged) {
      const size_t at = name.find(merged);
      if (at == std::string::npos) continue;
      std::vector<std::string> found;
      std::istringstream list(std::string(parts.first) + " " + parts.second);
      for (std::string part; list >> part;) {
        std::string source = name;
        found.push_back(by_source_.at(source.replace(at, std::strlen(merged), part)));
      }
      return found;
    }
    const size_t routed = name.find(".routed_experts.w");
    if (routed == std::string::npos) return {by_source_.at(name)};
    const std::string prefix = name.substr(0, routed + 1);
    const bool down = name.compare(routed + 16, 3, "w2_") == 0;
    const std::string suffix = name.substr(name.find('_', routed + 16) + 1);
    std::vector<std::string> found;
    for (int64_t e = 0; e < experts_; ++e) {
      for (const char* module : {"gate_proj", "up_proj", "down_proj"}) {
        if ((std::strcmp(module, "down_proj") == 0) != down) continue;
        found.push_back(by_source_.at(prefix + std::to_string(e) + "." + module + "." + suffix));
      }
    }
    return found;
  }

 private:
  std::map<std::string, std::string> by_source_;
  int64_t experts_ = 0;
};

// Whether the oracle refuses some component at this degree.
bool OracleRefuses(const Opened& model, int tp) {
  for (const std::string& component : model.oracle->Components()) {
    if (!model.oracle->ExpectedSlice(component, {{tp, tp}, 0})) return true;
  }
  return false;
}

void Compare(const std::filesystem::path& path, const std::string& model_name, int* compared) {
  const auto json = nlohmann::json::parse(std::ifstream(path));
  const bool quantised = model_name.find("int4") != std::string::npos;
  const Opened model = OpenModel(model_name, quantised ? "quantised" : "checkpoints");
  const EngineNames names(model);
  const int tp = json.at("tp");
  if (json.contains("refused")) {
    // Its vocabulary padding of 64 is the engine's own limit: "320 is not divisible by 3".
    const bool own_limit = json.at("refused").get<std::string>().starts_with("320 ");
    EXPECT_TRUE(own_limit || OracleRefuses(model, tp)) << path;
    ++*compared;
    return;
  }
  EXPECT_FALSE(OracleRefuses(model, tp)) << path;
  for (const auto& [key, facts] : json.at("parameters").items()) {
    const size_t dot = key.find('.');
    const int rank = std::stoi(key.substr(4, dot - 4));
    const std::string name = key.substr(dot + 1);
    // Another padding than 64: the engine was made to take this degree.
    const bool vocabulary = name == "lm_head.weight" || name == "model.embed_tokens.weight";
    if (json.contains("vocab_padding") && vocabulary) continue;
    std::vector<std::byte> bytes;
    for (const std::string& component : names.Components(name)) {
      const auto slice = model.oracle->ExpectedSlice(component, {{tp, tp}, rank});
      ASSERT_TRUE(slice.ok()) << slice.error().message;
      bytes.insert(bytes.end(), slice->bytes.begin(), slice->bytes.end());
    }
    EXPECT_EQ(Blake2b16(bytes), facts.at(2).get<std::string>()) << path << " " << key;
    ++*compared;
  }
}

TEST(EngineShards, EveryRanksParametersAreTheEnginesBytes) {
  std::map<std::string, int> compared;
  for (const auto& folder : std::filesystem::directory_iterator("goldens/shards")) {
    if (!folder.is_directory()) continue;
    const std::string name = folder.path().filename().string();
    for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
      Compare(file.path(), name, &compared[name]);
    }
  }
  EXPECT_EQ(compared.size(), 6u);
  // Every degree of qwen2-mini is refused.
  for (const auto& [name, count] : compared) {
    EXPECT_GE(count, name == "qwen2-mini" ? 4 : 50) << name;
  }
}

TEST(EngineShards, AnotherRanksBytesHashOtherwise) {  // the control
  const Opened model = OpenModel("llama-mini");
  const auto zero = model.oracle->ExpectedSlice("L0.mlp.up.weight", {{2, 2}, 0});
  const auto one = model.oracle->ExpectedSlice("L0.mlp.up.weight", {{2, 2}, 1});
  EXPECT_NE(Blake2b16(zero->bytes), Blake2b16(one->bytes));
}

}  // namespace
}  // namespace assay::reference
