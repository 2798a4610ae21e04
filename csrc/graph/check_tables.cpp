#include <unordered_set>

#include "graph/check.hpp"

namespace prism {
namespace {

Result<void> check_offsets(std::string_view name, View<std::uint64_t> offsets, std::size_t owners, std::size_t end,
                           const Where& where) {
  if (offsets.size() != owners + 1)
    return where.bad(fmt::format("{} has {} entries; accepted: {}", name, offsets.size(), owners + 1));
  if (offsets.front() != 0) return where.bad(name, 0, offsets.front(), "0");
  for (std::size_t i = 1; i < offsets.size(); ++i)
    if (offsets[i] < offsets[i - 1] || offsets[i] > end)
      return where.bad(name, i, offsets[i], fmt::format("{} to {}", offsets[i - 1], end));
  if (offsets.back() != end) return where.bad(name, owners, offsets.back(), fmt::format("{}", end));
  return {};
}

Result<void> check_groups(const GraphHeader& header, const ColumnSet<View>& c, const Where& where) {
  const auto groups = header.group_names.size();
  PRISM_RETURN_IF_ERROR(
      check_offsets("group_member_offset", c.group_member_offset, groups, c.group_member.size(), where));
  std::unordered_set<std::string_view> names;
  // last_group[rank] is the last group that named the rank: finds duplicates without a set per group.
  std::vector<std::size_t> last_group(header.world_size, groups);
  for (std::size_t g = 0; g < groups; ++g) {
    if (!names.insert(header.group_names[g]).second)
      return where.bad(fmt::format("groups[{}] is '{}', the name of an earlier group", g, header.group_names[g]));
    for (auto i = c.group_member_offset[g]; i < c.group_member_offset[g + 1]; ++i) {
      const auto member = c.group_member[i];
      if (member < 0 || member >= header.world_size)
        return where.bad("group_member", i, member, fmt::format("0 to {}", header.world_size - 1));
      if (last_group[member] == g) return where.bad("group_member", i, member, "each rank once in a group");
      last_group[member] = g;
    }
  }
  return {};
}

// A rank must be a member of every group it has a slot for.
Result<void> check_membership(const GraphHeader& header, const ColumnSet<View>& c, const Where& where) {
  const auto groups = header.group_names.size();
  std::vector<std::vector<std::uint64_t>> slots_of_group(groups);
  std::vector<std::int32_t> rank_of_slot(c.rank_group.size());
  for (int rank = 0; rank < header.world_size; ++rank)
    for (auto i = c.rank_group_offset[rank]; i < c.rank_group_offset[rank + 1]; ++i) {
      if (c.rank_group[i] >= groups)
        return where.bad("rank_group", i, c.rank_group[i], fmt::format("below {} groups", groups));
      slots_of_group[c.rank_group[i]].push_back(i);
      rank_of_slot[i] = rank;
    }
  std::vector<std::size_t> last_group(header.world_size, groups), last_slot(header.world_size, groups);
  for (std::size_t g = 0; g < groups; ++g) {
    for (auto i = c.group_member_offset[g]; i < c.group_member_offset[g + 1]; ++i) last_group[c.group_member[i]] = g;
    for (const auto slot : slots_of_group[g]) {
      const auto rank = rank_of_slot[slot];
      if (last_group[rank] != g)
        return where.bad("rank_group", slot, g, fmt::format("groups that rank {} is a member of", rank));
      if (last_slot[rank] == g) return where.bad("rank_group", slot, g, "each group once in a rank");
      last_slot[rank] = g;
    }
  }
  return {};
}

// Ranks of a class have the same number of slots, and groups of the same size in them; a class has a rank.
Result<void> check_class_members(const GraphHeader& header, const ColumnSet<View>& c, const Where& where) {
  const auto classes = static_cast<std::int32_t>(c.class_node_offset.size() - 1);
  const auto length = [](View<std::uint64_t> offset, std::size_t i) { return offset[i + 1] - offset[i]; };
  std::vector<int> first(classes, -1);
  for (int rank = 0; rank < header.world_size; ++rank) {
    const auto cls = c.rank_class[rank];
    if (cls < -1 || cls >= classes) return where.bad("rank_class", rank, cls, fmt::format("-1 to {}", classes - 1));
    const auto groups = length(c.rank_group_offset, rank), peers = length(c.rank_peer_offset, rank);
    const auto times = length(c.rank_timing_offset, rank), steps = length(c.rank_memory_offset, rank);
    if (cls < 0) {
      if (groups + peers + times + steps != 0)
        return where.bad("rank_class", rank, cls, "a class, because the rank has data");
      continue;
    }
    const auto nodes = length(c.class_node_offset, cls);
    if (times != 0 && times != nodes)
      return where.bad("rank_timing_offset", rank + 1, c.rank_timing_offset[rank + 1],
                       fmt::format("0 or {} times for rank {}", nodes, rank));
    if (first[cls] < 0) first[cls] = rank;
    const int like = first[cls];
    if (groups != length(c.rank_group_offset, like))
      return where.bad("rank_group_offset", rank + 1, c.rank_group_offset[rank + 1],
                       fmt::format("as many group slots as rank {} of the same class", like));
    if (peers != length(c.rank_peer_offset, like))
      return where.bad("rank_peer_offset", rank + 1, c.rank_peer_offset[rank + 1],
                       fmt::format("as many peer slots as rank {} of the same class", like));
    for (std::size_t slot = 0; slot < groups; ++slot) {
      const auto mine = c.rank_group_offset[rank] + slot;
      if (length(c.group_member_offset, c.rank_group[mine]) !=
          length(c.group_member_offset, c.rank_group[c.rank_group_offset[like] + slot]))
        return where.bad("rank_group", mine, c.rank_group[mine],
                         fmt::format("groups as large as that of rank {} of the same class", like));
    }
  }
  for (std::int32_t cls = 0; cls < classes; ++cls)
    if (first[cls] < 0) return where.bad(fmt::format("rank_class names no rank of class {}", cls));
  return {};
}

}  // namespace

Result<void> check_tables(const GraphHeader& header, const ColumnSet<View>& c, const Where& where) {
  const auto world = c.rank_class.size();
  if (header.world_size < 1 || world != static_cast<std::size_t>(header.world_size))
    return where.bad(fmt::format("world_size is {} and rank_class has {} entries; accepted: equal, at least 1",
                                 header.world_size, world));
  if (c.class_node_offset.empty()) return where.bad("class_node_offset has 0 entries; accepted: at least 1");
  const auto classes = c.class_node_offset.size() - 1;
  if (classes > world) return where.bad(fmt::format("{} classes; accepted: at most one a rank, {}", classes, world));
#define PRISM_LENGTH(owner, name)                                                                          \
  if (c.name.size() != c.class_##owner##_offset.back())                                                    \
    return where.bad(fmt::format("{} has {} entries; accepted: {} as class_" #owner "_offset says", #name, \
                                 c.name.size(), c.class_##owner##_offset.back()));
  PRISM_RETURN_IF_ERROR(check_offsets("class_node_offset", c.class_node_offset, classes, c.node_kind.size(), where));
  PRISM_RETURN_IF_ERROR(check_offsets("class_comm_offset", c.class_comm_offset, classes, c.comm_op.size(), where));
  PRISM_RETURN_IF_ERROR(check_offsets("class_edge_offset", c.class_edge_offset, classes, c.edge_src.size(), where));
  PRISM_RETURN_IF_ERROR(check_offsets("class_mark_offset", c.class_mark_offset, classes, c.mark_node.size(), where));
  PRISM_RETURN_IF_ERROR(check_offsets("class_lane_offset", c.class_lane_offset, classes, c.lane_name.size(), where));
  PRISM_CLASS_COLUMNS(PRISM_LENGTH)
#undef PRISM_LENGTH
  for (std::size_t cls = 0; cls < classes; ++cls)
    if (c.class_node_offset[cls + 1] - c.class_node_offset[cls] >= kNoName)
      return where.bad("class_node_offset", cls + 1, c.class_node_offset[cls + 1], "fewer than 2^32 - 1 nodes a class");
  PRISM_RETURN_IF_ERROR(check_offsets("rank_timing_offset", c.rank_timing_offset, world, c.start_ns.size(), where));
  PRISM_RETURN_IF_ERROR(check_offsets("rank_memory_offset", c.rank_memory_offset, world, c.memory_node.size(), where));
  PRISM_RETURN_IF_ERROR(check_offsets("rank_group_offset", c.rank_group_offset, world, c.rank_group.size(), where));
  PRISM_RETURN_IF_ERROR(check_offsets("rank_peer_offset", c.rank_peer_offset, world, c.rank_peer.size(), where));
  if (c.duration_ns.size() != c.start_ns.size())
    return where.bad(fmt::format("duration_ns has {} entries; accepted: {}", c.duration_ns.size(), c.start_ns.size()));
  if (c.memory_bytes.size() != c.memory_node.size() || c.memory_peak.size() != c.memory_node.size())
    return where.bad(fmt::format("memory_bytes and memory_peak have {} and {} entries; accepted: {}",
                                 c.memory_bytes.size(), c.memory_peak.size(), c.memory_node.size()));
  for (std::size_t i = 0; i < c.rank_peer.size(); ++i)
    if (c.rank_peer[i] < 0 || c.rank_peer[i] >= header.world_size)
      return where.bad("rank_peer", i, c.rank_peer[i], fmt::format("0 to {}", header.world_size - 1));
  PRISM_RETURN_IF_ERROR(check_groups(header, c, where));
  PRISM_RETURN_IF_ERROR(check_membership(header, c, where));
  return check_class_members(header, c, where);
}

}  // namespace prism
