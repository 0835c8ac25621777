#include "kernels/engines/native/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>

#include "kernels/engines/native/contract_types.h"
#include "kernels/loaders/engine_error.h"
#include "kernels/quantisers/quantisers.h"

namespace assay::kernels::native {
namespace {

// Reads the number of "L12." or "e5." at the front of `text` and cuts it off; −1 if there is none.
int64_t TakeIndex(std::string_view* text, char mark) {
  if (text->size() < 3 || text->front() != mark) return -1;
  int64_t value = -1;
  const char* last = text->data() + text->size();
  const auto [end, error] = std::from_chars(text->data() + 1, last, value);
  if (error != std::errc() || end == last || *end != '.' || value < 0) return -1;
  text->remove_prefix(static_cast<size_t>(end - text->data()) + 1);
  return value;
}

bool IsRowParallel(std::string_view path) {
  return path == "attn.partial" || path.ends_with(".down");
}

// Adds the bias of a segment's columns to every row of y [m, n].
void AddBias(Session& s, const Parameter& parameter, const Segment& segment, int64_t m, float* y) {
  if (parameter.floats.data() == nullptr || !parameter.adds_bias) return;
  const float* bias = parameter.floats.data() + segment.first_row;
  for (int64_t token = 0; token < m; ++token) {
    float* at = y + token * parameter.n + segment.first_row;
    s.dispatcher().elementwise().add(at, bias, segment.rows, at);
  }
}

// Whose way of quantising the engine has for an act of FP8 or FP4 under E8M0 scales: AITER's
// default. nullptr: the act is none of those.
const Quantiser* QuantiserOf(std::string_view act) {
  if (act == "amxfp8") return FindQuantiser("mxfp8-rceil-aiter");
  return act == "amxfp4" ? FindQuantiser("mxfp4-rceil-aiter") : nullptr;
}

// One input of linear ops: what enters a kernel, made once for each activation type.
class LinearInput {
 public:
  LinearInput(Session& s, const Matrix& x) : s_(s), x_(x), bits_(Bf16Of(s.memory(), x)) {}

  // What the kernel takes.
  Activations For(const LinearKernel& kernel) {
    if (kernel.act == "a16") return {.bf16 = bits_.data()};
    if (QuantiserOf(kernel.act) != nullptr) return Microscaled(kernel);
    const QuantisedRows& x = Quantised(kernel);
    return {.codes = x.codes.data(), .scales = x.scales.data(), .sums = x.sums.data()};
  }
  // nullptr: the kernel takes no codes, or such as no tap is defined for.
  const QuantisedRows* CodesFor(const LinearKernel& kernel) {
    const bool none = kernel.act == "a16" || QuantiserOf(kernel.act) != nullptr;
    return none ? nullptr : &Quantised(kernel);
  }

 private:
  struct Codes {
    Array<std::byte> codes, scales;
  };

  static Array<std::byte> CopyOf(Memory& memory, const std::vector<std::byte>& bytes) {
    Array<std::byte> copy(memory, static_cast<int64_t>(bytes.size()));
    if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
    return copy;
  }

  Activations Microscaled(const LinearKernel& kernel) {
    const auto [at, added] = microscaled_.try_emplace(std::string(kernel.act));
    Codes& made = at->second;
    if (added) {
      const auto* values = reinterpret_cast<const std::byte*>(bits_.data());
      const auto quantised =
          Quantise(*QuantiserOf(kernel.act), {DType::kBF16, x_.rows, x_.columns, values});
      if (!quantised.ok()) {
        throw EngineError(ASSAY_FAILED,
                          fmt::format("{}: {}", kernel.name, quantised.error().message));
      }
      made = {CopyOf(s_.memory(), quantised->codes), CopyOf(s_.memory(), quantised->scales)};
    }
    return {.e4m3 = reinterpret_cast<const uint8_t*>(made.codes.data()),
            .e2m1 = made.codes.data(),
            .e8m0 = reinterpret_cast<const uint8_t*>(made.scales.data())};
  }

