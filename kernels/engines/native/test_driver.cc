#include "kernels/engines/native/test_driver.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "kernels/engines/native/values.h"

namespace assay::kernels::native {
namespace {

assay_tensor TensorOf(const In& in, std::vector<std::vector<std::byte>>* storage) {
  assay_tensor tensor{};
  tensor.size = sizeof tensor;
  tensor.name = in.name.c_str();
  tensor.rank = in.rank;
  tensor.dtype = in.ids.empty() ? ASSAY_F32 : ASSAY_I32;
  tensor.ndim = static_cast<uint32_t>(in.shape.size());
  std::copy(in.shape.begin(), in.shape.end(), tensor.shape);
  const void* from = in.ids.empty() ? static_cast<const void*>(in.values.data()) : in.ids.data();
  tensor.bytes = 4 * (in.ids.empty() ? in.values.size() : in.ids.size());
  storage->emplace_back(tensor.bytes);
  if (tensor.bytes > 0) std::memcpy(storage->back().data(), from, tensor.bytes);
  tensor.data = storage->back().data();
  return tensor;
}

std::vector<assay_tensor> TensorsOf(const std::vector<In>& inputs,
                                    std::vector<std::vector<std::byte>>* storage) {
  std::vector<assay_tensor> tensors;
  for (const In& in : inputs) tensors.push_back(TensorOf(in, storage));
  return tensors;
}

assay_tensor OutputOf(const std::string& name, uint32_t dtype, const std::vector<int64_t>& shape,
                      void* data) {
  assay_tensor tensor{};
  tensor.size = sizeof tensor;
  tensor.name = name.c_str();
  tensor.dtype = dtype;
  tensor.ndim = static_cast<uint32_t>(shape.size());
  tensor.bytes = 4;
  for (size_t i = 0; i < shape.size(); ++i) {
    tensor.shape[i] = shape[i];
    tensor.bytes *= static_cast<uint64_t>(shape[i]);
  }
  tensor.data = data;
  return tensor;
}

size_t CountOf(const std::vector<int64_t>& shape) {
  size_t count = 1;
  for (int64_t extent : shape) count *= static_cast<size_t>(extent);
  return count;
}

constexpr uint32_t kUnwritten = 0x7FC0BEEF;  // a NaN that no kernel makes

template <class T>
std::vector<T> Poisoned(size_t count) {
  std::vector<T> values(count);
  for (T& value : values) std::memcpy(&value, &kUnwritten, sizeof value);
  return values;
}

template <class T>
void ExpectWritten(const std::vector<T>& values) {
  for (const T& value : values) EXPECT_NE(std::memcmp(&value, &kUnwritten, sizeof value), 0);
}

}  // namespace

std::vector<double> Tap::Values() const {
  std::vector<double> values;
  if (dtype == ASSAY_BF16) {
    for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
      uint16_t bits;
      std::memcpy(&bits, bytes.data() + i, 2);
      values.push_back(FromBf16(bits));
    }
    return values;
  }
  for (size_t i = 0; i + 3 < bytes.size(); i += 4) {
    float value;
    int32_t id;
    std::memcpy(&value, bytes.data() + i, 4);
    std::memcpy(&id, bytes.data() + i, 4);
    values.push_back(dtype == ASSAY_I32 ? id : value);
  }
  return values;
}

assay_error* Driver::Fresh() {
  error_ = {};
  error_.size = sizeof error_;
  return &error_;
}

int Driver::Open(const std::string& config_json, const Wishes& w) {
  host_.size = sizeof host_;
  host_.context = this;
  host_.tap = TapHook;
  host_.executed = RanHook;
  if (poison >= 0) {
    host_.alloc = AllocHook;
    host_.free = FreeHook;
  }
  assay_open open{};
  open.size = sizeof open;
  open.config_json = config_json.c_str();
  open.tp = tp_ = w.tp;
  open.attn_tp = w.attn_tp == 0 ? w.tp : w.attn_tp;
  open.pools = 1;
  open.threads = w.threads;
  open.tier = w.tier.c_str();
  open.kernel = w.kernel.c_str();
  open.method = w.method.c_str();
  open.layout = w.layout.c_str();
  open.act = w.act.c_str();
  open.reduce = w.reduce.c_str();
  open.routing = w.routing.c_str();
  open.options = w.options.c_str();
  return engine_->open(&open, &host_, &session_, Fresh());
}

