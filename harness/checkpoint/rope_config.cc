// rope_parameters (new) and rope_theta with rope_scaling (old).
#include <fmt/format.h>

#include <limits>
#include <tuple>

#include "harness/checkpoint/config_reader.h"

namespace assay {
namespace {

constexpr ConfigReader::Interval kTheta{1.0, 1e12};
constexpr ConfigReader::Interval kFactor{1.0, 1e6};
constexpr ConfigReader::Interval kPositive{std::numeric_limits<double>::min(), 1e6};
constexpr ConfigReader::Interval kScale{0.0, 1e6};
constexpr ConfigReader::Range kPositions{1, int64_t{1} << 40};

std::string ReadType(ConfigReader& reader) {
  const std::string type = reader.String("type", "");
  const std::string rope_type = reader.String("rope_type", "");
  if (!type.empty() && !rope_type.empty() && type != rope_type) {
    reader.Reject("rope_type",
                  fmt::format("'{}' says otherwise; they must agree", reader.FullKey("type")));
  }
  if (!rope_type.empty()) return rope_type;
  return type.empty() ? "default" : type;
}

RopeConfig ReadScaling(ConfigReader& reader, int64_t max_position) {
  RopeConfig rope;
  rope.type = ReadType(reader);
  if (rope.type == "linear" || rope.type == "yarn" || rope.type == "llama3") {
    rope.factor = reader.RequiredNumber("factor", kFactor);
  }
  if (rope.type == "yarn") {
    rope.original_max_position =
        reader.Count("original_max_position_embeddings", kPositions, max_position);
    if (rope.original_max_position == 0) {
      reader.Reject("original_max_position_embeddings",
                    "it or max_position_embeddings must be given");
    }
    rope.beta_fast = reader.Number("beta_fast", kPositive, rope.beta_fast);
    rope.beta_slow = reader.Number("beta_slow", kPositive, rope.beta_slow);
    if (rope.beta_fast < rope.beta_slow) {  // equal in Kimi-K2
      reader.Reject("beta_fast", fmt::format("it must not be below beta_slow, {}", rope.beta_slow));
    }
    rope.mscale = reader.OptionalNumber("mscale", kScale);
    rope.mscale_all_dim = reader.OptionalNumber("mscale_all_dim", kScale);
    rope.attention_factor = reader.OptionalNumber("attention_factor", kPositive);
    rope.truncate = reader.Bool("truncate", true);
  }
  if (rope.type == "llama3") {
    rope.original_max_position =
        reader.RequiredCount("original_max_position_embeddings", kPositions);
    rope.low_freq_factor = reader.RequiredNumber("low_freq_factor", kPositive);
    rope.high_freq_factor = reader.RequiredNumber("high_freq_factor", kPositive);
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      reader.Reject("high_freq_factor",
                    fmt::format("it must be above low_freq_factor, {}", rope.low_freq_factor));
    }
  }
  return rope;
}

bool SameScaling(const RopeConfig& a, const RopeConfig& b) {
  const auto key = [](const RopeConfig& r) {
    return std::tie(r.type, r.factor, r.original_max_position, r.beta_fast, r.beta_slow, r.mscale,
                    r.mscale_all_dim, r.attention_factor, r.truncate, r.low_freq_factor,
                    r.high_freq_factor);
  };
  return key(a) == key(b);
}

}  // namespace

RopeConfig ReadRope(ConfigReader& decoder, int64_t max_position) {
  RopeConfig rope;
  std::optional<ConfigReader> parameters = decoder.Object("rope_parameters");
  std::optional<ConfigReader> scaling = decoder.Object("rope_scaling");
  std::optional<double> new_theta;
  if (parameters && parameters->Has("main")) {
    // DeepSeek-V4 has two; rope_scaling, where it is there, is the other one.
    parameters = parameters->Object("main");
    scaling.reset();
  }
  if (parameters) {
    rope = ReadScaling(*parameters, max_position);
    new_theta = parameters->OptionalNumber("rope_theta", kTheta);
    decoder.Absorb(*parameters);
  }
  if (scaling) {
    const RopeConfig old = ReadScaling(*scaling, max_position);
    decoder.Absorb(*scaling);
    if (parameters && !SameScaling(old, rope)) {
      decoder.Reject("rope_scaling", "rope_parameters says otherwise; they must agree");
    }
    rope = old;
  }
  const std::optional<double> old_theta = decoder.OptionalNumber("rope_theta", kTheta);
  if (new_theta && old_theta && *new_theta != *old_theta) {
    decoder.Reject("rope_theta",
                   fmt::format("rope_parameters.rope_theta is {}; they must agree", *new_theta));
  }
  // The families that we know all have the same default in their library.
  rope.theta = new_theta ? *new_theta : old_theta.value_or(RopeConfig().theta);
  return rope;
}

}  // namespace assay
