// Which process groups are left of a job when only some of its ranks are real: those without a real rank are never
// made, and of those that have both real and virtual members the real ones and their neighbours are enough, where the
// algorithms of what is communicated in them allow it (pruning.hpp).
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/result.hpp"
#include "graph/graph.hpp"

namespace prism {

struct GroupReduction {
  enum class Kind : std::uint8_t {
    kVanished,  // no member is in the sandbox
    kReal,      // all are
    kMixed,
  };
  struct Use {
    Op op;                  // kSend and kRecv: messages
    std::string algorithm;  // of collectives
    bool pruned;            // false: with all members, or messages from anybody
  };
  struct Group {
    std::uint32_t group;  // of the graph
    Kind kind;
    std::vector<std::int32_t> kept;  // global ranks, in group-rank order; none of a group that has vanished
    std::vector<Use> uses;           // of a mixed group, by its sandbox members
  };
  std::vector<Group> groups;  // all, as in the graph
  std::int64_t vanished = 0, real = 0, mixed = 0;
  // Ranks in groups, each counted in every group: of all groups, of those that are left, and of what is kept of them.
  std::int64_t members = 0, members_left = 0, members_kept = 0;
};

// `algorithms`: by operation (any of its variants), as simulate::make_schedule() names them; of others the default. A
// group in which no sandbox rank communicates keeps its sandbox members alone.
// kInvalidInput: a sandbox that is empty, a rank that there is not, that is named twice or was not recorded; an
// algorithm that is not the operation's.
Result<GroupReduction> reduce_groups(const ExecutionGraph& graph, std::span<const std::int32_t> sandbox,
                                     const std::map<Op, std::string>& algorithms = {});

// "vanished", "real", "mixed"
std::string_view name(GroupReduction::Kind kind);

}  // namespace prism
