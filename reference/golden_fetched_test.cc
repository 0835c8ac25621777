// The golden of SmolLM2, whose file has to be fetched, and what mistakes in reading it would cost.
// Not part of `./assay test`: it needs the file, in goldens/fetched or where ASSAY_MODELS says.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "reference/golden.h"
#include "reference/test_support.h"

namespace assay::reference {
namespace {

namespace fs = std::filesystem;
using testing_support::Overlay;

constexpr const char* kGolden = "smollm2-135m-q4_1";
constexpr const char* kFolder = "goldens/goldens/smollm2-135m-q4_1";
// The mildest mistake stands this far above what is allowed.
constexpr double kAboveBound = 1e3;
constexpr size_t kBlock = 20;

std::string Models() {
  const char* said = std::getenv("ASSAY_MODELS");
  return said != nullptr ? said : "goldens/fetched";
}

class Fetched : public testing::Test {
 protected:
  void SetUp() override {
    const auto info = ReadGoldenInfo(kFolder);
    ASSERT_TRUE(info.ok());
    info_ = *info;
    path_ = Models() + "/" + info_.gguf->file;
    auto opened = Checkpoint::Open(path_);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    checkpoint_ = std::move(*opened);
  }
  GoldenRow Row(const ModelConfig& config, const TensorSource& source,
                const std::string& prompt = "t5") const {
    const auto oracle = Oracle::Create(config, source);
    if (!oracle) {
      ADD_FAILURE() << oracle.error().message;
      return {};
    }
    return VerifyPrompt(**oracle, config, info_, {kFolder, kGolden, prompt, nullptr});
  }
  // Every block of one tensor of layer 7 changed.
  GoldenRow Changed(void (*change)(std::byte* block, const std::byte* next)) const {
    Overlay source(*checkpoint_);
    const TensorView* view = checkpoint_->Find("blk.7.ffn_up.weight");
    std::vector<std::byte> bytes(view->bytes.begin(), view->bytes.end());
    for (size_t at = 0; at < bytes.size(); at += kBlock) {
      change(bytes.data() + at, view->bytes.data() + (at + kBlock) % bytes.size());
    }
    source.changed.Put(view->name, view->dtype, view->shape, bytes);
    return Row(checkpoint_->config(), source);
  }

  GoldenInfo info_;
  std::string path_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

void ExpectSeen(const GoldenRow& row, const std::string& what) {
  EXPECT_EQ(row.verdict, GoldenVerdict::kFail) << what;
  ASSERT_TRUE(row.logits_max_rel.has_value()) << what << ": " << row.reason;
  EXPECT_GT(*row.logits_max_rel, kAboveBound * row.logits_bound) << what;
  std::printf("%s: %.2g of the largest logit, allowed is %.2g\n", what.c_str(), *row.logits_max_rel,
              row.logits_bound);
}

TEST_F(Fetched, EveryPromptPasses) {
  const auto rows = VerifyGolden("goldens", kGolden, Models());
  ASSERT_EQ(rows.size(), 3u);
  for (const GoldenRow& row : rows) {
    EXPECT_EQ(row.verdict, GoldenVerdict::kPass) << row.prompt << ": " << row.reason;
    EXPECT_TRUE(row.logits_max_rel.has_value() && row.decode_max_rel.has_value());
    std::printf("%s: logits %.2g, decode %.2g, allowed is %.2g\n", row.prompt.c_str(),
                row.logits_max_rel.value_or(-1), row.decode_max_rel.value_or(-1), row.logits_bound);
  }
}

TEST_F(Fetched, MistakesInBlocksAreSeen) {
  const GoldenRow same = Changed([](std::byte*, const std::byte*) {});
  EXPECT_EQ(same.verdict, GoldenVerdict::kPass) << same.reason;
  ExpectSeen(Changed([](std::byte* block, const std::byte*) {
               for (size_t i = 4; i < kBlock; ++i) block[i] = block[i] << 4 | block[i] >> 4;
             }),
             "nibbles swapped");
  ExpectSeen(
      Changed([](std::byte* block, const std::byte*) { block[2] = block[3] = std::byte{0}; }),
      "minimum forgotten");
  ExpectSeen(Changed([](std::byte* block, const std::byte* next) { std::memcpy(block, next, 4); }),
             "scales of the neighbouring block");
  ExpectSeen(Changed([](std::byte* block, const std::byte*) {
               uint8_t codes[32];
               for (size_t j = 0; j < 16; ++j) {
                 codes[2 * j] = std::to_integer<uint8_t>(block[4 + j] & std::byte{15});
                 codes[2 * j + 1] = std::to_integer<uint8_t>(block[4 + j] >> 4);
               }
               for (size_t j = 0; j < 16; ++j) {
                 block[4 + j] = static_cast<std::byte>(codes[j] | codes[j + 16] << 4);
               }
             }),
             "halves interleaved");
}

TEST_F(Fetched, MistakesInTheModelAreSeen) {
  ModelConfig config = checkpoint_->config();
  config.rope_interleave = false;
  ExpectSeen(Row(config, *checkpoint_), "RoPE of halves on permuted rows");
  config = checkpoint_->config();
  config.rms_norm_eps = 1e-6;
  ExpectSeen(Row(config, *checkpoint_), "eps 1e-6");
  config = checkpoint_->config();
  config.rope.theta = 1e4;
  ExpectSeen(Row(config, *checkpoint_), "theta 1e4");
}

TEST_F(Fetched, AnotherFileOfThatNameIsAFailureThatSaysSo) {
  const fs::path folder = fs::path(testing::TempDir()) / ("fetched" + std::to_string(getpid()));
  fs::create_directories(folder);
  const fs::path copy = folder / info_.gguf->file;
  fs::copy_file(path_, copy, fs::copy_options::overwrite_existing);
  fs::permissions(copy, fs::perms::owner_write, fs::perm_options::add);
  {
    std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  GoldenRow row = VerifyGolden("goldens", kGolden, folder.string())[0];
  EXPECT_EQ(row.verdict, GoldenVerdict::kFail);
  EXPECT_NE(row.reason.find("SHA-256"), std::string::npos) << row.reason;
  fs::resize_file(copy, 1000);
  row = VerifyGolden("goldens", kGolden, folder.string())[0];
  EXPECT_EQ(row.verdict, GoldenVerdict::kFail);
  EXPECT_NE(row.reason.find("1000 bytes"), std::string::npos) << row.reason;
  fs::remove_all(folder);
}

}  // namespace
}  // namespace assay::reference
