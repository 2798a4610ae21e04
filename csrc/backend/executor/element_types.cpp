#include "backend/executor/element_types.hpp"

namespace prism {

#define PRISM_SCALAR_TYPES(X)                 \
  X(at::kDouble, DType::kFloat64)             \
  X(at::kFloat, DType::kFloat32)              \
  X(at::kHalf, DType::kFloat16)               \
  X(at::kBFloat16, DType::kBFloat16)          \
  X(at::kLong, DType::kInt64)                 \
  X(at::kInt, DType::kInt32)                  \
  X(at::kShort, DType::kInt16)                \
  X(at::kChar, DType::kInt8)                  \
  X(at::kByte, DType::kUInt8)                 \
  X(at::kBool, DType::kBool)                  \
  X(at::kUInt16, DType::kUInt16)              \
  X(at::kUInt32, DType::kUInt32)              \
  X(at::kUInt64, DType::kUInt64)              \
  X(at::kComplexFloat, DType::kComplex64)     \
  X(at::kComplexDouble, DType::kComplex128)   \
  X(at::kFloat8_e4m3fn, DType::kFloat8E4M3FN) \
  X(at::kFloat8_e5m2, DType::kFloat8E5M2)

DType dtype_of(at::ScalarType type) {
  switch (type) {
#define PRISM_CASE(scalar, dtype) \
  case scalar:                    \
    return dtype;
    PRISM_SCALAR_TYPES(PRISM_CASE)
#undef PRISM_CASE
    default:
      return DType::kNone;
  }
}

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
#define PRISM_CASE(scalar, dtype) \
  case dtype:                     \
    return scalar;
    PRISM_SCALAR_TYPES(PRISM_CASE)
#undef PRISM_CASE
    default:
      return at::ScalarType::Undefined;
  }
}

#undef PRISM_SCALAR_TYPES

}  // namespace prism
