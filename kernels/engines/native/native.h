// The production engine behind the C ABI.
#pragma once

#include "harness/abi/assay_engine.h"
#include "kernels/faults/interceptor.h"

namespace assay::kernels {

// The engine. Static storage.
const assay_engine* NativeEngine();

// Its open() with an interceptor (nullptr: none), for kernels/faults. `hooks` must outlive the
// session; all other calls are NativeEngine()'s.
int OpenNative(const assay_open* request, const assay_host* host, const Interceptor* hooks,
               assay_session** session, assay_error* error);

}  // namespace assay::kernels