int Driver::Load(int rank, const TensorSource& source, const std::vector<std::string>& names,
                 int64_t layer, const std::string& plan) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<assay_tensor> tensors;
  for (const std::string& name : names) {
    const TensorView* view = source.Find(name);
    if (view == nullptr) ADD_FAILURE() << name;
    bytes.emplace_back(view->bytes.begin(), view->bytes.end());
    assay_tensor tensor{};
    tensor.size = sizeof tensor;
    tensor.name = view->name.c_str();
    tensor.rank = -1;
    tensor.dtype = static_cast<uint32_t>(view->dtype);
    tensor.ndim = static_cast<uint32_t>(view->shape.size());
    std::copy(view->shape.begin(), view->shape.end(), tensor.shape);
    tensor.data = bytes.back().data();
    tensor.bytes = bytes.back().size();
    tensors.push_back(tensor);
  }
  assay_load load{};
  load.size = sizeof load;
  load.rank = rank;
  load.layer = layer;
  load.plan = plan.c_str();
  load.tensor_count = static_cast<uint32_t>(tensors.size());
  load.tensors = tensors.data();
  const int status = engine_->load(session_, &load, Fresh());
  for (auto& buffer : bytes) std::fill(buffer.begin(), buffer.end(), std::byte{0xFF});
  return status;
}

int Driver::LoadAll(const Checkpoint& checkpoint) {
  for (int rank = 0; rank < tp_; ++rank) {
    if (const int status = Load(rank, checkpoint, checkpoint.Names()); status != ASSAY_OK) {
      return status;
    }
  }
  return ASSAY_OK;
}

int Driver::Run(const std::string& scope, int64_t layer, const std::vector<int32_t>& tokens,
                int64_t first_position, const std::vector<In>& inputs, std::vector<float>* output,
                const std::vector<int64_t>& output_shape) {
  std::vector<std::vector<std::byte>> storage;
  const std::vector<assay_tensor> tensors = TensorsOf(inputs, &storage);
  assay_run run{};
  run.size = sizeof run;
  run.scope = scope.c_str();
  run.layer = layer;
  run.token_count = static_cast<int32_t>(tokens.size());
  run.tokens = tokens.empty() ? nullptr : tokens.data();
  run.first_position = first_position;
  run.input_count = static_cast<uint32_t>(tensors.size());
  run.inputs = tensors.data();
  assay_tensor out{};
  if (output != nullptr) {
    *output = Poisoned<float>(CountOf(output_shape));
    out = OutputOf("out", ASSAY_F32, output_shape, output->data());
    run.output = &out;
  }
  const int status = engine_->run(session_, &run, Fresh());
  if (status == ASSAY_OK && output != nullptr) ExpectWritten(*output);
  return status;
}

int Driver::CallOp(int rank, const std::string& tap, const std::vector<In>& inputs,
                   assay_tensor* out) {
  std::vector<std::vector<std::byte>> storage;
  const std::vector<assay_tensor> tensors = TensorsOf(inputs, &storage);
  assay_op op{};
  op.size = sizeof op;
  op.rank = rank;
  op.tap = tap.c_str();
  op.input_count = static_cast<uint32_t>(tensors.size());
  op.inputs = tensors.data();
  op.output_count = 1;
  op.outputs = out;
  return engine_->run_op(session_, &op, Fresh());
}

int Driver::Op(int rank, const std::string& tap, const std::vector<In>& inputs,
               const std::vector<int64_t>& shape, std::vector<float>* output) {
  *output = Poisoned<float>(CountOf(shape));
  assay_tensor out = OutputOf(tap, ASSAY_F32, shape, output->data());
  const int status = CallOp(rank, tap, inputs, &out);
  if (status == ASSAY_OK) ExpectWritten(*output);
  return status;
}

int Driver::Ids(int rank, const std::string& tap, const std::vector<In>& inputs,
                const std::vector<int64_t>& shape, std::vector<int32_t>* output) {
  *output = Poisoned<int32_t>(CountOf(shape));
  assay_tensor out = OutputOf(tap, ASSAY_I32, shape, output->data());
  return CallOp(rank, tap, inputs, &out);
}

int Driver::Reduce(const std::string& tap, const std::vector<In>& parts,
                   std::vector<float>* output) {
  std::vector<std::vector<float>> outputs;
  const std::vector<int64_t> shape = parts.empty() ? std::vector<int64_t>{0} : parts.front().shape;
  const int status = Collective("all_reduce", tap, parts, {shape}, &outputs);
  *output = outputs.front();
  return status;
}

