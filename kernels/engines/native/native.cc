// The C ABI: structures in, exceptions out as assay_error.
#include "kernels/engines/native/native.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

#include "kernels/engines/native/describe.h"
#include "kernels/engines/native/session.h"
#include "kernels/loaders/engine_error.h"

struct assay_session {
  assay::kernels::native::Session session;
};

namespace assay::kernels {
namespace {

// The caller's structure, with zeros for members that its header did not have yet.
template <class T>
T Known(const T* request) {
  if (request == nullptr) throw EngineError(ASSAY_FAILED, "the request is NULL");
  T copy{};
  std::memcpy(&copy, request, std::min(request->size, sizeof copy));
  return copy;
}

native::Session& Checked(assay_session* session) {
  if (session == nullptr) throw EngineError(ASSAY_FAILED, "the session is NULL");
  return session->session;
}

// One line: control characters become spaces.
void Put(std::string_view text, char* to, size_t capacity) {
  const size_t length = std::min(text.size(), capacity - 1);
  std::transform(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length), to,
                 [](char c) { return static_cast<unsigned char>(c) < ' ' ? ' ' : c; });
  to[length] = 0;
}

int Report(const EngineError& e, assay_error* error) {
  if (error == nullptr) return e.status;
  assay_error full{};
  full.size = error->size;
  Put(e.message, full.message, sizeof full.message);
  Put(e.tensor, full.tensor, sizeof full.tensor);
  Put(e.axis, full.axis, sizeof full.axis);
  Put(e.got_unit, full.got_unit, sizeof full.got_unit);
  Put(e.expected_unit, full.expected_unit, sizeof full.expected_unit);
  full.got = e.got;
  full.expected = e.expected;
  std::memcpy(error, &full, std::min(error->size, sizeof full));
  return e.status;
}

// Runs one call of the ABI; nothing may be thrown through C.
template <class Call>
int Guarded(assay_error* error, Call call) {
  try {
    call();
    return ASSAY_OK;
  } catch (const EngineError& e) {
    return Report(e, error);
  } catch (const std::bad_alloc&) {
    return Report(EngineError(ASSAY_FAILED, "no memory"), error);
  } catch (const std::exception& e) {
    return Report(EngineError(ASSAY_FAILED, e.what()), error);
  }
}

const char* Describe() { return native::Description().c_str(); }

int Open(const assay_open* request, const assay_host* host, assay_session** session,
         assay_error* error) {
  return OpenNative(request, host, nullptr, session, error);
}

int Load(assay_session* session, const assay_load* request, assay_error* error) {
  return Guarded(error, [&] { Checked(session).Load(Known(request)); });
}

int ExportShard(assay_session* session, int32_t rank, const char* component, assay_shard* out,
                assay_error* error) {
  return Guarded(error, [&] {
    if (out == nullptr) throw EngineError(ASSAY_FAILED, "out is NULL");
    assay_shard full{};
    Checked(session).Export(rank, component == nullptr ? "" : component, &full);
    full.size = out->size == 0 ? sizeof full : out->size;
    std::memcpy(out, &full, std::min(full.size, sizeof full));
  });
}

int RunOp(assay_session* session, const assay_op* request, assay_error* error) {
  return Guarded(error, [&] { Checked(session).RunOp(Known(request)); });
}

int Reset(assay_session* session, assay_error* error) {
  return Guarded(error, [&] { Checked(session).Reset(); });
}

int Run(assay_session* session, const assay_run* request, assay_error* error) {
  return Guarded(error, [&] { Checked(session).Run(Known(request)); });
}

int Reduce(assay_session* session, const assay_reduce* request, assay_error* error) {
  return Guarded(error, [&] { Checked(session).Reduce(Known(request)); });
}

void Close(assay_session* session) { delete session; }

}  // namespace

int OpenNative(const assay_open* request, const assay_host* host, const Interceptor* hooks,
               assay_session** session, assay_error* error) {
  return Guarded(error, [&] {
    if (session == nullptr) throw EngineError(ASSAY_FAILED, "session is NULL");
    *session = new assay_session{native::Session(Known(request), host, hooks)};
  });
}

const assay_engine* NativeEngine() {
  static const assay_engine kEngine = {.size = sizeof(assay_engine),
                                       .version = ASSAY_ABI_VERSION,
                                       .name = "native",
                                       .revision = "1",
                                       .describe = Describe,
                                       .open = Open,
                                       .load = Load,
                                       .export_shard = ExportShard,
                                       .run_op = RunOp,
                                       .reset = Reset,
                                       .run = Run,
                                       .reduce = Reduce,
                                       .close = Close};
  return &kEngine;
}

}  // namespace assay::kernels