  const QuantisedRows& Quantised(const LinearKernel& kernel) {
    if (kernel.act != "a8g32" && kernel.act != "a8row") {
      throw EngineError(ASSAY_UNSUPPORTED, fmt::format("{} takes {}, which nothing here makes",
                                                       kernel.name, kernel.act));
    }
    const auto [at, added] = quantised_.try_emplace(std::string(kernel.act));
    QuantisedRows& made = at->second;
    if (!added) return made;
    constexpr int64_t kStep = 32;
    if (x_.columns % kStep != 0) {
      throw EngineError(ASSAY_FAILED, fmt::format("{} columns, no whole number of {}s, for {}",
                                                  x_.columns, kStep, kernel.name));
    }
    made.rows = x_.rows;
    made.columns = x_.columns;
    made.group = kernel.act == "a8row" ? x_.columns : kStep;
    made.codes = Array<int8_t>(s_.memory(), x_.count());
    made.scales = Array<float>(s_.memory(), x_.count() / kStep);
    made.sums = Array<int32_t>(s_.memory(), x_.count() / kStep);
    s_.dispatcher().elementwise().quantise(bits_.data(), x_.rows, x_.columns, made.group,
                                           made.codes.data(), made.scales.data(), made.sums.data());
    return made;
  }
  Session& s_;
  const Matrix& x_;
  Array<uint16_t> bits_;
  std::map<std::string, QuantisedRows, std::less<>> quantised_;  // by act
  std::map<std::string, Codes, std::less<>> microscaled_;        // by act
};

// Taps [begin, end) of one parameter.
void RunMerged(Session& s, int rank, const std::vector<std::string>& taps,
               const RankParameters::Place& first, const std::vector<const Segment*>& segments,
               LinearInput* x, int64_t m, Matrices* out) {
  const Parameter& parameter = *first.parameter;
  const LinearKernel& kernel = *parameter.kernel;
  int64_t row_begin = parameter.n, row_end = 0;
  for (const Segment* segment : segments) {
    row_begin = std::min(row_begin, segment->first_row);
    row_end = std::max(row_end, segment->first_row + segment->rows);
  }
  Array<float> y(s.memory(), CheckedProduct(m, parameter.n));
  s.dispatcher().RunLinear(rank, taps, parameter, x->For(kernel), m, row_begin, row_end, y.data());
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = *segments[i];
    if (const QuantisedRows* codes = x->CodesFor(kernel)) s.EmitCodes(taps[i], rank, *codes);
    AddBias(s, parameter, segment, m, y.data());
    Matrix value(s.memory(), m, segment.rows, LinearTypeOf(taps[i]));
    for (int64_t token = 0; token < m; ++token) {
      if (segment.rows == 0) break;
      std::memcpy(value.row(token), y.data() + token * parameter.n + segment.first_row,
                  static_cast<size_t>(segment.rows) * sizeof(float));
    }
    out->push_back(s.Finish(taps[i], rank, std::move(value)));
  }
}

}  // namespace

TapName ParseTap(std::string_view tap) {
  TapName name;
  name.layer = TakeIndex(&tap, 'L');
  constexpr std::string_view kMoe = "moe.";
  if (tap.starts_with(kMoe)) {
    std::string_view rest = tap.substr(kMoe.size());
    name.expert = TakeIndex(&rest, 'e');
    name.path = fmt::format("moe.{}", rest);
  } else {
    name.path = std::string(tap);
  }
  return name;
}

std::string LayerTap(int64_t layer, std::string_view rest) {
  return fmt::format("L{}.{}", layer, rest);
}

std::string ParameterOf(std::string_view tap) {
  constexpr std::string_view kPartial = "attn.partial";
  if (!tap.ends_with(kPartial)) return std::string(tap);
  return std::string(tap.substr(0, tap.size() - kPartial.size())) + "attn.out";
}

DType LinearTypeOf(std::string_view tap) {
  const std::string path = ParseTap(tap).path;
  if (path == "moe.down") return kExpertDownType;
  if (path == "logits") return kLogitsType;
  if (path == "router.logits") return kRouterType;
  return IsRowParallel(path) ? kPartialType : kLinearType;
}

Matrices LinearOps(Session& s, int rank, const std::vector<std::string>& taps, const Matrix& x) {
  const RankParameters& parameters = s.rank(rank).parameters;
  LinearInput input(s, x);
  Matrices out;
  for (size_t begin = 0; begin < taps.size();) {
    const RankParameters::Place first = parameters.Get(ParameterOf(taps[begin]));
    if (first.parameter->kernel == nullptr) {
      throw EngineError(ASSAY_UNSUPPORTED, fmt::format("{}: nothing of tier {} runs it ({})",
                                                       taps[begin], NameOf(s.dispatcher().tier()),
                                                       first.parameter->choice.Print()));
    }
    if (first.parameter->k != x.columns) {
      throw EngineError(ASSAY_FAILED, fmt::format("{}: input has {} columns, the weight takes {}",
                                                  taps[begin], x.columns, first.parameter->k));
    }
    std::vector<std::string> merged;
    std::vector<const Segment*> segments;
    size_t end = begin;
    for (; end < taps.size(); ++end) {
      const RankParameters::Place place = parameters.Get(ParameterOf(taps[end]));
      if (place.parameter != first.parameter) break;
      merged.push_back(taps[end]);
      segments.push_back(place.segment);
    }
    RunMerged(s, rank, merged, first, segments, &input, x.rows, &out);
    begin = end;
  }
  return out;
}

Matrix LinearOp(Session& s, int rank, const std::string& tap, const Matrix& x) {
  return std::move(LinearOps(s, rank, {tap}, x).front());
}

