#include "harness/checkpoint/test_support.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace assay {

namespace fs = std::filesystem;

TempFolder::TempFolder() {
  static std::atomic<int> count = 0;
  const char* base = std::getenv("TEST_TMPDIR");
  path_ = fs::path(base != nullptr ? base : "/tmp") /
          fmt::format("checkpoint-{}-{}", getpid(), count++);
  fs::create_directories(path_);
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string TempFolder::Write(std::string_view name, std::string_view bytes) const {
  const std::string path = Path(name);
  // Some file systems flush a file that is cut to nothing and written again: thousands of times, by
  // the tests that damage files.
  fs::remove(path);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  EXPECT_TRUE(file.good()) << path;
  return path;
}

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string RawSafetensors(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += header;
  bytes += data;
  return bytes;
}

std::string ByteEntry(std::string_view name, int begin, int count) {
  return fmt::format(R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", name, count,
                     begin, begin + count);
}

std::string LlamaJson() {
  return R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": 100, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
    "tie_word_embeddings": false})";
}

testing::AssertionResult Says(const Error& error, std::initializer_list<std::string_view> texts) {
  for (const char c : error.message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      return testing::AssertionFailure() << "not one printable line: " << error.message;
    }
  }
  for (const std::string_view text : texts) {
    if (error.message.find(text) == std::string::npos) {
      return testing::AssertionFailure() << "no \"" << text << "\" in: " << error.message;
    }
  }
  return testing::AssertionSuccess() << error.message;
}

}  // namespace assay
