// What ranks ask of the coordinator: operations on pieces of the run's shared memory.
#pragma once
#include <chrono>
#include <cstdint>
#include <vector>

#include "core/vocabulary.hpp"

namespace prism {

// A piece of the run's one shared memory file, which every rank and the coordinator map.
struct Region {
  std::uint64_t offset = 0, bytes = 0;
};

// From here on, Operation::number of messages of our own making, of which the trace knows nothing.
inline constexpr std::uint64_t kNotInTrace = std::uint64_t{1} << 62;

// Tensors that lie one behind the other begin at multiples of this.
constexpr std::uint64_t padded(std::uint64_t bytes) {
  constexpr std::uint64_t kAlignment = 64;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

using GroupHandle = std::uint32_t;
using WorkId = std::uint64_t;

// One operation as one member issues it. `inputs` by op (N members, k tensors):
//   all_reduce*, reduce: k           broadcast: k at the root, none elsewhere     barrier: none
//   all_gather*, gather: k           scatter: N at the root, none elsewhere       send: 1, recv: none
//   reduce_scatter*: N*k, destination-major     all_to_all*: N, one per destination
// and what comes out (Outcome::regions):
//   all_reduce*: k    reduce: k at the root    broadcast: k (none at the root)    recv: 1
//   all_gather*: N*k, member-major    gather: N*k at the root    scatter: 1    reduce_scatter*: k    all_to_all*: N,
//   one per source
struct Operation {
  GroupHandle group = 0;
  Op op = Op::kNone;
  DType dtype = DType::kNone;
  ReduceOp reduce_op = ReduceOp::kNone;
  std::int32_t root = -1;  // group rank
  std::int32_t peer = -1;  // group rank of the other end of a message
  std::int32_t tag = 0;
  std::uint64_t seq = 0;  // collectives: per group, from 0, the same on all members
  // As the trace counts, from 0: collectives per group, monitored barriers too, which not all members need to call;
  // sends per group, destination and tag.
  std::uint64_t number = 0;
  std::vector<std::uint64_t> output_bytes;  // what this member expects, one per outcome region; checked on completion
  std::vector<std::vector<std::int64_t>> shapes;  // of this member's tensors, for mismatch reports
  std::vector<Region> inputs;
  std::chrono::nanoseconds timeout{0};  // 0: none of its own
};

}  // namespace prism
