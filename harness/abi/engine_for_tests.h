// A small engine that behaves, for tests to spoil one function of.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "harness/abi/assay_engine.h"
#include "harness/abi/child.h"

namespace assay::abi {

// y = x W^T on F32, W whole on every rank; reduce adds; run gives x and y as taps.
struct TestSession {
  const assay_host* host = nullptr;
  std::vector<float> weight;
  int64_t rows = 0, columns = 0;
};

inline TestSession* Of(assay_session* session) { return reinterpret_cast<TestSession*>(session); }

inline int TestOpen(const assay_open*, const assay_host* host, assay_session** session,
                    assay_error*) {
  auto* mine = new TestSession();
  mine->host = host;
  *session = reinterpret_cast<assay_session*>(mine);
  return ASSAY_OK;
}

inline int TestLoad(assay_session* session, const assay_load* request, assay_error*) {
  const assay_tensor& tensor = request->tensors[0];
  const auto* values = static_cast<const float*>(tensor.data);
  Of(session)->rows = tensor.shape[0];
  Of(session)->columns = tensor.shape[1];
  Of(session)->weight.assign(values, values + tensor.shape[0] * tensor.shape[1]);
  return ASSAY_OK;
}

inline int TestExport(assay_session* session, int32_t, const char* component, assay_shard* out,
                      assay_error*) {
  if (std::string(component) != "w.weight") return ASSAY_UNSUPPORTED;
  out->layout = "row";
  out->dtype = ASSAY_F32;
  out->total_rows = out->rows = Of(session)->rows;
  out->columns = Of(session)->columns;
  out->data = Of(session)->weight.data();
  out->bytes = Of(session)->weight.size() * sizeof(float);
  return ASSAY_OK;
}

inline void Multiply(const TestSession& session, const assay_tensor& x, float* y) {
  const auto* in = static_cast<const float*>(x.data);
  for (int64_t t = 0; t < x.shape[0]; ++t) {
    for (int64_t n = 0; n < session.rows; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < session.columns; ++k) {
        sum += in[t * session.columns + k] * session.weight[n * session.columns + k];
      }
      y[t * session.rows + n] = sum;
    }
  }
}

inline int TestRunOp(assay_session* session, const assay_op* request, assay_error*) {
  Multiply(*Of(session), request->inputs[0], static_cast<float*>(request->outputs[0].data));
  assay_executed executed{};
  executed.size = sizeof executed;
  executed.tap = request->tap;
  executed.rank = request->rank;
  executed.kernel = "plain";
  executed.tier = "scalar";
  executed.layout = "row";
  executed.act = "a32";
  executed.threads = 1;
  Of(session)->host->executed(Of(session)->host->context, &executed);
  return ASSAY_OK;
}

inline assay_tensor FloatTap(const char* name, int rank, float* values, int64_t count) {
  assay_tensor tap{};
  tap.size = sizeof tap;
  tap.name = name;
  tap.rank = rank;
  tap.dtype = ASSAY_F32;
  tap.ndim = 1;
  tap.shape[0] = count;
  tap.data = values;
  tap.bytes = static_cast<uint64_t>(count) * sizeof(float);
  return tap;
}

inline void GiveTap(assay_session* session, const assay_tensor& tap) {
  Of(session)->host->tap(Of(session)->host->context, &tap);
}

inline int TestRun(assay_session* session, const assay_run* request, assay_error*) {
  float position = static_cast<float>(request->first_position);
  for (int rank = 0; rank < 2; ++rank) {
    GiveTap(session, FloatTap("L0.residual_mlp", rank, &position, 1));
  }
  return ASSAY_OK;
}

inline int TestReduce(assay_session*, const assay_reduce* request, assay_error*) {
  auto* out = static_cast<float*>(request->output->data);
  const auto count = static_cast<size_t>(request->output->bytes / sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    out[i] = 0;
    for (uint32_t r = 0; r < request->rank_count; ++r) {
      out[i] += static_cast<const float*>(request->inputs[r].data)[i];
    }
  }
  return ASSAY_OK;
}

inline assay_engine GoodEngine() {
  assay_engine engine{};
  engine.size = sizeof engine;
  engine.version = ASSAY_ABI_VERSION;
  engine.name = "good";
  engine.revision = "r1";
  engine.describe = [] { return R"({"ops":["linear"]})"; };
  engine.open = TestOpen;
  engine.load = TestLoad;
  engine.export_shard = TestExport;
  engine.run_op = TestRunOp;
  engine.run = TestRun;
  engine.reduce = TestReduce;
  engine.close = [](assay_session* session) { delete Of(session); };
  return engine;
}

// Values of a script's tensors, and a script that uses them: W [3, 5], x [2, 5], two ranks.
struct TestScript {
  std::vector<float> w, x;
  Script script;

  explicit TestScript(const assay_engine* engine) {
    for (int i = 0; i < 15; ++i) w.push_back(static_cast<float>(i - 7));
    for (int i = 0; i < 10; ++i) x.push_back(static_cast<float>(3 - i));
    script.engine = engine;
    script.tp = 2;
    script.tensors = {Tensor("model.w", -1, {3, 5}, w)};
    script.exports = {{"w.weight", 0}, {"w.weight", 1}, {"v.weight", 0}};
    for (int rank = 0; rank < 2; ++rank) {
      OpCall op;
      op.rank = rank;
      op.tap = "w";
      op.inputs = {Tensor("x", rank, {2, 5}, x)};
      op.output = Output("w", rank, {2, 3});
      script.ops.push_back(op);
    }
    script.time_limit_ms = 10000;
  }
  TestScript(const TestScript&) = delete;

  static HostTensor Tensor(std::string name, int rank, std::vector<int64_t> shape,
                           const std::vector<float>& values) {
    return {std::move(name),
            rank,
            DType::kF32,
            std::move(shape),
            reinterpret_cast<const std::byte*>(values.data()),
            values.size() * sizeof(float)};
  }
  static HostTensor Output(std::string name, int rank, std::vector<int64_t> shape) {
    return {std::move(name), rank, DType::kF32, std::move(shape), nullptr, 0};
  }
};

inline std::vector<float> Floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

}  // namespace assay::abi
