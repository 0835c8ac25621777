// What one load works on. Internal to the room.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/abi/assay_engine.h"
#include "harness/checkpoint/tensor_source.h"
#include "harness/shard/executor.h"
#include "kernels/loaders/loader.h"
#include "kernels/loaders/names.h"

namespace assay::kernels {

// Views by name of the harness's memory.
class ViewSource : public TensorSource {
 public:
  void Put(TensorView view) {
    std::string name = view.name;
    views_.insert_or_assign(std::move(name), std::move(view));
  }
  const TensorView* Find(std::string_view name) const override;
  std::vector<std::string> Names() const override;

 private:
  std::map<std::string, TensorView, std::less<>> views_;
};

struct Loader::Job {
  int rank = 0;
  ModelConfig config;  // with its prefix
  TensorList list;     // owns what a hook made
  Names names;
  ViewSource tensors;
  bool whole = false;  // the whole model: everything must be there
  // Of everything that is named: the loader's own, or `adjusted` by a fault.
  const std::vector<shard::ComponentPlan>* plan = nullptr;
  std::vector<shard::ComponentPlan> adjusted;
  // Bytes that were written, by component.
  std::map<std::string_view, int64_t> written;
};

// Throws EngineError for an unknown type, a negative extent, or bytes that do not fit the shape.
TensorView ViewOf(const assay_tensor& tensor);

// The stored tensors of one linear, vector or table that the rank holds, in the plan's order.
struct Member {
  std::string_view op;
  std::vector<const shard::ComponentPlan*> parts;
  const shard::ComponentPlan* Find(std::string_view part) const;
};
// What becomes one parameter each. Members of a merged one are joined where the rank can: the same
// method and parts, rows along N in each part, or one value a member; no order of inputs. Otherwise
// each stands alone. Segments need not stand next to each other in the plan.
std::vector<std::vector<Member>> MatricesOf(const std::vector<shard::ComponentPlan>& plan,
                                            int rank);

bool Holds(const shard::ComponentPlan& plan, int rank);
// Bytes of the rank's shard in layout "row". Throws EngineError where no int64 counts them.
int64_t ShardBytes(const shard::ComponentPlan& plan, int rank);
// Logical outputs and inputs of the rank's shard of a weight; of a vector [length, 1].
struct Logical {
  int64_t n = 0, k = 1;
};
Logical LogicalOf(const shard::ComponentPlan& weight, int rank);

// nullptr: row major, nothing to repack. Throws EngineError (unsupported) where the choice's layout
// does not take the method.
const Layout* LayoutOf(const Choice& choice, std::string_view part);
bool IsFloating(DType dtype);
Array<std::byte> Poisoned(Memory& memory, int64_t bytes);

}  // namespace assay::kernels
