// What a rank holds of its memory, in bytes: the program's tensors, and beside them what its communicators would hold.
#pragma once
#include <cstdint>

namespace prism {

inline constexpr std::int64_t kNoMemoryLimit = INT64_MAX;

struct MemoryInUse {
  std::int64_t tensors = 0, tensors_peak = 0;
  std::int64_t communicators = 0, communicators_peak = 0;
  std::int64_t peak = 0;                // of both together
  std::int64_t limit = kNoMemoryLimit;  // for both together
};

}  // namespace prism
