#include "harness/abi/session.h"

#include <errno.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>

namespace assay::abi {
namespace {

std::string AtRank(std::string_view what, std::string_view name, int rank) {
  if (rank < 0) return fmt::format("{} {}", what, name);
  return fmt::format("{} {} on rank {}", what, name, rank);
}

// What is wrong with an exported shard; empty if nothing is.
std::string Complain(const assay_shard& shard) {
  std::string layout;
  if (!ReadName(shard.layout, &layout)) return "its layout's tag is no name";
  if (shard.dtype > ASSAY_NVFP4) return fmt::format("its type {} is unknown", shard.dtype);
  const bool negative =
      shard.total_rows < 0 || shard.first_row < 0 || shard.rows < 0 || shard.columns < 0;
  if (negative) return "an extent is negative";
  if (shard.first_row > shard.total_rows || shard.rows > shard.total_rows - shard.first_row) {
    return fmt::format("rows {} + {} go beyond its {} rows", shard.first_row, shard.rows,
                       shard.total_rows);
  }
  if (shard.bytes != 0 && shard.data == nullptr) return "it has no data";
  if (layout != "row") return "";
  const int64_t shape[2] = {shard.total_rows, shard.columns};
  uint64_t bytes = 0;
  if (!SizeInBytes(shape, 2, static_cast<DType>(shard.dtype), &bytes) || bytes != shard.bytes) {
    return fmt::format("it has {} bytes, which {} rows of {} values of type {} do not have",
                       shard.bytes, shard.total_rows, shard.columns,
                       NameOf(static_cast<DType>(shard.dtype)));
  }
  return "";
}

}  // namespace

Session::Session(const assay_engine& engine, const Script& script, Poison poison,
                 Recorder* recorder)
    : engine_(engine),
      script_(script),
      poison_(poison),
      recorder_(recorder),
      host_(recorder, poison, script.tp),
      error_(GuardedBuffer::Make("the error structure", sizeof(assay_error), alignof(assay_error),
                                 poison)) {
  if (error_ == nullptr) throw std::bad_alloc();
}

assay_error Session::error() const {
  assay_error copy;
  std::memcpy(&copy, error_->data(), sizeof copy);
  copy.message[sizeof copy.message - 1] = '\0';
  copy.tensor[sizeof copy.tensor - 1] = '\0';
  copy.axis[sizeof copy.axis - 1] = '\0';
  copy.got_unit[sizeof copy.got_unit - 1] = '\0';
  copy.expected_unit[sizeof copy.expected_unit - 1] = '\0';
  return copy;
}

int Session::Call(Phase phase, std::string_view what, const std::function<int()>& call) {
  recorder_->Mark(phase, what);
  std::memset(error_->data(), 0, error_->bytes());
  raw_error()->size = sizeof(assay_error);
  errno = 0;
  int status = ASSAY_FAILED;
  try {
    status = call();
    call_errno_ = errno;
  } catch (const std::bad_alloc&) {
    threw_bad_alloc_ = true;
  } catch (...) {
    // As in a caller written in C. From inside a handler, so that it prints what was thrown.
    std::terminate();
  }
  host_.CheckMemory();
  const std::string wrong = error_->CheckMargins();
  if (!wrong.empty()) recorder_->Violation(fmt::format("{}: {}", what, wrong));
  return status;
}

Stop Session::NoMemory(Phase phase, std::string_view what) const {
  return {Ending::kOutOfMemory, phase, fmt::format("{}: out of memory", what)};
}

Stop Session::Judge(int status, Phase phase, std::string_view what) const {
  if (status == ASSAY_OK && !threw_bad_alloc_) {
    if (!recorder_->full()) return {};
    return {Ending::kOutOfMemory, phase,
            fmt::format("{}: no room to keep what the engine gave", what)};
  }
  const std::string said = error().message;
  const auto line = [&](std::string_view answer) {
    return fmt::format("{}: {}{}{}", what, answer, said.empty() ? "" : ": ", said);
  };
  // A C engine cannot throw; but under a limit a failed malloc leaves its mark.
  const bool limited = script_.memory_limit_bytes > 0 && call_errno_ == ENOMEM;
  if (threw_bad_alloc_ || host_.out_of_memory() || (status == ASSAY_FAILED && limited)) {
    return {Ending::kOutOfMemory, phase, line("out of memory")};
  }
  switch (status) {
    case ASSAY_UNSUPPORTED:
      return {Ending::kUnsupported, phase, line("not supported")};
    case ASSAY_REFUSED:
      return {Ending::kRefused, phase, line("refused")};
    case ASSAY_FAILED:
      return {Ending::kFailed, phase, line("failed")};
    default:
      return {Ending::kFailed, phase, line(fmt::format("returned the unknown status {}", status))};
  }
}

Stop Session::Open() {
  if (engine_.open == nullptr) return {};
  assay_open request{};
  request.size = sizeof request;
  request.config_json = script_.config_json.c_str();
  request.tp = script_.tp;
  request.attn_tp = script_.attn_tp;
  request.pools = script_.pools;
  request.threads = script_.threads;
  request.tier = script_.tier.c_str();
  request.kernel = script_.kernel.c_str();
  request.method = script_.method.c_str();
  request.layout = script_.layout.c_str();
  request.act = script_.act.c_str();
  request.reduce = script_.reduce.c_str();
  request.routing = script_.routing.c_str();
  request.options = script_.options.c_str();
  const int status = Call(Phase::kOpen, "open", [&] {
    return engine_.open(&request, host_.table(), &session_, raw_error());
  });
  return Judge(status, Phase::kOpen, "open");
}

Stop Session::LoadAll(std::string_view which, const std::vector<HostTensor>& sources,
                      std::unique_ptr<InputSet>* tensors) {
  uint64_t bytes = 0;
  for (const HostTensor& tensor : sources) bytes += tensor.bytes;
  const bool copied = bytes <= kCopiedTensorBytes;
  if (!copied && recorder_->pass() == 0) {
    recorder_->Note(
        fmt::format("the {} bytes of load()'s tensors were handed over uncopied: not "
                    "guarded, not checked for changes, not overwritten afterwards",
                    bytes));
  }
  const auto memory = copied ? InputSet::Memory::kCopied : InputSet::Memory::kDirect;
  *tensors = std::make_unique<InputSet>("tensor", sources, poison_, memory);
  if (!(*tensors)->ok()) return NoMemory(Phase::kLoad, which);
  for (int rank = 0; rank < script_.tp; ++rank) {
    if (rank > 0) (*tensors)->Restore();
    assay_load request{};
    request.size = sizeof request;
    request.rank = rank;
    request.layer = script_.load_layer;
    request.plan = script_.plan.c_str();
    request.tensor_count = (*tensors)->count();
    request.tensors = (*tensors)->array();
    const std::string what = fmt::format("{} of rank {}", which, rank);
    const int status =
        Call(Phase::kLoad, what, [&] { return engine_.load(session_, &request, raw_error()); });
    (*tensors)->Check(what, recorder_);
    // Another pattern in each pass: results that depend on it differ.
    (*tensors)->Overwrite(std::byte(recorder_->pass() == 0 ? 0xa5 : 0x5a));
    const Stop stop = Judge(status, Phase::kLoad, what);
    if (stop.stopped()) return stop;
  }
  return {};
}

Stop Session::Load() {
  if (script_.tensors.empty() && script_.plan.empty()) return {};
  if (engine_.load == nullptr) {
    return {Ending::kUnsupported, Phase::kLoad, "load: the engine has no such function"};
  }
  if (script_.decoys.empty()) return LoadAll("load", script_.tensors, &tensors_);
  const Stop stop = LoadAll("first load", script_.decoys, &decoys_);
  if (stop.stopped()) return stop;
  return LoadAll("second load", script_.tensors, &tensors_);
}

Stop Session::ExportOne(const ShardKey& key) {
  assay_shard shard{};
  shard.size = sizeof shard;
  const std::string what = AtRank("export of", key.component, key.rank);
  const int status = Call(Phase::kExport, what, [&] {
    return engine_.export_shard(session_, key.rank, key.component.c_str(), &shard, raw_error());
  });
  if (status == ASSAY_UNSUPPORTED) return {};
  const Stop stop = Judge(status, Phase::kExport, what);
  if (stop.stopped()) return stop;
  const std::string wrong = Complain(shard);
  if (wrong.empty()) {
    RecordShard(key, shard);
  } else {
    recorder_->Violation(fmt::format("{}: {}", what, wrong));
  }
  return {};
}

void Session::RecordShard(const ShardKey& key, const assay_shard& shard) {
  ExportedShard copy;
  copy.layout = shard.layout;
  copy.dtype = static_cast<DType>(shard.dtype);
  copy.total_rows = shard.total_rows;
  copy.first_row = shard.first_row;
  copy.rows = shard.rows;
  copy.columns = shard.columns;
  copy.method = TextOrNothing(shard.method);
  copy.kernel = TextOrNothing(shard.kernel);
  recorder_->Shard(key, copy, {static_cast<const std::byte*>(shard.data), shard.bytes});
}

Stop Session::Export() {
  if (engine_.export_shard == nullptr) return {};
  for (const ShardKey& key : script_.exports) {
    const Stop stop = ExportOne(key);
    if (stop.stopped()) return stop;
  }
  return {};
}

Stop Session::Ops() {
  for (const OpCall& op : script_.ops) {
    ++calls_;
    const std::string what = AtRank("op", op.tap, op.rank);
    if (engine_.run_op == nullptr) continue;
    InputSet inputs("input", op.inputs, poison_, InputSet::Memory::kCopied);
    OutputTensor output(op.output, poison_);
    if (!inputs.ok() || !output.ok()) return NoMemory(Phase::kRun, what);
    assay_op request{};
    request.size = sizeof request;
    request.rank = op.rank;
    request.tap = op.tap.c_str();
    request.input_count = inputs.count();
    request.inputs = inputs.array();
    request.output_count = 1;
    request.outputs = output.tensor();
    const int step = NextStep(op.tap, op.rank);
    host_.set_step(step);
    const int status =
        Call(Phase::kRun, what, [&] { return engine_.run_op(session_, &request, raw_error()); });
    inputs.Check(what, recorder_);
    output.Check(recorder_);
    const Stop stop = Judge(status, Phase::kRun, what);
    if (stop.ending == Ending::kUnsupported) {
      if (recorder_->pass() == 0) recorder_->Note(stop.message);
      continue;
    }
    if (stop.stopped()) return stop;
    ++supported_;
    recorder_->Tap({step, op.tap, op.rank}, op.output.dtype, op.output.shape, output.bytes());
  }
  return {};
}

Stop Session::Runs() {
  if (script_.runs.empty()) return {};
  if (engine_.run == nullptr) {
    return {Ending::kUnsupported, Phase::kRun, "run: the engine has no such function"};
  }
  for (size_t step = 0; step < script_.runs.size(); ++step) {
    const RunCall& run = script_.runs[step];
    const std::string what = fmt::format("run of {}, step {}", run.scope, step);
    InputSet inputs("input", run.inputs, poison_, InputSet::Memory::kCopied);
    if (!inputs.ok()) return NoMemory(Phase::kRun, what);
    assay_run request{};
    request.size = sizeof request;
    request.scope = run.scope.c_str();
    request.layer = run.layer;
    request.token_count = static_cast<int32_t>(run.tokens.size());
    request.tokens = run.tokens.data();
    request.first_position = run.first_position;
    request.input_count = inputs.count();
    request.inputs = inputs.array();
    host_.set_step(static_cast<int>(step));
    const int status =
        Call(Phase::kRun, what, [&] { return engine_.run(session_, &request, raw_error()); });
    inputs.Check(what, recorder_);
    const Stop stop = Judge(status, Phase::kRun, what);
    if (stop.stopped()) return stop;
  }
  return {};
}

Stop Session::ReduceOne(const ReduceCall& reduce) {
  const std::string what = fmt::format("{} {}", reduce.kind, reduce.tap);
  InputSet inputs("partial sum", reduce.inputs, poison_, InputSet::Memory::kCopied);
  const bool scatter = !reduce.outputs.empty();
  std::vector<OutputTensor> outputs;
  for (const HostTensor& wanted : reduce.outputs) outputs.emplace_back(wanted, poison_);
  if (!scatter) outputs.emplace_back(reduce.output, poison_);
  std::vector<assay_tensor> described;
  for (OutputTensor& output : outputs) {
    if (!output.ok()) return NoMemory(Phase::kRun, what);
    described.push_back(*output.tensor());
  }
  if (!inputs.ok()) return NoMemory(Phase::kRun, what);
  assay_reduce request{};
  request.size = sizeof request;
  request.tap = reduce.tap.c_str();
  request.rank_count = inputs.count();
  request.inputs = inputs.array();
  request.kind = reduce.kind.c_str();
  request.output = scatter ? nullptr : described.data();
  request.output_count = scatter ? static_cast<uint32_t>(described.size()) : 0;
  request.outputs = scatter ? described.data() : nullptr;
  const HostTensor& first = scatter ? reduce.outputs[0] : reduce.output;
  const int step = NextStep(reduce.tap, first.rank);
  host_.set_step(step);
  const int status =
      Call(Phase::kRun, what, [&] { return engine_.reduce(session_, &request, raw_error()); });
  inputs.Check(what, recorder_);
  for (const OutputTensor& output : outputs) output.Check(recorder_);
  const Stop stop = Judge(status, Phase::kRun, what);
  if (stop.ending == Ending::kUnsupported) {
    if (recorder_->pass() == 0) recorder_->Note(stop.message);
    return {};
  }
  if (stop.stopped()) return stop;
  ++supported_;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const HostTensor& wanted = scatter ? reduce.outputs[i] : reduce.output;
    recorder_->Tap({step, reduce.tap, wanted.rank}, wanted.dtype, wanted.shape, outputs[i].bytes());
  }
  return {};
}

Stop Session::Reduces() {
  for (const ReduceCall& reduce : script_.reduces) {
    ++calls_;
    if (engine_.reduce == nullptr) continue;
    const Stop stop = ReduceOne(reduce);
    if (stop.stopped()) return stop;
  }
  return {};
}

Stop Session::Run() {
  for (Stop (Session::*part)() : {&Session::Open, &Session::Load, &Session::Export, &Session::Ops,
                                  &Session::Runs, &Session::Reduces}) {
    const Stop stop = (this->*part)();
    if (stop.stopped()) return stop;
  }
  if (calls_ > 0 && supported_ == 0 && script_.runs.empty()) {
    return {Ending::kUnsupported, Phase::kRun,
            fmt::format("the engine supports none of the {} calls", calls_)};
  }
  if (engine_.close != nullptr) {
    Call(Phase::kDone, "close", [&] {
      engine_.close(session_);
      return ASSAY_OK;
    });
  }
  // Judge again: what was given at the very end may have found no room.
  return Judge(ASSAY_OK, Phase::kDone, "close");
}

}  // namespace assay::abi
