// Result<T>: how every PrismLLM library reports failure; exceptions exist only at the c10d and Python edges.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace prism {

// What went wrong, as far as a caller may want to decide upon it. The text is for people.
enum class ErrorCode {
  kInvalidInput,  // a user's value, program or file is wrong
  kCorruptFile,   // a file's contents break the format
  kIo,            // the operating system refused (disk full, permission, no such file)
  kMismatch,      // members of a collective disagree
  kDeadlock,      // no rank can make progress
  kTimeout,       // a deadline passed
  kPeerFailed,    // another rank or process died or reported an error first
  kAborted,       // the run is being ended
  kInternal,      // an invariant of ours is broken
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // one sentence: what, where, the value, what is accepted
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

}  // namespace prism

#define PRISM_CONCAT_INNER(a, b) a##b
#define PRISM_CONCAT(a, b) PRISM_CONCAT_INNER(a, b)

// PRISM_RETURN_IF_ERROR(expr): leaves the enclosing Result-returning function with expr's error, if it has one.
#define PRISM_RETURN_IF_ERROR(expr)                                             \
  do {                                                                          \
    if (auto prism_result = (expr); !prism_result) return prism_result.error(); \
  } while (false)

// PRISM_ASSIGN_OR_RETURN(auto x, expr): declares x with expr's value, or leaves with its error.
#define PRISM_ASSIGN_OR_RETURN(declaration, expr) \
  PRISM_ASSIGN_OR_RETURN_INNER(PRISM_CONCAT(prism_result_, __LINE__), declaration, expr)
#define PRISM_ASSIGN_OR_RETURN_INNER(holder, declaration, expr) \
  auto holder = (expr);                                         \
  if (!holder) return holder.error();                           \
  declaration = std::move(holder).value()
