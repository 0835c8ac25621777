// SiTU through the engine: where its betas come from, and that nobody assumes one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/engines/native/native.h"
#include "kernels/engines/native/settings.h"
#include "kernels/engines/native/test_driver.h"
#include "kernels/engines/native/values.h"
#include "kernels/registry.h"

namespace assay::kernels::native {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kWidth = 160;

class Situ : public ::testing::Test {
 protected:
  int Open(const std::string& options) {
    const auto checkpoint = OpenCheckpoint("goldens/checkpoints/k2-mini");
    driver_ = std::make_unique<Driver>(NativeEngine());
    Wishes wishes;
    wishes.options = options;
    return driver_->Open(checkpoint->config_json(), wishes);
  }

  // The activation of gates to ±10 and ups to ±40, in bf16.
  std::vector<float> Act(const std::string& options) {
    EXPECT_EQ(Open(options), ASSAY_OK) << driver_->error().message;
    std::vector<float> out;
    EXPECT_EQ(driver_->Op(0, "L0.mlp.act", {Gate(), Up()}, {1, kWidth}, &out), ASSAY_OK)
        << driver_->error().message;
    return out;
  }

  static In Gate() {
    In in{"L0.mlp.gate", {1, kWidth}, {}, {}, -1};
    for (int i = 0; i < kWidth; ++i) in.values.push_back(static_cast<float>(i - 80) / 8);
    return in;
  }
  static In Up() {
    In in{"L0.mlp.up", {1, kWidth}, {}, {}, -1};
    for (int i = 0; i < kWidth; ++i)
      in.values.push_back(static_cast<float>(37 * i % kWidth - 80) / 2);
    return in;
  }
  // As the kernel gives it, rounded as the contract says.
  static std::vector<float> Want(float beta, float linear_beta, float limit) {
    std::vector<float> y(kWidth);
    Elementwise(Tier::kScalar)
        ->situ(Gate().values.data(), Up().values.data(), beta, linear_beta, limit, kWidth,
               y.data());
    for (float& value : y) value = FromBf16(ToBf16(value));
    return y;
  }

  std::unique_ptr<Driver> driver_;
};

TEST_F(Situ, OptionsMakeItTheActivation) {
  const auto second = Act("beta=4 linear_beta=25");
  EXPECT_EQ(second, Want(4, 25, kInf));
  EXPECT_EQ((driver_->ran[{"L0.mlp.act", 0}].kernel), "situ_scalar");
  EXPECT_EQ(Act("beta=4"), Want(4, kInf, kInf));
  EXPECT_EQ(Act("beta=4 linear_beta=inf"), Want(4, kInf, kInf));
  EXPECT_EQ(Act("limit=3 beta=4 linear_beta=25"), Want(4, 25, 3));
  // Control: all of these are other functions.
  const auto silu = Act("");
  EXPECT_EQ((driver_->ran[{"L0.mlp.act", 0}].kernel), "swiglu_scalar");
  EXPECT_NE(silu, second);
  EXPECT_NE(Want(4, kInf, kInf), second);
  EXPECT_NE(Want(5, 25, kInf), second);
  EXPECT_NE(Want(4, 25, 3), second);
}

std::optional<SituBetas> BetasOf(const char* model, const char* options) {
  const auto checkpoint = OpenCheckpoint(std::string("goldens/checkpoints/") + model);
  assay_open request{};
  request.size = sizeof request;
  request.tp = request.threads = 1;
  request.config_json = checkpoint->config_json().c_str();
  request.options = options;
  return ReadSettings(request, nullptr).situ;
}

// Kimi-K3 is loaded here and not run, but its betas are known; what the options say is stronger.
TEST_F(Situ, ItsBetasAreTheConfigs) {
  const auto own = BetasOf("k3-mini", "");
  ASSERT_TRUE(own);
  EXPECT_EQ(own->beta, 4);
  EXPECT_EQ(own->linear_beta, 25);
  EXPECT_EQ(BetasOf("k3-mini", "beta=2")->beta, 2);
  EXPECT_EQ(BetasOf("k3-mini", "beta=2")->linear_beta, 25);
  EXPECT_EQ(BetasOf("k3-mini", "linear_beta=inf")->linear_beta, kInf);
  EXPECT_FALSE(BetasOf("k2-mini", "limit=7"));
}

TEST_F(Situ, NobodyAssumesABeta) {
  EXPECT_EQ(Open("linear_beta=25"), ASSAY_REFUSED);
  EXPECT_NE(std::string(driver_->error().message).find("no default"), std::string::npos);
  for (const char* bad :
       {"beta=0", "beta=-4", "beta=inf", "beta=nan", "beta=", "beta=4x", "beta=4 linear_beta=0"}) {
    EXPECT_EQ(Open(bad), ASSAY_REFUSED) << bad;
    EXPECT_NE(std::string(driver_->error().message).find("beta is '"), std::string::npos) << bad;
  }
}

}  // namespace
}  // namespace assay::kernels::native
