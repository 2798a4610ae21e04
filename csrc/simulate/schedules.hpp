// The algorithms behind make_schedule(), one function each. N members, `part` bytes a member.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>

#include "simulate/schedule.hpp"

namespace prism::simulate::schedules {

using SchedulePtr = std::unique_ptr<Schedule>;

inline std::int64_t divided(std::int64_t bytes, std::int64_t by) { return bytes / by + (bytes % by != 0); }

// A tensor that passes in pieces which follow each other.
struct Pieces {
  explicit Pieces(std::int64_t tensor) {
    constexpr std::int64_t kPiece = 64 << 10, kMost = 128;
    count = static_cast<int>(std::clamp<std::int64_t>(divided(tensor, kPiece), 1, kMost));
    bytes = divided(tensor, count);
  }
  bool has(int index) const { return index >= 0 && index < count; }
  int count;
  std::int64_t bytes;  // of each
};

// `rounds` times around, with N - 1 steps each.
SchedulePtr ring(const CollectiveShape& shape, int rounds);
SchedulePtr chain(const CollectiveShape& shape);
SchedulePtr segmented_ring(const CollectiveShape& shape);
SchedulePtr hierarchical_ring(const CollectiveShape& shape);
SchedulePtr direct(const CollectiveShape& shape);
SchedulePtr pairwise(const CollectiveShape& shape);
SchedulePtr dissemination(const CollectiveShape& shape);
SchedulePtr binomial(const CollectiveShape& shape);
SchedulePtr double_binary_tree(const CollectiveShape& shape);
SchedulePtr halving_doubling(const CollectiveShape& shape);
SchedulePtr recursive_doubling(const CollectiveShape& shape);

}  // namespace prism::simulate::schedules
