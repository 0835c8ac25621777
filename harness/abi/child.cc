#include "harness/abi/child.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "harness/abi/child_main.h"
#include "harness/abi/host.h"
#include "harness/abi/transfer.h"
#include "harness/abi/watch.h"

namespace assay::abi {
namespace {

// The script is the harness's own; a contradiction in it must not look like an engine's fault.
std::string Complain(const HostTensor& tensor, bool has_data) {
  uint64_t bytes = 0;
  if (tensor.shape.size() > 4) return "has more than 4 dimensions";
  if (!SizeInBytes(tensor.shape.data(), tensor.shape.size(), tensor.dtype, &bytes)) {
    return "has an extent that is negative or too large";
  }
  if (!has_data) return "";
  if (bytes != tensor.bytes) {
    return fmt::format("has {} bytes; its shape and type need {}", tensor.bytes, bytes);
  }
  return bytes != 0 && tensor.data == nullptr ? "has no data" : "";
}

std::string Complain(const Script& script) {
  std::string wrong;
  const auto look = [&](const HostTensor& tensor, bool has_data) {
    const std::string what = Complain(tensor, has_data);
    if (wrong.empty() && !what.empty()) wrong = fmt::format("script: {} {}", tensor.name, what);
  };
  const auto look_all = [&](const std::vector<HostTensor>& tensors) {
    for (const HostTensor& tensor : tensors) look(tensor, true);
  };
  look_all(script.tensors);
  look_all(script.decoys);
  for (const OpCall& op : script.ops) {
    look_all(op.inputs);
    look(op.output, false);
  }
  for (const RunCall& run : script.runs) look_all(run.inputs);
  for (const ReduceCall& reduce : script.reduces) {
    look_all(reduce.inputs);
    for (const HostTensor& output : reduce.outputs) look(output, false);
    if (reduce.outputs.empty()) look(reduce.output, false);
  }
  if (wrong.empty() && script.tp < 1) wrong = "script: tp is below 1";
  if (wrong.empty() && script.engine == nullptr && script.library.empty()) {
    wrong = "script: neither an engine nor a library";
  }
  return wrong;
}

// Puts records into an Outcome. Every number is checked: an engine can write what it likes.
class Unpacker {
 public:
  explicit Unpacker(Outcome* outcome) : outcome_(outcome) {}

  bool ended() const { return ended_; }
  const std::string& mark() const { return mark_; }
  const std::string& fault() const { return fault_; }

  // false: this is no such record.
  bool Take(Record* record) {
    MetaReader meta(record->meta);
    switch (record->type) {
      case RecordType::kMark:
        return TakePhase(meta.Number()) && (mark_ = CleanLine(meta.Text()), meta.complete());
      case RecordType::kHello:
        outcome_->engine_name = CleanLine(meta.Text());
        outcome_->engine_revision = CleanLine(meta.Text());
        outcome_->describe_json = CleanText(meta.Text());
        return meta.complete();
      case RecordType::kTap:
        return TakeTap(&meta, record);
      case RecordType::kShard:
        return TakeShard(&meta, record);
      case RecordType::kExecuted:
        return TakeExecuted(&meta);
      case RecordType::kNote:
        outcome_->notes.push_back(CleanLine(meta.Text()));
        return meta.complete();
      case RecordType::kFault:
        return TakeFault(&meta);
      case RecordType::kEnd:
        return TakeEnd(&meta, *record);
    }
    return false;
  }

 private:
  bool TakePhase(int64_t number) {
    if (number < 0 || number > static_cast<int64_t>(Phase::kDone)) return false;
    outcome_->phase = static_cast<Phase>(number);
    return true;
  }

  static bool ReadType(MetaReader* meta, DType* out) {
    const int64_t number = meta->Number();
    if (number < 0 || number > static_cast<int64_t>(DType::kNvfp4Block)) return false;
    *out = static_cast<DType>(number);
    return true;
  }

