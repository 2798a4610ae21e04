// The columns of a graph, once for memory and file: ColumnSet<Owned> grows in a GraphBuilder, ColumnSet<View> is what
// an ExecutionGraph reads, and a .prism file stores each under the name it has here (docs/design/trace.md).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.hpp"

namespace prism {

// X(element type, name), by descending element size: in this order every column of a file is aligned without padding.
// Offsets columns (`*_offset`) have one entry more than they have owners; owner i has [offset[i], offset[i + 1]).
#define PRISM_COLUMNS(X)                                                                    \
  X(std::uint64_t, class_node_offset)   /* [classes + 1] into node_* */                     \
  X(std::uint64_t, class_comm_offset)   /* [classes + 1] into comm_* */                     \
  X(std::uint64_t, class_edge_offset)   /* [classes + 1] into edge_* */                     \
  X(std::uint64_t, class_mark_offset)   /* [classes + 1] into mark_node */                  \
  X(std::uint64_t, class_lane_offset)   /* [classes + 1] into lane_name */                  \
  X(std::uint64_t, rank_timing_offset)  /* [world + 1] into start_ns, duration_ns */        \
  X(std::uint64_t, rank_memory_offset)  /* [world + 1] into memory_* */                     \
  X(std::uint64_t, rank_group_offset)   /* [world + 1] into rank_group */                   \
  X(std::uint64_t, rank_peer_offset)    /* [world + 1] into rank_peer */                    \
  X(std::uint64_t, group_member_offset) /* [groups + 1] into group_member */                \
  X(std::int64_t, start_ns)                                                                 \
  X(std::int64_t, duration_ns)                                                              \
  X(std::int64_t, memory_bytes)                                                             \
  X(std::int64_t, memory_peak)                                                              \
  X(std::int64_t, comm_seq)                                                                 \
  X(std::int64_t, comm_input_bytes)                                                         \
  X(std::int64_t, comm_output_bytes)                                                        \
  X(std::int32_t, rank_class)   /* [world] class, or -1 for a rank that was not recorded */ \
  X(std::uint32_t, rank_group)  /* group of each group slot */                              \
  X(std::int32_t, rank_peer)    /* global rank of each peer slot */                         \
  X(std::int32_t, group_member) /* global ranks in group-rank order */                      \
  X(std::int32_t, node_comm)                                                                \
  X(std::uint32_t, node_name)                                                               \
  X(std::uint32_t, comm_group)                                                              \
  X(std::int32_t, comm_peer)                                                                \
  X(std::int32_t, comm_tag)                                                                 \
  X(std::int32_t, comm_batch)                                                               \
  X(std::uint32_t, edge_src)                                                                \
  X(std::uint32_t, edge_dst)                                                                \
  X(std::uint32_t, mark_node)                                                               \
  X(std::uint32_t, lane_name)                                                               \
  X(std::uint32_t, memory_node)                                                             \
  X(std::uint16_t, node_lane)                                                               \
  X(std::uint8_t, node_kind)                                                                \
  X(std::uint8_t, comm_op)                                                                  \
  X(std::uint8_t, comm_dtype)                                                               \
  X(std::uint8_t, comm_reduce_op)                                                           \
  X(std::uint8_t, comm_flags)

// X(owner, name): the columns of ClassView; `class_<owner>_offset` cuts them into classes.
#define PRISM_CLASS_COLUMNS(X) \
  X(node, node_kind)           \
  X(node, node_lane)           \
  X(node, node_comm)           \
  X(node, node_name)           \
  X(comm, comm_op)             \
  X(comm, comm_dtype)          \
  X(comm, comm_reduce_op)      \
  X(comm, comm_flags)          \
  X(comm, comm_group)          \
  X(comm, comm_seq)            \
  X(comm, comm_peer)           \
  X(comm, comm_tag)            \
  X(comm, comm_batch)          \
  X(comm, comm_input_bytes)    \
  X(comm, comm_output_bytes)   \
  X(edge, edge_src)            \
  X(edge, edge_dst)            \
  X(mark, mark_node)           \
  X(lane, lane_name)

template <typename T>
using Owned = std::vector<T>;
template <typename T>
using View = std::span<const T>;

template <template <typename> class Array>
struct ColumnSet {
#define PRISM_FIELD(type, name) Array<type> name;
  PRISM_COLUMNS(PRISM_FIELD)
#undef PRISM_FIELD
};

// Calls f(name, column) for every column, in file order.
template <typename Set, typename Function>
void for_each_column(Set& set, Function&& f) {
#define PRISM_VISIT(type, name) f(std::string_view(#name), set.name);
  PRISM_COLUMNS(PRISM_VISIT)
#undef PRISM_VISIT
}

// What a graph holds beside its columns; in a file: the JSON text under __metadata__.prism.
struct GraphHeader {
  int world_size = 0;
  std::string progress_model = "conservative";
  bool timed = false;
  std::string metadata_json = "{}";
  std::vector<std::string> strings;
  std::vector<std::string> group_names;
};

}  // namespace prism
