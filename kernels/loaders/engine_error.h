// How the production engine says that something is wrong: thrown inside, caught at the C ABI, where
// it becomes an assay_error. One line of message, and the extents and units where they have
// meaning.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "harness/abi/assay_engine.h"
#include "harness/units/status.h"

namespace assay::kernels {

struct EngineError : std::exception {
  EngineError(int status, std::string text) : status(status), message(std::move(text)) {}
  explicit EngineError(const Error& error);
  const char* what() const noexcept override { return message.c_str(); }

  int status;  // ASSAY_UNSUPPORTED, ASSAY_REFUSED or ASSAY_FAILED
  std::string message;
  std::string tensor, axis, got_unit, expected_unit;
  int64_t got = 0, expected = 0;
};

inline EngineError::EngineError(const Error& error)
    : status(error.kind == ErrorKind::kUnsupported ? ASSAY_UNSUPPORTED
             : error.kind == ErrorKind::kRefused   ? ASSAY_REFUSED
                                                   : ASSAY_FAILED),
      message(error.message) {}

// The value, or its error thrown.
template <class T>
T ValueOrThrow(Result<T> result) {
  if (!result) throw EngineError(result.error());
  return std::move(result).value();
}

}  // namespace assay::kernels
