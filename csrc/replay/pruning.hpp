// Pruning a collective to the sandbox and its neighbours: which messages are left of an algorithm when only some
// members of a group are real, and what assistants, which play their virtual neighbours, send into the sandbox so that
// every sandbox member gets what the whole group would have computed. How and why: docs/design/pruning.md.
//
// A plan is a program for each sandbox member and each assistant. Whoever executes it needs to know no algorithm:
//   - Everybody goes through their steps in order. Messages of one `step` may be under way at the same time, but what
//   is
//     sent is what was there when the step began, and the next step begins when all of this one is done.
//   - Messages in one step between the same two carry their chunks in ascending order, and may be sent as one. Chunks
//     that are empty (chunk_range()) are not sent.
//   - All values that pass are of the collective's type. For AVG they are sums; each sandbox member divides what it has
//     in the end by the number of the group's members, absent ones included (divide() of reduction.hpp).
//   - The *virtual part* of a chunk is what all virtual members put in together, as docs/design/prismdata.md defines
//   it;
//     of a broadcast the root's tensor, of an all_gather the owner's block.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.hpp"
#include "simulate/schedule.hpp"

namespace prism {

// A sandbox member's; its chunks are of its own tensor (reduce_scatter, all_gather: of all blocks).
struct MemberStep {
  enum class Kind : std::uint8_t {
    kSend,     // the chunk, as it is
    kCombine,  // what comes is reduced into the chunk
    kTake,     // what comes takes the chunk's place
  };
  Kind kind;
  std::int32_t step;  // of the algorithm, from 0
  std::int32_t peer;  // group rank
  std::int32_t chunk;
};

// An assistant's. It has numbered buffers, each of one chunk.
struct AssistantStep {
  enum class Kind : std::uint8_t {
    kCombine,  // buffer = reduce(virtual part of the chunk where `virtual_part`, sources), rounded once; no message
    kSend,     // the buffer; kIdentity: what the reduction leaves everything alone with
    kReceive,  // into the buffer; kDropped: nobody needs it
  };
  static constexpr std::int32_t kIdentity = -1, kDropped = -1;
  Kind kind;
  bool virtual_part = false;
  std::int32_t step;
  std::int32_t member = -1, peer = -1;  // group ranks: the virtual one that is played, the sandbox member
  std::int32_t chunk;
  std::int32_t buffer;
  std::uint32_t first_source = 0, sources = 0;  // kCombine: of Assistant::sources; none of them is `buffer`
};

struct SandboxMember {
  std::int32_t member;
  std::vector<MemberStep> steps;
};

// Plays neighbours that need each other's values. Different ones need nothing of each other.
struct Assistant {
  std::vector<std::int32_t> members;  // that it plays, ascending
  std::vector<AssistantStep> steps;
  std::vector<std::int32_t> sources;  // buffers
  std::int32_t buffers = 0;
};

struct PrunedCollective {
  std::int32_t members = 0, steps = 0;
  std::int32_t chunks = 0, blocks = 1;  // chunk_range()
  std::vector<SandboxMember> sandbox;   // ascending
  std::vector<Assistant> assistants;    // by their first members
  // Pairs of members, in one direction, that exchange messages; and chunks that pass between them.
  std::int64_t edges_within = 0, edges_across = 0;
  std::int64_t messages = 0, unpruned_messages = 0;
};

// `sandbox`: group ranks in any order. Algorithms, as simulate::make_schedule() names them (empty: the default):
//   ring                all_reduce, reduce_scatter, all_gather, broadcast, reduce
//   segmented_ring      all_reduce, all_gather
//   tree                all_reduce, broadcast, reduce
//   halving_doubling    all_reduce
//   recursive_doubling  all_reduce
// kInvalidInput: as of make_schedule(); another algorithm; a sandbox that is empty, has a member twice or one that
// there is not; a plan of more than 2^26 steps.
Result<PrunedCollective> prune(const simulate::CollectiveShape& shape, std::string_view algorithm,
                               std::span<const std::int32_t> sandbox);

// The virtual members with which sandbox members have messages: whom assistants play. Where an algorithm is not pruned,
// all others; a barrier's by dissemination, and a gather's and scatter's by tree, are told, too.
struct Neighbours {
  std::vector<std::int32_t> members;  // group ranks, ascending
  bool pruned = true;
};
Result<Neighbours> neighbours(const simulate::CollectiveShape& shape, std::string_view algorithm,
                              std::span<const std::int32_t> sandbox);

// The elements [first, last) of a chunk in a tensor of so many elements (a multiple of `blocks`): each block is cut
// into equal chunks of whole elements, of which the last ones may be shorter or empty.
struct ElementRange {
  std::int64_t first, last;
};
ElementRange chunk_range(std::int64_t elements, std::int32_t blocks, std::int32_t chunks, std::int32_t chunk);

}  // namespace prism
