#include "replay/group_reduction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "replay/pruning.hpp"

namespace prism {
namespace {

Error wrong(std::string text) { return {ErrorCode::kInvalidInput, std::move(text)}; }

// What sandbox ranks do in a group.
struct Uses {
  std::set<std::pair<Op, std::int32_t>> collectives;  // kind, root
  std::set<std::pair<Op, std::int32_t>> messages;     // kSend or kRecv, global rank or -1
};

class Reducer {
 public:
  Reducer(const ExecutionGraph& graph, const std::map<Op, std::string>& algorithms)
      : graph_(graph), in_sandbox_(graph.world_size(), 0), uses_(graph.group_count()) {
    for (const auto& [op, algorithm] : algorithms) algorithms_[simulate::kind_of(op)] = algorithm;
  }

  Result<void> add(std::int32_t rank) {
    if (rank < 0 || rank >= graph_.world_size())
      return wrong(fmt::format("sandbox rank {}; accepted: 0 to {}", rank, graph_.world_size() - 1));
    if (in_sandbox_[rank] != 0) return wrong(fmt::format("sandbox rank {} twice; accepted: once", rank));
    if (graph_.class_of(rank) < 0)
      return wrong(fmt::format("sandbox rank {} was not recorded; accepted: ranks of the trace", rank));
    PRISM_RETURN_IF_ERROR(graph_.check_rank(rank));
    in_sandbox_[rank] = 1;
    const ClassView& view = graph_.class_view(graph_.class_of(rank));
    for (std::size_t comm = 0; comm < view.comm_op.size(); ++comm) {
      const Op op = simulate::kind_of(static_cast<Op>(view.comm_op[comm]));
      const std::int32_t peer = view.comm_peer[comm];
      Uses& uses = uses_[graph_.group_of_slot(rank, view.comm_group[comm])];
      if (is_point_to_point(op))
        uses.messages.emplace(op, peer < 0 ? -1 : graph_.rank_of_peer_slot(rank, peer));
      else
        uses.collectives.emplace(op, is_rooted(op) ? peer : 0);
    }
    return {};
  }

  Result<GroupReduction> reduce() {
    GroupReduction all;
    for (std::uint32_t group = 0; group < graph_.group_count(); ++group) {
      PRISM_ASSIGN_OR_RETURN(auto one, reduce(group));
      const auto members = static_cast<std::int64_t>(graph_.group_members(group).size());
      all.members += members;
      if (one.kind != GroupReduction::Kind::kVanished) all.members_left += members;
      all.members_kept += static_cast<std::int64_t>(one.kept.size());
      ++(one.kind == GroupReduction::Kind::kVanished ? all.vanished
         : one.kind == GroupReduction::Kind::kReal   ? all.real
                                                     : all.mixed);
      all.groups.push_back(std::move(one));
    }
    return all;
  }

 private:
  Result<GroupReduction::Group> reduce(std::uint32_t group) {
    GroupReduction::Group reduced{group, GroupReduction::Kind::kVanished, {}, {}};
    const auto members = graph_.group_members(group);
    std::vector<std::int32_t> sandbox;  // group ranks
    for (std::size_t i = 0; i < members.size(); ++i)
      if (in_sandbox_[members[i]] != 0) sandbox.push_back(static_cast<std::int32_t>(i));
    if (sandbox.empty()) return reduced;
    std::vector<std::uint8_t> keep(members.size(), 0);
    for (const auto member : sandbox) keep[member] = 1;
    reduced.kind = sandbox.size() == members.size() ? GroupReduction::Kind::kReal : GroupReduction::Kind::kMixed;
    if (reduced.kind == GroupReduction::Kind::kMixed) {
      PRISM_RETURN_IF_ERROR(keep_partners(group, sandbox, keep, reduced.uses));
      keep_peers(group, members, keep, reduced.uses);
    }
    for (std::size_t i = 0; i < members.size(); ++i)
      if (keep[i] != 0) reduced.kept.push_back(members[i]);
    return reduced;
  }

  Result<void> keep_partners(std::uint32_t group, std::span<const std::int32_t> sandbox,
                             std::vector<std::uint8_t>& keep, std::vector<GroupReduction::Use>& told) {
    for (const auto& [op, root] : uses_[group].collectives) {
      const auto chosen = algorithms_.find(op);
      const std::string algorithm = chosen == algorithms_.end() ? simulate::default_algorithm(op) : chosen->second;
      const auto partners =
          neighbours({.op = op, .members = static_cast<int>(keep.size()), .root = root}, algorithm, sandbox);
      if (!partners) return wrong(fmt::format("group '{}': {}", graph_.group_name(group), partners.error().message));
      for (const auto member : partners->members) keep[member] = 1;
      if (told.empty() || told.back().op != op) told.push_back({op, algorithm, partners->pruned});
    }
    return {};
  }

  void keep_peers(std::uint32_t group, std::span<const std::int32_t> members, std::vector<std::uint8_t>& keep,
                  std::vector<GroupReduction::Use>& told) {
    for (const auto& [op, rank] : uses_[group].messages) {
      const bool from_anybody = rank < 0;
      for (std::size_t i = 0; i < members.size(); ++i)
        if (from_anybody || members[i] == rank) keep[i] = 1;
      if (told.empty() || told.back().op != op)
        told.push_back({op, {}, !from_anybody});
      else
        told.back().pruned &= !from_anybody;
    }
  }

  const ExecutionGraph& graph_;
  std::map<Op, std::string> algorithms_;
  std::vector<std::uint8_t> in_sandbox_;  // by rank
  std::vector<Uses> uses_;                // by group
};

}  // namespace

Result<GroupReduction> reduce_groups(const ExecutionGraph& graph, std::span<const std::int32_t> sandbox,
                                     const std::map<Op, std::string>& algorithms) {
  if (sandbox.empty()) return wrong("a sandbox of no ranks; accepted: at least one");
  Reducer reducer(graph, algorithms);
  for (const auto rank : sandbox) PRISM_RETURN_IF_ERROR(reducer.add(rank));
  return reducer.reduce();
}

std::string_view name(GroupReduction::Kind kind) {
  return kind == GroupReduction::Kind::kVanished ? "vanished" : kind == GroupReduction::Kind::kReal ? "real" : "mixed";
}

}  // namespace prism
