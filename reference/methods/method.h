// How a logical weight is stored, read by the oracle. A method is one decoder and one row of the
// table in methods.cc. A decoder gives rows in double, exactly as formats.md defines the values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/tensor_source.h"
#include "harness/units/scheme.h"
#include "harness/units/status.h"

namespace assay::reference {

// Along which axis of the logical weight [rows, columns] an axis of a stored tensor lies.
enum class Along { kRows, kColumns, kNone };

// One stored tensor of a parameter as a grid, and what its rows and columns stand for. Most lie as
// the weight does; GPTQ's and AWQ's lie transposed, and a block's scale stands for several rows.
// An axis along kNone is whole on every rank, however many values it has: a channel's one scale,
// the groups of scales and zeros under act-order, whose g_idx has the numbers of the whole tensor.
struct StoredPart {
  std::string suffix;       // Assay's: "weight", "scale", "zero", "g_idx", "global_scale" ...
  std::string file_suffix;  // as the checkpoint spells it: "weight_packed"
  const TensorView* view = nullptr;
  std::string unit;  // of a column: "element", "word", "group", "block"
  int64_t elements_per_column = 1;
  bool whole_row = false;  // one value for the whole row, whichever columns a rank has
  Along row_along = Along::kRows, column_along = Along::kColumns;
  std::string row_unit = "element";
  int64_t elements_per_row = 1;
  // One value for the whole tensor: every rank has it.
  bool replicated = false;
  // Where values straddle words a unit is several stored values: `elements_per_column` elements lie
  // in `columns_per_unit` of them (32 of 3 bits in 3 words). The last unit may be a part of one.
  int64_t columns_per_unit = 1, rows_per_unit = 1;
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Logical extents.
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  // Decodes row n (0 <= n < rows) into columns() doubles.
  virtual void Row(int64_t n, double* out) const = 0;
  // Methods whose weights are d·q + m with m stored: the row's m, which a kernel adds as a term of
  // its own; false where there is none. d·q is w − m, exactly: both lie on one grid that a double
  // holds.
  virtual bool Minima(int64_t n, double* out) const {
    static_cast<void>(n), static_cast<void>(out);
    return false;
  }
  // Reads whatever stored value makes the tensor unusable, a NaN scale. Error kRefused: names the
  // tensor, row and group.
  virtual Status CheckValues() const { return Ok(); }
  // Whether values are codes times scales: a contract may round them before the product.
  virtual bool quantised() const { return false; }
  // The tensors behind it, weight first, in the order of components.
  const std::vector<StoredPart>& parts() const { return parts_; }
  // The id of the method (harness/units/scheme.h): "ct-int4-g32-asym".
  const std::string& method() const { return method_; }

 protected:
  int64_t rows_ = 0, columns_ = 0;
  std::string method_;
  std::vector<StoredPart> parts_;
};

// Where the tensors of one parameter are: `find` maps a suffix as the checkpoint spells it
// ("weight", "weight_packed", "weight_scale" ...) to a tensor or nullptr.
class PartFinder {
 public:
  virtual ~PartFinder() = default;
  virtual const TensorView* Find(std::string_view suffix) const = 0;
  virtual std::string Name() const = 0;  // for messages
};

// What a method's `open` is given.
struct Opening {
  const PartFinder& parts;
  const QuantConfig& config;
  int64_t rows = 0, columns = 0;  // logical
  // Of a rank's shard: the whole tensor's scheme. It settles what a small shard cannot tell.
  std::optional<Scheme> known;
};
using Opened = Result<std::unique_ptr<Decoder>>;

struct Method {
  std::string_view id;  // of the row, for messages
  // Whether the tensors that are there make it this method: what is in the file decides. The config
  // is asked where two producers write the same tensors.
  bool (*matches)(const PartFinder& parts, const QuantConfig& config);
  // Error kBadInput: the tensors contradict the logical shape [rows, columns] or the config;
  // kUnsupported: a variant that is not known.
  Opened (*open)(const Opening& opening);
};

std::span<const Method> Methods();

// The decoder of a parameter whose logical shape is [rows, columns]. `config` is the module's own
// (QuantConfig::For). `whole`: the parts are a rank's shard of that tensor, cut at its units. The
// tensors that `parts` finds must outlive the decoder.
// Error: no method matches, more than one does, or the method's own.
Opened OpenDecoder(const PartFinder& parts, const QuantConfig& config, int64_t rows,
                   int64_t columns, const Decoder* whole = nullptr);

// Decodes `count` floating values that begin at `first` of a tensor (F64, F32, F16, BF16).
void DecodeFloats(const TensorView& view, int64_t first, int64_t count, double* out);
bool IsFloating(DType dtype);
double FromHalf(uint16_t bits);
// E2M1 by code: the low three bits 0, ½, 1, 1½, 2, 3, 4, 6; bit 3 the sign.
double FromE2M1(unsigned code);
// 2^(code − 127); 255, which is NaN, is the caller's to refuse.
double FromE8M0(unsigned code);
constexpr unsigned kE8M0Nan = 255;
// E4M3 and E5M2 by code. OCP's E4M3 has no infinity: 0x7F and 0xFF are NaN. The fnuz kinds have a
// bias one larger, no −0 and no infinity: 0x80 is their only NaN.
enum class Float8 { kE4M3, kE4M3Fnuz, kE5M2, kE5M2Fnuz };
double FromFloat8(unsigned code, Float8 kind);

// "[96, 32]": for messages.
std::string PrintShape(const std::vector<int64_t>& shape);

}  // namespace assay::reference
