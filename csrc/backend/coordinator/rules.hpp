// What each operation demands of its members, and which pieces of memory come out of it. No state.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "backend/coordinator/exchange.hpp"
#include "backend/coordinator/executor.hpp"
#include "core/result.hpp"

namespace prism::rules {

// The families of operations that share their rules.
enum class Family { kAllReduce, kReduce, kBroadcast, kAllGather, kGather, kScatter, kReduceScatter, kAllToAll, kNone };
Family family(Op op);

// "all_reduce(float32, sum, shapes [[4, 4]], 64 bytes in, 64 bytes out)"
std::string describe(const Operation& operation);

// One member's call in itself: numbers of tensors, roots and peers in range, sizes in whole elements.
Result<void> check_call(const Operation& operation, int members, int member);
// A later member of a collective against the first that came.
Result<void> check_members(const Exchange& exchange, const Arrival& later);
// What can only be compared when all members have come, as the split sizes of an all_to_all.
Result<void> check_complete(const Exchange& exchange);

// Bytes of each result of a reduction: k (all_reduce, reduce) or N*k (reduce_scatter, destination-major).
std::vector<std::uint64_t> result_bytes(const Exchange& exchange);
// The regions that arrival number `index` gets; `results` as in result_bytes().
std::vector<Region> outcome(const Exchange& exchange, std::size_t index, std::span<const Region> results);

// Bytes of what a member that never comes puts in, as far as those who have come get it: what they expect of it. 0, or
// nothing, where nobody does, and of reductions. Of a message the sender is member 0.
std::vector<std::uint64_t> expected_of(const Exchange& exchange, std::size_t member);

}  // namespace prism::rules