  template <size_t n>
  static void CleanArray(char (&text)[n]) {
    const std::string clean = CleanLine({text, strnlen(text, n - 1)});  // never gets longer
    std::memset(text, 0, n);
    std::memcpy(text, clean.data(), clean.size());
  }

  bool TakeTap(MetaReader* meta, Record* record) {
    TapKey key;
    TapValue value;
    key.step = static_cast<int>(meta->Number());
    key.tap = CleanLine(meta->Text());
    key.rank = static_cast<int>(meta->Number());
    if (!ReadType(meta, &value.dtype)) return false;
    const int64_t dimensions = meta->Number();
    if (dimensions < 0 || dimensions > 4) return false;
    for (int64_t i = 0; i < dimensions; ++i) value.shape.push_back(meta->Number());
    uint64_t bytes = 0;
    if (!meta->complete() ||
        !SizeInBytes(value.shape.data(), value.shape.size(), value.dtype, &bytes) ||
        bytes != record->data.size()) {
      return false;
    }
    value.bytes = std::move(record->data);
    outcome_->trace.taps.insert_or_assign(std::move(key), std::move(value));
    return true;
  }

  bool TakeShard(MetaReader* meta, Record* record) {
    ShardKey key;
    ExportedShard shard;
    key.component = CleanLine(meta->Text());
    key.rank = static_cast<int>(meta->Number());
    shard.layout = CleanLine(meta->Text());
    if (!ReadType(meta, &shard.dtype)) return false;
    for (int64_t* extent : {&shard.total_rows, &shard.first_row, &shard.rows, &shard.columns}) {
      *extent = meta->Number();
      if (*extent < 0) return false;
    }
    shard.method = CleanLine(meta->Text());
    shard.kernel = CleanLine(meta->Text());
    if (!meta->complete()) return false;
    shard.bytes = std::move(record->data);
    outcome_->trace.shards.insert_or_assign(std::move(key), std::move(shard));
    return true;
  }

  bool TakeExecuted(MetaReader* meta) {
    ExecutedRecord executed;
    executed.tap = CleanLine(meta->Text());
    executed.rank = static_cast<int>(meta->Number());
    for (std::string* text :
         {&executed.kernel, &executed.tier, &executed.layout, &executed.act, &executed.how}) {
      *text = CleanLine(meta->Text());
    }
    executed.threads = static_cast<int>(meta->Number());
    if (!meta->complete()) return false;
    outcome_->trace.executed.push_back(std::move(executed));
    return true;
  }

  bool TakeFault(MetaReader* meta) {
    const int64_t distance = meta->Number();
    const std::string label = CleanLine(meta->Text());
    if (!meta->complete()) return false;
    fault_ = distance < 0 ? fmt::format("it touched memory {} bytes before the start of {}",
                                        -distance, label)
                          : fmt::format("it touched byte {} past the end of {}", distance, label);
    return true;
  }

  bool TakeEnd(MetaReader* meta, const Record& record) {
    const int64_t ending = meta->Number();
    const bool phase = TakePhase(meta->Number());
    const std::string message = CleanLine(meta->Text());
    if (!phase || !meta->complete() || ending < 0 ||
        ending > static_cast<int64_t>(Ending::kInfra) ||
        record.data.size() != sizeof(assay_error)) {
      return false;
    }
    outcome_->ending = static_cast<Ending>(ending);
    outcome_->message = message;
    assay_error* error = &outcome_->error;
    std::memcpy(error, record.data.data(), sizeof(assay_error));
    CleanArray(error->message);
    CleanArray(error->tensor);
    CleanArray(error->axis);
    CleanArray(error->got_unit);
    CleanArray(error->expected_unit);
    ended_ = true;
    return true;
  }

