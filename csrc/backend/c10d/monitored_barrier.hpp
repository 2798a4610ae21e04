// monitoredBarrier() under capture: group rank 0 hears from every member and says who did not come.
#pragma once
#include <chrono>
#include <cstdint>

#include "backend/c10d/call.hpp"
#include "backend/client/rank_client.hpp"

namespace prism {

// Blocks until all members are here. Throws what Gloo throws: at rank 0 the first member (or with `wait_all_ranks` all
// members) from which nothing came within `timeout`, at the others that rank 0 did not answer. `number` counts the
// group's monitored barriers.
void monitored_barrier(RankClient& client, GroupHandle handle, const GroupInfo& group, std::uint64_t number,
                       std::chrono::milliseconds timeout, bool wait_all_ranks);

}  // namespace prism
