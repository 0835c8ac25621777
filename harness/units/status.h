// Errors that a person reads: one line that says what is wrong, where, and what is allowed.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace assay {

enum class ErrorKind {
  kBadInput,     // a file, a string or an option from outside is wrong: exit 2
  kRefused,      // the configuration is illegal for this checkpoint
  kUnsupported,  // legal, but not built or not known here
  kEnvironment,  // the machine lacks something: memory, a file, a capability
};

struct Error {
  std::string message;
  ErrorKind kind = ErrorKind::kBadInput;
};

// A value or an Error. Reading the value of a failed Result is a programming error and aborts.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  const T& value() const& {
    assert(ok());
    return std::get<0>(state_);
  }
  T& value() & {
    assert(ok());
    return std::get<0>(state_);
  }
  T&& value() && {
    assert(ok());
    return std::get<0>(std::move(state_));
  }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

  const Error& error() const {
    assert(!ok());
    return std::get<1>(state_);
  }

 private:
  std::variant<T, Error> state_;
};

struct Unit {};
// For functions that only succeed or fail: `return Ok();`
using Status = Result<Unit>;
inline Status Ok() { return Status(Unit{}); }

}  // namespace assay