int Driver::Collective(const std::string& kind, const std::string& tap,
                       const std::vector<In>& parts,
                       const std::vector<std::vector<int64_t>>& shapes,
                       std::vector<std::vector<float>>* outputs) {
  std::vector<std::vector<std::byte>> storage;
  const std::vector<assay_tensor> tensors = TensorsOf(parts, &storage);
  outputs->clear();
  for (const auto& shape : shapes) outputs->push_back(Poisoned<float>(CountOf(shape)));
  std::vector<assay_tensor> outs;
  for (size_t i = 0; i < shapes.size(); ++i) {
    outs.push_back(OutputOf(tap, ASSAY_F32, shapes[i], (*outputs)[i].data()));
    outs.back().size = sizeof outs.back();
  }
  assay_reduce reduce{};
  reduce.size = sizeof reduce;
  reduce.tap = tap.c_str();
  reduce.rank_count = static_cast<uint32_t>(tensors.size());
  reduce.inputs = tensors.data();
  reduce.kind = kind.c_str();
  if (kind == "reduce_scatter") {
    reduce.output_count = static_cast<uint32_t>(outs.size());
    reduce.outputs = outs.data();
  } else {
    reduce.output = outs.empty() ? nullptr : outs.data();
  }
  const int status = engine_->reduce(session_, &reduce, Fresh());
  if (status == ASSAY_OK) {
    for (const auto& output : *outputs) ExpectWritten(output);
  }
  return status;
}

int Driver::Export(int rank, const std::string& component, assay_shard* out) {
  *out = {};
  out->size = sizeof *out;
  return engine_->export_shard(session_, rank, component.c_str(), out, Fresh());
}

void Driver::Close() {
  if (session_ != nullptr) engine_->close(session_);
  session_ = nullptr;
  EXPECT_EQ(live_allocations, 0);
}

std::vector<float> Driver::Logits(const std::vector<int32_t>& tokens, int64_t first_position,
                                  int64_t vocab) {
  std::vector<float> logits;
  const int status = Run("model", -1, tokens, first_position, {}, &logits,
                         {static_cast<int64_t>(tokens.size()), vocab});
  EXPECT_EQ(status, ASSAY_OK) << error_.message;
  return logits;
}

void Driver::TapHook(void* context, const assay_tensor* value) {
  Tap tap;
  tap.dtype = value->dtype;
  tap.shape.assign(value->shape, value->shape + value->ndim);
  const auto* bytes = static_cast<const std::byte*>(value->data);
  tap.bytes.assign(bytes, bytes + value->bytes);
  static_cast<Driver*>(context)->taps[{value->name, value->rank}] = std::move(tap);
}

void Driver::RanHook(void* context, const assay_executed* r) {
  static_cast<Driver*>(context)->ran[{r->tap, r->rank}] = {r->kernel, r->tier,    r->layout,
                                                           r->act,    r->threads, r->how};
}

void* Driver::AllocHook(void* context, uint64_t bytes, uint64_t alignment) {
  auto* driver = static_cast<Driver*>(context);
  const uint64_t step = std::max<uint64_t>(alignment, 64);
  void* pointer = std::aligned_alloc(step, (bytes / step + 1) * step);
  // Both a byte pattern and, in fp32 and bf16, a value: 0x46 is 1.3e4 everywhere.
  if (pointer != nullptr) std::memset(pointer, driver->poison, bytes);
  ++driver->live_allocations;
  ++driver->allocations;
  return pointer;
}

void Driver::FreeHook(void* context, void* pointer) {
  --static_cast<Driver*>(context)->live_allocations;
  std::free(pointer);
}

std::unique_ptr<Checkpoint> OpenCheckpoint(const std::string& path) {
  auto opened = Checkpoint::Open(path);
  if (!opened) {
    ADD_FAILURE() << opened.error().message;
    std::abort();
  }
  return std::move(*opened);
}

std::vector<std::string> NamesWith(const TensorSource& source, const std::string& part) {
  std::vector<std::string> names;
  for (const std::string& name : source.Names()) {
    if (name.find(part) != std::string::npos) names.push_back(name);
  }
  return names;
}

}  // namespace assay::kernels::native
