// Where the stored tensors of a parameter lie: tensors of its own, or its part of tensors that hold
// all experts, as headers or with bytes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/checkpoint/tensor_source.h"
#include "reference/graph/graph.h"
#include "reference/methods/method.h"

namespace assay::reference {

// Value (r, c) of a grid of stored values lies at first + r·row_step + c·column_step in `whole`.
struct Grid {
  const TensorView* whole = nullptr;
  int64_t rows = 0, columns = 1;
  int64_t first = 0, row_step = 1, column_step = 1;
};
// All of a tensor: rows by the first extent, one column where there is one extent.
Grid WholeGrid(const TensorView& view);

// The tensors of one parameter by suffix. Views are valid as long as the finder and the source.
class ParameterFinder : public PartFinder {
 public:
  // `headers`: types and shapes suffice. weight_shape, which says in the data what they say
  // already, is left out then: to read it for every expert of a large checkpoint would take a page
  // of the disk for each. Parts of tensors that do not lie together have no bytes then.
  ParameterFinder(const TensorSource& source, const Parameter& parameter, bool headers)
      : source_(source), parameter_(parameter), headers_(headers) {}
  const TensorView* Find(std::string_view suffix) const override;
  std::string Name() const override { return parameter_.source; }

  // Where the tensor of that suffix lies; nullopt: there is none, or it does not hold the experts
  // that the config says (problem() tells).
  std::optional<Grid> Locate(std::string_view suffix) const;
  const std::string& problem() const { return problem_; }

 private:
  struct Sub {
    TensorView view;
    std::vector<std::byte> bytes;  // copied, where the values do not lie together
  };
  const TensorView* FusedTensor(std::string_view suffix) const;
  std::optional<Grid> LocateFused(const TensorView& whole) const;
  const TensorView* View(std::string_view suffix, const Grid& grid) const;

  const TensorSource& source_;
  const Parameter& parameter_;
  bool headers_;
  mutable std::map<std::string, std::unique_ptr<Sub>, std::less<>> subs_;
  mutable std::string problem_;
};

// A rank's shard under Assay's names, seen as if it were a checkpoint of its own.
class ShardFinder : public PartFinder {
 public:
  std::string name;
  std::map<std::string, const TensorView*, std::less<>> views;  // by the checkpoint's suffix
  const TensorView* Find(std::string_view suffix) const override {
    const auto found = views.find(suffix);
    return found == views.end() ? nullptr : found->second;
  }
  std::string Name() const override { return name; }
};

}  // namespace assay::reference
