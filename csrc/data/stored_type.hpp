// How the vocabulary's element types are called in a safetensors container. It has no complex128: that is stored as
// pairs of float64.
#pragma once
#include <cstdint>

#include "core/vocabulary.hpp"

namespace prism {

struct StoredType {
  const char* name = nullptr;           // nullptr: nothing is stored in this type
  std::uint64_t parts_per_element = 1;  // entries of the container per element
};

constexpr StoredType stored_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return {"F64"};
    case DType::kFloat32:
      return {"F32"};
    case DType::kFloat16:
      return {"F16"};
    case DType::kBFloat16:
      return {"BF16"};
    case DType::kInt64:
      return {"I64"};
    case DType::kInt32:
      return {"I32"};
    case DType::kInt16:
      return {"I16"};
    case DType::kInt8:
      return {"I8"};
    case DType::kUInt8:
      return {"U8"};
    case DType::kBool:
      return {"BOOL"};
    case DType::kUInt16:
      return {"U16"};
    case DType::kUInt32:
      return {"U32"};
    case DType::kUInt64:
      return {"U64"};
    case DType::kComplex64:
      return {"C64"};
    case DType::kComplex128:
      return {"F64", 2};
    case DType::kFloat8E4M3FN:
      return {"F8_E4M3"};
    case DType::kFloat8E5M2:
      return {"F8_E5M2"};
    default:
      return {};
  }
}

}  // namespace prism