Matrix NormOp(Session& s, int rank, const std::string& tap, const Matrix& x) {
  const Parameter& parameter = *s.rank(rank).parameters.Get(tap).parameter;
  if (parameter.parts.count("bias") > 0) {
    throw EngineError(ASSAY_UNSUPPORTED, fmt::format("{}: a norm with a shift is not run", tap));
  }
  const int64_t n = parameter.n;
  if (n == 0 || x.columns % n != 0) {
    throw EngineError(ASSAY_FAILED,
                      fmt::format("{}: input has {} columns, the weight {}", tap, x.columns, n));
  }
  Matrix y(s.memory(), x.rows, x.columns, kNormType);
  s.dispatcher().elementwise().rms_norm(x.data(), parameter.floats.data(),
                                        static_cast<float>(s.config().rms_norm_eps),
                                        x.rows * (x.columns / n), n, y.data());
  s.dispatcher().RecordElementwise(tap, rank, "rms_norm");
  return s.Finish(tap, rank, std::move(y));
}

Matrix RopeOp(Session& s, int rank, const std::string& tap, const Matrix& x, RopeShape shape,
              int64_t first_position) {
  const int64_t dim = s.rope().dim();
  if (x.columns != shape.heads * shape.head_stride || shape.offset + dim > shape.head_stride) {
    throw EngineError(ASSAY_FAILED, fmt::format("{}: input has {} columns, {} heads of {}", tap,
                                                x.columns, shape.heads, shape.head_stride));
  }
  Matrix y = Copy(s.memory(), x);
  y.type = kRopeType;
  for (int64_t i = 0; i < x.rows; ++i) {
    const int64_t position = first_position + i;
    // Sin first: a table that grows moves.
    const float* sin = s.rope().Sin(position);
    const float* cos = s.rope().Cos(position);
    s.dispatcher().elementwise().rope(y.row(i) + shape.offset, shape.heads, shape.head_stride, dim,
                                      cos, sin, s.config().rope_interleave);
  }
  s.dispatcher().RecordElementwise(tap, rank, "rope");
  return s.Finish(tap, rank, std::move(y));
}

Matrix ActOp(Session& s, int rank, const std::string& tap, const Matrix& gate, const Matrix& up) {
  if (gate.rows != up.rows || gate.columns != up.columns) {
    throw EngineError(ASSAY_FAILED, fmt::format("{}: gate is [{}, {}], up [{}, {}]", tap, gate.rows,
                                                gate.columns, up.rows, up.columns));
  }
  Matrix y(s.memory(), gate.rows, gate.columns, kActType);
  ActCall call{tap, rank, s.act_limit()};
  if (s.hooks() != nullptr) s.hooks()->BeforeAct(call);
  const ElementwiseKernels& kernels = s.dispatcher().elementwise();
  if (const std::optional<SituBetas> betas = s.situ()) {
    kernels.situ(gate.data(), up.data(), betas->beta, betas->linear_beta, call.limit, gate.count(),
                 y.data());
    s.dispatcher().RecordElementwise(tap, rank, "situ");
  } else {
    kernels.swiglu(gate.data(), up.data(), call.limit, gate.count(), y.data());
    s.dispatcher().RecordElementwise(tap, rank, "swiglu");
  }
  return s.Finish(tap, rank, std::move(y));
}

Matrix AddOp(Session& s, int rank, const std::string& tap, const Matrix& a, const Matrix& b) {
  if (a.rows != b.rows || a.columns != b.columns) {
    throw EngineError(ASSAY_FAILED, fmt::format("{}: [{}, {}] plus [{}, {}]", tap, a.rows,
                                                a.columns, b.rows, b.columns));
  }
  Matrix y(s.memory(), a.rows, a.columns, kResidualType);
  s.dispatcher().elementwise().add(a.data(), b.data(), a.count(), y.data());
  s.dispatcher().RecordElementwise(tap, rank, "add");
  return s.Finish(tap, rank, std::move(y));
}

Matrix ColumnsOf(Memory& memory, const Matrix& x, int64_t begin, int64_t count) {
  if (begin < 0 || count < 0 || begin + count > x.columns) {
    throw EngineError(ASSAY_FAILED,
                      fmt::format("columns [{}, +{}) of {}", begin, count, x.columns));
  }
  Matrix y(memory, x.rows, count, x.type);
  for (int64_t i = 0; i < x.rows && count > 0; ++i) {
    std::memcpy(y.row(i), x.row(i) + begin, static_cast<size_t>(count) * sizeof(float));
  }
  return y;
}

Matrix RowsOf(Memory& memory, const Matrix& x, const std::vector<int64_t>& rows) {
  Matrix y(memory, static_cast<int64_t>(rows.size()), x.columns, x.type);
  for (int64_t i = 0; i < y.rows && x.columns > 0; ++i) {
    std::memcpy(y.row(i), x.row(rows[static_cast<size_t>(i)]),
                static_cast<size_t>(x.columns) * sizeof(float));
  }
  return y;
}

}  // namespace assay::kernels::native
