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

// One stored tensor of a parameter, and what a column of it stands for.
struct StoredPart {
  std::string suffix;  // "weight", "scale"
  const TensorView* view = nullptr;
  std::string unit;  // "element", "word", "group"
  int64_t elements_per_column = 1;
  bool whole_row = false;  // one value for the whole row, whichever columns a rank has
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Logical extents.
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  // Decodes row n (0 <= n < rows) into columns() doubles.
  virtual void Row(int64_t n, double* out) const = 0;
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
  std::string_view id;
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

// The rows' file names of the table.
bool MatchesPlain(const PartFinder& parts);
Result<std::unique_ptr<Decoder>> OpenPlain(const PartFinder& parts, const QuantConfig& config,
                                           int64_t rows, int64_t columns);
bool MatchesCtInt4(const PartFinder& parts);
Result<std::unique_ptr<Decoder>> OpenCtInt4(const PartFinder& parts, const QuantConfig& config,
                                            int64_t rows, int64_t columns);

// "[96, 32]": for messages.
std::string PrintShape(const std::vector<int64_t>& shape);

}  // namespace assay::reference
