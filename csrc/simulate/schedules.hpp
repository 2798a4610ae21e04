// The algorithms behind make_schedule(), one function each. N members, `part` bytes a member.
#pragma once
#include <cstdint>
#include <memory>

#include "simulate/schedule.hpp"

namespace prism::simulate::schedules {

using SchedulePtr = std::unique_ptr<Schedule>;

inline std::int64_t divided(std::int64_t bytes, std::int64_t by) { return bytes / by + (bytes % by != 0); }

// `rounds` times around, with N - 1 steps each.
SchedulePtr ring(const CollectiveShape& shape, int rounds);
SchedulePtr segmented_ring(const CollectiveShape& shape);
SchedulePtr hierarchical_ring(const CollectiveShape& shape);
SchedulePtr direct(const CollectiveShape& shape);
SchedulePtr pairwise(const CollectiveShape& shape);
SchedulePtr dissemination(const CollectiveShape& shape);
SchedulePtr binomial(const CollectiveShape& shape);
SchedulePtr double_binary_tree(const CollectiveShape& shape);
SchedulePtr halving_doubling(const CollectiveShape& shape);

}  // namespace prism::simulate::schedules
