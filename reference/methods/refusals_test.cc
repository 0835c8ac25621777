// What is refused and what the config decides: scales that are no numbers, tensors that contradict
// each other or the config, and shapes that several strategies have.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "reference/methods/made.h"

namespace assay::reference {
namespace {

using testing_support::AllRows;
using testing_support::ConfigOf;
using testing_support::Differing;
using testing_support::ErrorOf;
using testing_support::Made;
using testing_support::MadeIds;
using testing_support::MakeLayer;
using testing_support::MustOpen;
using testing_support::Parts;

std::unique_ptr<Decoder> Open(const Made& made) {
  return MustOpen(made.parts, made.config, made.rows, made.columns);
}
Error ErrorOf(const Made& made) {
  return testing_support::ErrorOf(made.parts, made.config, made.rows, made.columns);
}

// Bytes of one value that is no scale, by type.
std::vector<std::vector<uint8_t>> NoNumbers(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {{0, 0, 0xc0, 0x7f}, {0, 0, 0x80, 0xff}};
    case DType::kF8E4M3:
      return {{0x7f}, {0xff}};
    case DType::kU8:
    case DType::kF8E8M0:
      return {{255}};
    default:
      ADD_FAILURE() << NameOf(dtype);
      return {};
  }
}

TEST(Refusals, ScalesOfEveryMethodMustBeNumbers) {
  int refused = 0;
  for (const std::string& id : MadeIds()) {
    for (const char* suffix :
         {"weight_scale", "weight_scale_inv", "scale", "scales", "weight_global_scale",
          "weight_scale_2", "weight_scale_second", "weight_offset", "weight_offset_second"}) {
      const Made made = MakeLayer(id);
      if (made.parts.Find(suffix) == nullptr) continue;
      const auto good = Open(made);
      ASSERT_TRUE(good->CheckValues().ok()) << id;
      for (const std::vector<uint8_t>& bad : NoNumbers(made.parts.Find(suffix)->dtype)) {
        Made changed = MakeLayer(id);
        std::vector<std::byte>& bytes = changed.parts.Own(suffix);
        std::memcpy(bytes.data() + bytes.size() - bad.size(), bad.data(), bad.size());
        const Status status = Open(changed)->CheckValues();
        ASSERT_FALSE(status.ok()) << id << " " << suffix;
        EXPECT_EQ(status.error().kind, ErrorKind::kRefused);
        EXPECT_NE(status.error().message.find(suffix), std::string::npos) << status.error().message;
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 2 * 40);
}

TEST(Refusals, ARefusalSaysWhere) {
  Made made = MakeLayer("ct-int4-g32");  // 10 groups a row
  std::vector<std::byte>& bytes = made.parts.Own("weight_scale");
  const float nan = std::nanf("");
  std::memcpy(bytes.data() + 4 * (7 * 10 + 3), &nan, 4);
  const Status status = Open(made)->CheckValues();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("row 7, group 3"), std::string::npos)
      << status.error().message;
}

TEST(Refusals, NothingIsDividedByZero) {
  Made made = MakeLayer("ct-nvfp4");
  made.parts.Put("weight_global_scale", DType::kF32, {1}, std::vector<float>{0});
  EXPECT_FALSE(Open(made)->CheckValues().ok());
  made = MakeLayer("modelopt-nvfp4");  // which multiplies
  made.parts.Put("weight_scale_2", DType::kF32, {}, std::vector<float>{0});
  EXPECT_TRUE(Open(made)->CheckValues().ok());
}

// A code that is NaN is data, like any other.
TEST(Refusals, NanCodesOfFp8AreWeights) {
  for (const auto& [id, code] : {std::pair("ct-fp8-channel", 0xff),
                                 {"deepseek-fp8-block128", 0x7f},
                                 {"ct-fp8-channel-fnuz", 0x80},
                                 {"ct-mxfp8", 0x7f}}) {
    Made made = MakeLayer(id);
    made.parts.Own("weight")[5] = static_cast<std::byte>(code);
    const auto decoder = Open(made);
    EXPECT_TRUE(decoder->CheckValues().ok()) << id;
    EXPECT_TRUE(std::isnan(AllRows(*decoder)[5])) << id;
  }
  // 0x7F of the fnuz kind is a number.
  Made made = MakeLayer("ct-fp8-channel-fnuz");
  made.parts.Own("weight")[5] = std::byte{0x7f};
  EXPECT_FALSE(std::isnan(AllRows(*Open(made))[5]));
}

TEST(Refusals, GroupNumbersAreOfGroupsThatAreThere) {
  for (const char* id : {"gptq-int4-g32-actorder", "ct-int4-g32-actorder-group"}) {
    const char* suffix = id[0] == 'g' ? "g_idx" : "weight_g_idx";
    for (const int32_t number : {-1, 10, 1 << 30}) {
      Made made = MakeLayer(id);
      std::memcpy(made.parts.Own(suffix).data() + 4 * 17, &number, 4);
      const std::string message = ErrorOf(made).message;
      EXPECT_NE(message.find("element 17 is of group"), std::string::npos) << message;
    }
    Made made = MakeLayer(id);
    made.parts.Remove(suffix);
    EXPECT_NE(ErrorOf(made).message.find("without"), std::string::npos) << id;
    made = MakeLayer(id);
    made.parts.At(suffix).shape = {1, made.columns};
    EXPECT_NE(ErrorOf(made).message.find("must be I32"), std::string::npos) << id;
  }
}

TEST(Config, GptqsGroupsMayBeUnpermutedOrNumbered) {
  // desc_act false, but g_idx permutes: the file decides.
  Made made = MakeLayer("gptq-int4-g32-actorder");
  made.config.desc_act = false;
  EXPECT_EQ(Open(made)->method(), "gptq-int4-g32-actorder");
  // desc_act true and nothing permuted: ranks keep all groups all the same.
  made = MakeLayer("gptq-int4-g32");
  made.config.desc_act = true;
  EXPECT_EQ(Open(made)->method(), "gptq-int4-g32-actorder");
  EXPECT_EQ(Differing(AllRows(*Open(made)), made.expected), 0);
  // One group cannot be permuted.
  made = MakeLayer("gptq-int4-channel");
  made.config.desc_act = true;
  EXPECT_EQ(Open(made)->method(), "gptq-int4-channel");
  made = MakeLayer("gptq-int4-g32");
  made.parts.Remove("g_idx");
  EXPECT_EQ(Open(made)->method(), "gptq-int4-g32");
  EXPECT_EQ(Open(made)->parts().size(), 3u);
}

TEST(Config, OnlyActorderGroupPermutes) {
  Made made = MakeLayer("ct-int4-g32-actorder-group");
  for (const char* order : {"", "weight", "static"}) {
    made.config.actorder = order;
    EXPECT_NE(ErrorOf(made).message.find("permutes"), std::string::npos) << order;
  }
  // Numbers that count up change nothing, nor do those that older libraries leave at −1.
  for (const bool unused : {false, true}) {
    for (const char* order : {"weight", "group"}) {
      made = MakeLayer("ct-int4-g32");
      std::vector<int32_t> index;
      for (int32_t k = 0; k < made.columns; ++k) index.push_back(unused ? -1 : k / 32);
      made.parts.Put("weight_g_idx", DType::kI32, {made.columns}, index);
      made.config.actorder = order;
      const bool ordered = !unused && made.config.actorder == "group";
      EXPECT_EQ(Open(made)->method(), ordered ? "ct-int4-g32-actorder-group" : "ct-int4-g32");
      EXPECT_EQ(Differing(AllRows(*Open(made)), made.expected), 0);
    }
  }
}

TEST(Config, ZeroPointsMustBeWhereTheConfigSaysSo) {
  for (const char* id : {"ct-int4-g32", "ct-w8a8-channel"}) {
    Made made = MakeLayer(id);
    made.config.symmetric = false;
    EXPECT_NE(ErrorOf(made).message.find("there is no weight_zero_point"), std::string::npos);
    made = MakeLayer(std::string(id) + "-asym");
    made.config.symmetric = true;
    EXPECT_NE(ErrorOf(made).message.find("says symmetric"), std::string::npos);
  }
  Made made = MakeLayer("awq-int4-g32");
  made.parts.Remove("qzeros");
  EXPECT_EQ(Differing(AllRows(*Open(made)), made.expected), 0);
  made.config.symmetric = false;
  EXPECT_NE(ErrorOf(made).message.find("qzeros"), std::string::npos);
}

// [1] with one row is a tensor's scale and a channel's, and a block's: the shape cannot tell.
TEST(Config, DecidesWhereTheShapeCannot) {
  Parts parts;
  parts.Put("weight", DType::kF8E4M3, {1, 4}, std::vector<uint8_t>{0x38, 0x40, 0x38, 0x30});
  parts.Put("weight_scale", DType::kF32, {1, 1}, std::vector<float>{2});
  for (const char* id : {"ct-fp8-tensor", "ct-fp8-channel", "ct-fp8-block128"}) {
    const auto decoder = MustOpen(parts, ConfigOf(id), 1, 4);
    EXPECT_EQ(decoder->method(), id);
    EXPECT_EQ(AllRows(*decoder), (std::vector<double>{2, 4, 2, 1}));
    EXPECT_EQ(decoder->parts()[1].replicated, std::string(id) == "ct-fp8-tensor");
  }
  // Two rows leave one choice, and the config must be of that opinion; where it says nothing the
  // shape is enough.
  parts.Put("weight", DType::kF8E4M3, {2, 2}, std::vector<uint8_t>{0x38, 0x40, 0x38, 0x30});
  parts.Put("weight_scale", DType::kF32, {2}, std::vector<float>{2, 4});
  EXPECT_EQ(MustOpen(parts, ConfigOf("ct-fp8-channel"), 2, 2)->method(), "ct-fp8-channel");
  for (const char* id : {"ct-fp8-tensor", "ct-fp8-block128"}) {
    const Error error = testing_support::ErrorOf(parts, ConfigOf(id), 2, 2);
    EXPECT_NE(error.message.find("no scale of strategy"), std::string::npos) << error.message;
  }
  QuantConfig fp8;
  fp8.method = "fp8";
  fp8.strategy = "tensor";
  EXPECT_EQ(MustOpen(parts, fp8, 2, 2)->method(), "ct-fp8-channel");
  // One group of a row: a group's, a channel's or one group's whatever its size.
  Made made = MakeLayer("ct-int4-one-group");
  for (const std::string id : {"ct-int4-one-group", "ct-int4-channel", "ct-int4-g320"}) {
    made.config = ConfigOf(id);
    EXPECT_EQ(Open(made)->method(), id);
    EXPECT_EQ(Open(made)->parts()[1].whole_row, id == "ct-int4-channel");
  }
}

// DeepSeek-V4's FP8 layers have the block's scale as a power of two, under `scale`.
TEST(Config, DeepseekV4sBlockScalesArePowersOfTwo) {
  Made powers = MakeLayer("deepseek-fp8-block128"), floats = MakeLayer("deepseek-fp8-block128");
  std::vector<uint8_t> exponents;
  std::vector<float> scales;
  for (int i = 0; i < 2 * 3; ++i) {
    exponents.push_back(static_cast<uint8_t>(120 + i));
    scales.push_back(std::ldexp(1.0f, i - 7));
  }
  powers.parts.Remove("weight_scale_inv");
  powers.parts.Put("scale", DType::kF8E8M0, {2, 3}, exponents);
  floats.parts.Put("weight_scale_inv", DType::kF32, {2, 3}, scales);
  EXPECT_EQ(Open(powers)->method(), "deepseek-fp8-block128");
  EXPECT_EQ(Open(powers)->parts()[1].file_suffix, "scale");
  EXPECT_EQ(Differing(AllRows(*Open(powers)), AllRows(*Open(floats))), 0);
  scales[5] *= 2;
  floats.parts.Put("weight_scale_inv", DType::kF32, {2, 3}, scales);
  EXPECT_GT(Differing(AllRows(*Open(powers)), AllRows(*Open(floats))), 0);
  powers.parts.Own("scale")[4] = std::byte{255};
  EXPECT_FALSE(Open(powers)->CheckValues().ok());
}

TEST(Refusals, TensorsOfTwoMethodsAreNotGuessedBetween) {
  Made made = MakeLayer("ct-int4-g32");
  made.parts.Put("qweight", DType::kI32, {1}, std::vector<int32_t>{0});
  EXPECT_NE(ErrorOf(made).message.find("two methods"), std::string::npos);
  made = MakeLayer("ct-fp8-channel");
  made.parts.Put("weight_scale_inv", DType::kF32, {1}, std::vector<float>{1});
  EXPECT_NE(ErrorOf(made).message.find("both"), std::string::npos);
  made = MakeLayer("awq-int4-g32");
  made.config.method = "gptq";
  EXPECT_NE(ErrorOf(made).message.find("AWQ's"), std::string::npos);
  made = MakeLayer("gptq-int4-g32");
  made.config.method = "awq";
  EXPECT_NE(ErrorOf(made).message.find("GPTQ's"), std::string::npos);
}

// Every tensor that a method needs: without it, or with another type or one more row, an error
// that names a tensor or the layer.
TEST(Refusals, TensorsThatAreMissingOrOfOtherShapes) {
  const std::set<std::string> optional = {
      "weight_shape", "input_scale", "input_offset",  "input_global_scale",  "deq_scale",
      "quant_bias",   "scale_bias",  "weight_offset", "weight_offset_second"};
  for (const std::string& id : MadeIds()) {
    const Made original = MakeLayer(id);
    const auto whole = Open(original);
    for (const StoredPart& part : whole->parts()) {
      Made made = MakeLayer(id);
      made.parts.At(part.file_suffix).dtype = DType::kBool;
      EXPECT_NE(ErrorOf(made).message, "no error") << id << " " << part.file_suffix;
      made = MakeLayer(id);
      std::vector<int64_t>& shape = made.parts.At(part.file_suffix).shape;
      if (shape.empty())
        shape = {2};
      else
        shape[0] += 1;
      EXPECT_NE(ErrorOf(made).message, "no error") << id << " " << part.file_suffix;
      if (optional.contains(part.file_suffix) || part.file_suffix == "g_idx" ||
          part.file_suffix == "qzeros" || part.file_suffix == "weight_scale_second") {
        continue;
      }
      if (id == "modelslim-w8a8" && part.suffix == "scale") continue;  // deq_scale says it too
      made = MakeLayer(id);
      made.parts.Remove(part.file_suffix);
      EXPECT_NE(ErrorOf(made).message, "no error") << id << " " << part.file_suffix;
    }
  }
}

TEST(Refusals, PackingsThatAWidthDoesNotTell) {
  // Eleven columns of three bits: two words in both packings, and not the same two.
  Parts parts;
  parts.Put("weight_packed", DType::kI32, {1, 2}, std::vector<uint32_t>{0x12345678, 1});
  parts.Put("weight_scale", DType::kF32, {1, 1}, std::vector<float>{1});
  EXPECT_EQ(testing_support::ErrorOf(parts, ConfigOf("ct-int3-channel"), 1, 11).kind,
            ErrorKind::kUnsupported);
  // A shard's whole has told.
  const Made old = MakeLayer("ct-old-int3-g32");
  Made channel = MakeLayer("ct-int3-g32");
  channel.config = ConfigOf("ct-int3-channel");
  std::vector<float> scales(static_cast<size_t>(channel.rows), 1);
  channel.parts.Put("weight_scale", DType::kF32, {channel.rows, 1}, scales);
  const auto whole = Open(channel);
  parts.At("weight_packed").shape = {1, 2};
  const auto shard = MustOpen(parts, channel.config, 1, 11, whole.get());
  EXPECT_EQ(shard->method(), "ct-int3-channel");
  // Ten fit the first word in both.
  parts.Put("weight_packed", DType::kI32, {1, 1}, std::vector<uint32_t>{0x12345678});
  EXPECT_EQ(MustOpen(parts, ConfigOf("ct-int3-channel"), 1, 10)->method(), "ct-int3-channel");
  // A width of neither names both.
  parts.Put("weight_packed", DType::kI32, {1, 5}, std::vector<uint32_t>(5));
  const std::string message =
      testing_support::ErrorOf(parts, ConfigOf("ct-int3-channel"), 1, 32).message;
  EXPECT_NE(message.find("[1, 3]"), std::string::npos) << message;
  EXPECT_NE(message.find("[1, 4]"), std::string::npos) << message;
}

TEST(Refusals, BitsAndSchemesThatNobodyWrites) {
  Made made = MakeLayer("gptq-int4-g32");
  made.config.bits = 3;
  EXPECT_EQ(ErrorOf(made).kind, ErrorKind::kUnsupported);
  made = MakeLayer("awq-int4-g32");
  made.config.bits = 8;
  EXPECT_EQ(ErrorOf(made).kind, ErrorKind::kUnsupported);
  made = MakeLayer("awq-int4-g32");
  made.config.group_size = 0;
  EXPECT_EQ(ErrorOf(made).kind, ErrorKind::kUnsupported);
  made = MakeLayer("ct-w8a8-channel");
  made.config.bits = 4;
  EXPECT_EQ(ErrorOf(made).kind, ErrorKind::kUnsupported);
  made = MakeLayer("deepseek-fp8-block128");
  made.config.block_n = made.config.block_k = 0;
  EXPECT_NE(ErrorOf(made).message.find("weight_block_size"), std::string::npos);
  made = MakeLayer("ct-int4-g32");
  made.config.method = "";  // the config ignores this module
  EXPECT_EQ(ErrorOf(made).kind, ErrorKind::kUnsupported);
}

TEST(ModelSlim, TheDescriptionMustNotSayOtherwise) {
  Made made = MakeLayer("modelslim-w8a8");
  made.config.description = {{"layer.weight", "W8A8"}};
  EXPECT_EQ(Open(made)->method(), "modelslim-w8a8");
  made.config.description = {{"layer.weight", "W8A8_DYNAMIC"}};
  EXPECT_EQ(Open(made)->method(), "modelslim-w8a8");
  for (const char* other : {"FLOAT", "W4A8_DYNAMIC"}) {
    made.config.description = {{"layer.weight", other}};
    EXPECT_NE(ErrorOf(made).message.find(other), std::string::npos);
  }
  made = MakeLayer("modelslim-w4a8");
  made.config.description = {{"layer.weight", "W8A8_DYNAMIC"}};
  EXPECT_NE(ErrorOf(made).message.find("W8A8_DYNAMIC"), std::string::npos);
  // Dense in a quantised model: what is in the file decides, never the model's flag.
  Parts dense;
  dense.Put("weight", DType::kF32, {1, 2}, std::vector<float>{1, 2});
  made.config.description = {{"layer.weight", "FLOAT"}};
  EXPECT_EQ(MustOpen(dense, made.config, 1, 2)->method(), "f32");
}

// One int8 a value with one scale a row is compressed-tensors' or ModelSlim's: the offset tells, or
// the config.
TEST(ModelSlim, IsToldFromCompressedTensors) {
  Made made = MakeLayer("ct-w8a8-channel");
  EXPECT_EQ(Open(made)->method(), "ct-w8a8-channel");
  made.config = ConfigOf("modelslim-w8a8");
  EXPECT_EQ(Open(made)->method(), "modelslim-w8a8");
  EXPECT_EQ(Differing(AllRows(*Open(made)), made.expected), 0);
}

TEST(ModelSlim, TheScaleMayHaveToBeWorkedOut) {
  for (const bool bits : {false, true}) {
    Made made = MakeLayer("modelslim-w8a8");  // input_scale is ½, deq_scale weight_scale
    made.parts.Remove("weight_scale");
    made.parts.Remove("weight_offset");
    if (bits) {
      std::vector<int64_t> wide;
      for (int64_t n = 0; n < made.rows; ++n) {
        uint32_t narrow;
        std::memcpy(&narrow, made.parts.At("deq_scale").bytes.data() + 4 * n, 4);
        wide.push_back(narrow);
      }
      made.parts.Put("deq_scale", DType::kI64, {made.rows}, wide);
    }
    const auto decoder = Open(made);
    EXPECT_EQ(decoder->method(), "modelslim-w8a8");
    EXPECT_TRUE(decoder->CheckValues().ok());
    const TensorView& weight = made.parts.At("weight");
    float scale = 0;
    std::memcpy(&scale, made.parts.At("deq_scale").bytes.data(), 4);
    EXPECT_EQ(AllRows(*decoder)[3], static_cast<int8_t>(weight.bytes[3]) * (scale / 0.5));
    made.parts.Put("input_scale", DType::kF32, {1}, std::vector<float>{0});
    EXPECT_EQ(Open(made)->CheckValues().error().kind, ErrorKind::kRefused);
    made.parts.Remove("input_scale");
    EXPECT_NE(ErrorOf(made).message.find("weight_scale"), std::string::npos);
  }
}

}  // namespace
}  // namespace assay::reference