  Outcome* outcome_;
  bool ended_ = false;
  std::string mark_, fault_;
};

// Reads all records; returns what is wrong with them, empty if nothing is.
std::string Unpack(int transfer, Unpacker* unpacker) {
  RecordReader reader(transfer);
  for (;;) {
    Result<std::optional<Record>> record = reader.Next();
    if (!record) return record.error().message;
    if (!record->has_value()) return "";
    if (!unpacker->Take(&**record)) return "the transfer from the child holds a wrong record";
  }
}

std::string SignalName(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("SIG{}", name);
}

// The ending of a child that did not say how it ended.
void Explain(const Watched& watched, const Unpacker& unpacker, Outcome* outcome) {
  const std::string during =
      unpacker.mark().empty() ? "" : fmt::format(" during {}", unpacker.mark());
  if (watched.timed_out) {
    outcome->ending = Ending::kTimedOut;
    outcome->message = fmt::format("still running after {:.0f} ms{}", watched.ms, during);
    return;
  }
  if (!watched.status_known) {
    outcome->ending = Ending::kInfra;
    outcome->message = "the child's status was taken by somebody else";
    return;
  }
  outcome->ending = Ending::kCrashed;
  if (WIFEXITED(watched.status)) {
    outcome->message = fmt::format("called exit({}){}", WEXITSTATUS(watched.status), during);
    return;
  }
  outcome->signal = WTERMSIG(watched.status);
  const std::string fault = unpacker.fault().empty() ? "" : ": " + unpacker.fault();
  outcome->message = fmt::format("died of {}{}{}", SignalName(outcome->signal), during, fault);
  if (outcome->signal == SIGXCPU) outcome->ending = Ending::kTimedOut;
  if (outcome->signal == SIGKILL) {
    outcome->ending = Ending::kOutOfMemory;
    outcome->message += "; the harness did not send it, so the system's memory may have run out";
  }
  if (outcome->signal == SIGABRT && outcome->output.find("std::bad_alloc") != std::string::npos) {
    outcome->ending = Ending::kOutOfMemory;
  }
}

Outcome Infra(std::string message) {
  Outcome outcome;
  outcome.message = std::move(message);
  return outcome;
}

}  // namespace

std::string_view NameOf(Phase phase) {
  constexpr std::string_view kNames[] = {"start", "open", "load", "export", "run", "done"};
  return kNames[static_cast<size_t>(phase)];
}

std::string_view NameOf(Ending ending) {
  constexpr std::string_view kNames[] = {"finished",      "unsupported", "refused",
                                         "failed",        "crashed",     "timed out",
                                         "out of memory", "dirty",       "infra"};
  return kNames[static_cast<size_t>(ending)];
}

Outcome RunInChild(const Script& script) {
  const std::string wrong = Complain(script);
  if (!wrong.empty()) return Infra(wrong);
  Descriptor transfer(memfd_create("assay-transfer", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!transfer.ok()) {
    return Infra(fmt::format("no memory file for the transfer: {}", std::strerror(errno)));
  }
  Result<Watched> watched = RunWatched(
      [&](int output, pid_t parent) { ChildMain(script, transfer.get(), output, parent); },
      script.time_limit_ms);
  if (!watched) return Infra(watched.error().message);
  // Whoever still holds it shall not change it while it is read. That this may fail (a mapping is
  // left) is no matter: the reader checks its own copies.
  fcntl(transfer.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);

  Outcome outcome;
  outcome.ms = watched->ms;
  outcome.output = CleanText(watched->output);
  Unpacker unpacker(&outcome);
  std::string damage;
  try {
    damage = Unpack(transfer.get(), &unpacker);
  } catch (const std::exception& exception) {
    return Infra(fmt::format("cannot take over the child's trace: {}", exception.what()));
  }
  if (!unpacker.ended()) {
    Explain(*watched, unpacker, &outcome);
    if (!damage.empty()) outcome.notes.push_back(damage);
  }
  if (!unpacker.ended() && !damage.empty() && watched->status_known && WIFEXITED(watched->status) &&
      !watched->timed_out) {
    outcome.ending = Ending::kDirty;
    outcome.message = damage;
  }
  if (watched->left_behind > 0) {
    outcome.notes.push_back(
        fmt::format("left {} processes behind, which were killed", watched->left_behind));
  }
  return outcome;
}

}  // namespace assay::abi
