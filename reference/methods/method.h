// How a logical weight is stored, read by the oracle. A method is one decoder and one row of the
// table in methods.cc. A decoder gives rows in double, exactly as formats.md defines the values.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/model_config.h"
#include "harness/checkpoint/tensor_source.h"
#include "harness/units/status.h"

namespace assay::reference {

// Along which axis of the logical weight [rows, columns] an axis of a stored tensor lies.
enum class Along { kRows, kColumns, kNone };

// One stored tensor of a parameter as a grid, and what its rows and columns stand for. Most lie as
// the weight does; GPTQ's and AWQ's lie transposed, and a block's scale stands for several rows.
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
  // Every rank has all of it, whatever is cut: GPTQ's scales and zeros under act-order, values for
  // the whole tensor.
  bool replicated = false;
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
  // The tensors behind it, weight first.
  const std::vector<StoredPart>& parts() const { return parts_; }

 protected:
  int64_t rows_ = 0, columns_ = 0;
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

struct Method {
  std::string_view id;  // of the row
  // Whether the tensors that are there make it this method: what is in the file decides.
  bool (*matches)(const PartFinder& parts);
  // Error kBadInput: the tensors contradict the logical shape [rows, columns] or the config;
  // kUnsupported: a variant that is not known.
  Result<std::unique_ptr<Decoder>> (*open)(const PartFinder& parts, const QuantConfig& config,
                                           int64_t rows, int64_t columns);
};

std::span<const Method> Methods();

// The decoder of a parameter whose logical shape is [rows, columns]. Error: no method matches, more
// than one does, or the method's own.
Result<std::unique_ptr<Decoder>> OpenDecoder(const PartFinder& parts, const QuantConfig& config,
                                             int64_t rows, int64_t columns);

// Decodes `count` floating values that begin at `first` of a tensor (F64, F32, F16, BF16).
void DecodeFloats(const TensorView& view, int64_t first, int64_t count, double* out);
bool IsFloating(DType dtype);
double FromHalf(uint16_t bits);
// E2M1 by code: the low three bits 0, ½, 1, 1½, 2, 3, 4, 6; bit 3 the sign.
double FromE2M1(unsigned code);
// 2^(code − 127); 255, which is NaN, is the caller's to refuse.
double FromE8M0(unsigned code);
constexpr unsigned kE8M0Nan = 255;

// The rows' file names of the table.
bool MatchesPlain(const PartFinder& parts);
Result<std::unique_ptr<Decoder>> OpenPlain(const PartFinder& parts, const QuantConfig& config,
                                           int64_t rows, int64_t columns);
bool MatchesGguf(const PartFinder& parts);
Result<std::unique_ptr<Decoder>> OpenGguf(const PartFinder& parts, const QuantConfig& config,
                                          int64_t rows, int64_t columns);
bool MatchesMxfp4(const PartFinder& parts);
Result<std::unique_ptr<Decoder>> OpenMxfp4(const PartFinder& parts, const QuantConfig& config,
                                           int64_t rows, int64_t columns);
bool MatchesCtInt4(const PartFinder& parts);
Result<std::unique_ptr<Decoder>> OpenCtInt4(const PartFinder& parts, const QuantConfig& config,
                                            int64_t rows, int64_t columns);

// "[96, 32]": for messages.
std::string PrintShape(const std::vector<int64_t>& shape);

}  // namespace assay::reference
