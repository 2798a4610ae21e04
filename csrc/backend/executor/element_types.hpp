// torch's element types and the vocabulary's.
#pragma once
#include <c10/core/ScalarType.h>

#include "core/vocabulary.hpp"

namespace prism {

// kNone where the vocabulary has no such type.
DType dtype_of(at::ScalarType type);
at::ScalarType scalar_type(DType dtype);

}  // namespace prism
