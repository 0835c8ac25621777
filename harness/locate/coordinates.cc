// Where in an op's output it is first wrong.
#include <algorithm>

#include "harness/locate/internal.h"

namespace assay::locate {
namespace {

std::vector<int64_t> Unflatten(int64_t flat, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size(), 0);
  for (size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  return index;
}

// The global column of a rank's activations: those of what the op reads. Of scales, the group.
Status SetActivationColumn(const judge::JudgeRequest& request, const judge::OpJudgement& j,
                           Divergence* d) {
  const reference::Node* from = request.oracle->FindNode(j.node->inputs[0]);
  if (from == nullptr) return Ok();
  auto columns = request.oracle->TapColumns(*from, {request.degrees, j.rank});
  if (!columns.ok()) return columns.error();
  const auto k = static_cast<int64_t>(columns->size()), here = j.oracle.shape[1];
  if (here <= 0 || k % here != 0) return Ok();
  const int64_t each = k / here;  // 1 for codes
  const int64_t first = (*columns)[static_cast<size_t>(d->local_index[1] * each)];
  d->index[1] = first / each;
  return Ok();
}

}  // namespace

Status SetElement(const judge::JudgeRequest& request, const judge::OpJudgement& j, Divergence* d) {
  const int64_t at = j.first >= 0 ? j.first : j.worst;
  const std::vector<int64_t>& shape = j.oracle.shape;
  if (at < 0 || shape.empty() || j.oracle.data.empty()) return Ok();
  d->unit = j.node->tap.ends_with(".x_scale") ? "group" : "element";
  d->expected = j.expected;
  d->got = j.got;
  d->local_index = Unflatten(at, shape);
  d->index = d->local_index;
  if (j.made && shape.size() == 2) return SetActivationColumn(request, j, d);
  auto columns = request.oracle->TapColumns(*j.node, {request.degrees, j.rank});
  if (!columns.ok()) return columns.error();
  const auto n = static_cast<int64_t>(columns->size());
  if (shape.size() == 1 && j.node->op == reference::Op::kReduce && n > 0) {
    d->index = {(j.offset + at) / n, (j.offset + at) % n};  // of a chunk of the flat sum
    return Ok();
  }
  // The second axis is what ranks share: columns, or the heads of [rows, heads, keys].
  if (shape.size() > 1 && n == shape[1]) {
    d->index[1] = (*columns)[static_cast<size_t>(d->local_index[1])];
  }
  return Ok();
}

}  // namespace assay::locate
