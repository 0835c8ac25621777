// Sums over ranks.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/collectives/sequential.h"
#include "kernels/engines/native/blocks.h"
#include "kernels/engines/native/contract_types.h"
#include "kernels/loaders/engine_error.h"

namespace assay::kernels::native {

Matrix ReduceParts(Session& s, const std::string& tap, std::span<const Matrix> parts) {
  const Matrix& first = parts.front();
  ReduceCall call{tap, {}, first.count()};
  for (const Matrix& part : parts) {
    if (part.rows != first.rows || part.columns != first.columns) {
      throw EngineError(ASSAY_FAILED,
                        fmt::format("{}: a part is [{}, {}], the first [{}, {}]", tap, part.rows,
                                    part.columns, first.rows, first.columns));
    }
    call.parts.push_back(part.data());
  }
  if (s.hooks() != nullptr) s.hooks()->BeforeReduce(call);
  Matrix sum(s.memory(), first.rows, first.columns, kReduceType);
  AllReduceSequential(call.parts, call.count, sum.data());
  sum.Round();
  return sum;
}

Matrices AllReduce(Session& s, const std::string& tap, const Matrices& parts, int degree) {
  Matrices out;
  const int ranks = static_cast<int>(parts.size());
  for (int begin = 0; begin < ranks; begin += degree) {
    const auto group = std::span(parts).subspan(
        static_cast<size_t>(begin), static_cast<size_t>(std::min(degree, ranks - begin)));
    const Matrix sum = ReduceParts(s, tap, group);
    for (size_t i = 0; i < group.size(); ++i) {
      const int rank = begin + static_cast<int>(i);
      out.push_back(Copy(s.memory(), sum));
      s.dispatcher().RecordUntiered(tap, rank, kSequentialName);
      s.Emit(tap, rank, out.back());
    }
  }
  return out;
}

}  // namespace assay::kernels::native
