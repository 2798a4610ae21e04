// Result<T> at the edge to Python, the same in every module (operations of torch.distributed apart, which raise its own
// exceptions): kInvalidInput and kCorruptFile become ValueError, kIo OSError, all others RuntimeError. Call with the
// GIL held.
#pragma once
#include <pybind11/pybind11.h>

#include <utility>

#include "core/result.hpp"

namespace prism {

[[noreturn]] inline void throw_python_error(const Error& error) {
  PyObject* type = PyExc_RuntimeError;
  if (error.code == ErrorCode::kInvalidInput || error.code == ErrorCode::kCorruptFile) type = PyExc_ValueError;
  if (error.code == ErrorCode::kIo) type = PyExc_OSError;
  // A message may quote a file's bytes, which need not be UTF-8.
  const auto text = pybind11::reinterpret_steal<pybind11::object>(
      PyUnicode_DecodeUTF8(error.message.data(), static_cast<Py_ssize_t>(error.message.size()), "backslashreplace"));
  if (text) PyErr_SetObject(type, text.ptr());
  throw pybind11::error_already_set();
}

template <typename T>
T value_or_throw(Result<T> result) {
  if (!result) throw_python_error(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

// Runs long work, which may not touch Python objects, while other Python threads go on.
template <typename Work>
auto without_gil(Work&& work) {
  pybind11::gil_scoped_release release;
  return work();
}

}  // namespace prism
