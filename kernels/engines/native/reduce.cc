// Sums over ranks, and the ABI's collectives.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/collectives/collectives.h"
#include "kernels/engines/native/blocks.h"
#include "kernels/engines/native/contract_types.h"
#include "kernels/loaders/engine_error.h"

namespace assay::kernels::native {
namespace {

std::vector<float*> DataOf(Matrices* values) {
  std::vector<float*> data;
  for (Matrix& value : *values) data.push_back(value.data());
  return data;
}

// Equal extents, and what a fault makes of the call.
ReduceCall Prepare(Session& s, const std::string& tap, std::span<const Matrix> parts) {
  const Matrix& first = parts.front();
  ReduceCall call{tap, {}, first.count(), s.reduction(), {}};
  for (const Matrix& part : parts) {
    if (part.rows != first.rows || part.columns != first.columns) {
      throw EngineError(ASSAY_FAILED,
                        fmt::format("{}: a part is [{}, {}], the first [{}, {}]", tap, part.rows,
                                    part.columns, first.rows, first.columns));
    }
    call.parts.push_back(part.data());
  }
  if (s.hooks() != nullptr) s.hooks()->BeforeReduce(call);
  return call;
}

Matrices ReadParts(Session& s, const assay_reduce& request) {
  Matrices parts;
  for (const assay_tensor& input : CopyTensors(request.inputs, request.rank_count)) {
    parts.push_back(ReadMatrix(s.memory(), input));
  }
  if (parts.empty()) throw EngineError(ASSAY_FAILED, "nothing to reduce: rank_count is 0");
  return parts;
}

assay_tensor* NeedOutput(const assay_reduce& request) {
  if (request.output == nullptr) throw EngineError(ASSAY_FAILED, "output is NULL");
  return request.output;
}

void ScatterInto(Session& s, const std::string& tap, const assay_reduce& request) {
  const Matrices parts = ReadParts(s, request);
  std::vector<assay_tensor> outputs = CopyTensors(request.outputs, request.output_count);
  if (outputs.size() != parts.size()) {
    throw EngineError(ASSAY_FAILED, fmt::format("{}: {} outputs for {} ranks", tap, outputs.size(),
                                                parts.size()));
  }
  const ReduceCall call = Prepare(s, tap, parts);
  Matrices chunks;
  for (size_t c = 0; c < parts.size(); ++c) {
    const int ranks = static_cast<int>(parts.size());
    const int64_t length = ChunkOf(call.count, ranks, static_cast<int>(c)).length;
    chunks.emplace_back(s.memory(), 1, length, kReduceType);
  }
  ReduceScatter(call.reduction, call.parts, call.count, DataOf(&chunks));
  for (size_t c = 0; c < parts.size(); ++c) {
    const int rank = static_cast<int>(c);
    s.Round(tap, rank, &chunks[c]);
    WriteMatrix(chunks[c], &outputs[c]);
    s.dispatcher().RecordUntiered(tap, rank, ReductionName("reduce_scatter", s.reduction()));
  }
}

void GatherInto(Session& s, const std::string& tap, const assay_reduce& request) {
  assay_tensor* output = NeedOutput(request);
  const Matrices parts = ReadParts(s, request);
  const Matrix& first = parts.front();
  std::vector<const float*> data;
  for (const Matrix& part : parts) {
    if (part.rows != first.rows || part.columns != first.columns) {
      throw EngineError(ASSAY_FAILED,
                        fmt::format("{}: a part is [{}, {}], the first [{}, {}]", tap, part.rows,
                                    part.columns, first.rows, first.columns));
    }
    data.push_back(part.data());
  }
  const int64_t columns = output->ndim == 2 ? output->shape[1] : -1;
  const int64_t most = CheckedProduct(first.columns, static_cast<int64_t>(parts.size()));
  if (columns < 0 || columns > most || output->shape[0] != first.rows) {
    throw EngineError(ASSAY_FAILED, fmt::format("{}: the output must be [{}, at most {}]", tap,
                                                first.rows, most));
  }
  Matrix whole(s.memory(), first.rows, columns, DType::kF32);
  GatherColumns(data, whole.rows, first.columns, columns, whole.data());
  WriteMatrix(whole, output);
  s.dispatcher().RecordUntiered(tap, -1, kGatherName);
}

}  // namespace

std::string ReductionName(std::string_view kind, const Reduction& reduction) {
  std::string name = fmt::format("{}_{}", kind, NameOf(reduction));
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

Matrices ReduceParts(Session& s, const std::string& tap, std::span<const Matrix> parts) {
  const ReduceCall call = Prepare(s, tap, parts);
  Matrices sums;
  for (const Matrix& part : parts) {
    sums.emplace_back(s.memory(), part.rows, part.columns, kReduceType);
  }
  AllReduce(call.reduction, call.parts, call.count, DataOf(&sums));
  for (size_t r = 0; r < sums.size(); ++r) s.Round(tap, static_cast<int>(r), &sums[r]);
  return sums;
}

Matrices AllReduce(Session& s, const std::string& tap, const Matrices& parts, int degree) {
  Matrices out;
  const int ranks = static_cast<int>(parts.size());
  for (int begin = 0; begin < ranks; begin += degree) {
    const auto group = std::span(parts).subspan(
        static_cast<size_t>(begin), static_cast<size_t>(std::min(degree, ranks - begin)));
    for (Matrix& sum : ReduceParts(s, tap, group)) {
      const int rank = static_cast<int>(out.size());
      out.push_back(std::move(sum));
      s.dispatcher().RecordUntiered(tap, rank, ReductionName("all_reduce", s.reduction()));
      s.Emit(tap, rank, out.back());
    }
  }
  return out;
}

void Session::Reduce(const assay_reduce& request) {
  const std::string tap = request.tap == nullptr ? "" : request.tap;
  const std::string kind = request.kind == nullptr ? "" : request.kind;
  if (kind == "reduce_scatter") return ScatterInto(*this, tap, request);
  if (kind == "gather") return GatherInto(*this, tap, request);
  if (!kind.empty() && kind != "all_reduce") {
    throw EngineError(
        ASSAY_UNSUPPORTED,
        fmt::format("collective '{}'; known are all_reduce, reduce_scatter, gather", kind));
  }
  assay_tensor* output = NeedOutput(request);
  WriteMatrix(ReduceParts(*this, tap, ReadParts(*this, request)).front(), output);
  dispatcher_.RecordUntiered(tap, -1, ReductionName("all_reduce", reduction()));
}

}  // namespace assay::kernels::native
