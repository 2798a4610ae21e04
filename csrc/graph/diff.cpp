#include "graph/diff.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "graph/columns.hpp"

namespace prism {
namespace {

using Maybe = std::optional<Difference>;

class Comparison {
 public:
  Comparison(const ExecutionGraph& a, const ExecutionGraph& b) : a_(a), b_(b) {}

  Maybe rank(int rank, bool timing) {
    const int class_a = a_.class_of(rank), class_b = b_.class_of(rank);
    if (class_a < 0 || class_b < 0) {
      if (class_a < 0 && class_b < 0) return {};
      const auto text = [](int cls) { return cls < 0 ? "not recorded" : "recorded"; };
      return Difference{rank, -1, "rank", text(class_a), text(class_b)};
    }
    if (auto found = slots(rank)) return found;
    if (!equal_classes_.contains({class_a, class_b})) {
      if (auto found = structure(rank, a_.class_view(class_a), b_.class_view(class_b))) return found;
      equal_classes_.emplace(class_a, class_b);
    }
    return timing ? times(rank) : Maybe();
  }

 private:
  Maybe slots(int rank) {
    const auto in_a = a_.group_slots(rank), in_b = b_.group_slots(rank);
    if (in_a.size() != in_b.size())
      return Difference{rank, -1, "groups", std::to_string(in_a.size()), std::to_string(in_b.size())};
    for (std::size_t slot = 0; slot < in_a.size(); ++slot) {
      if (equal_groups_.contains({in_a[slot], in_b[slot]})) continue;
      const auto members_a = a_.group_members(in_a[slot]), members_b = b_.group_members(in_b[slot]);
      if (!std::ranges::equal(members_a, members_b))
        return Difference{rank, -1, fmt::format("members of group {}", a_.group_name(in_a[slot])),
                          fmt::format("{}", fmt::join(members_a, ", ")), fmt::format("{}", fmt::join(members_b, ", "))};
      equal_groups_.emplace(in_a[slot], in_b[slot]);
    }
    const auto peers_a = a_.peer_slots(rank), peers_b = b_.peer_slots(rank);
    if (!std::ranges::equal(peers_a, peers_b))
      return Difference{rank, -1, "message peers", fmt::format("{}", fmt::join(peers_a, ", ")),
                        fmt::format("{}", fmt::join(peers_b, ", "))};
    return {};
  }

  // Compares a column under `same`; `words` turns index and value into text, `node` an index into a node.
  template <typename T, typename Same, typename Words, typename Node>
  Maybe column(int rank, const std::string& field, std::span<const T> a, std::span<const T> b, Same&& same,
               Words&& words, Node&& node) {
    const auto [at_a, at_b] = std::ranges::mismatch(a, b, same);
    if (at_a == a.end() && at_b == b.end()) return {};
    const auto i = static_cast<std::size_t>(at_a - a.begin());
    const auto text = [&](const ExecutionGraph& graph, auto values) {
      return i < values.size() ? words(graph, values[i]) : std::string("nothing more");
    };
    return Difference{rank, i < a.size() ? node(i) : -1, field, text(a_, a), text(b_, b)};
  }

  Maybe structure(int rank, const ClassView& a, const ClassView& b) {
    const auto equal = std::equal_to<>();
    const auto number = [](const ExecutionGraph&, auto value) { return fmt::format("{}", value); };
    const auto itself = [](std::size_t i) { return static_cast<int>(i); };
    const auto no_node = [](std::size_t) { return -1; };
    const auto text = [](const ExecutionGraph& g, std::uint32_t id) {
      return id == kNoName ? std::string("none") : std::string(g.string(id));
    };
    const auto same_text = [&](std::uint32_t x, std::uint32_t y) {
      return (x == kNoName) == (y == kNoName) && a_.string(x) == b_.string(y);
    };
    // The issue node of a communication says where in the program it is.
    const auto issue = [&a](std::size_t comm) {
      for (std::size_t i = 0; i < a.node_kind.size(); ++i)
        if (a.node_comm[i] == static_cast<std::int32_t>(comm) && a.node_kind[i] != 0) return static_cast<int>(i);
      return -1;
    };
    const auto group = [rank](const ExecutionGraph& g, std::uint32_t slot) {
      return fmt::format("group {}", g.group_name(g.group_of_slot(rank, slot)));
    };
    const auto node_text = [&](const ExecutionGraph& g, std::int32_t comm) {
      if (comm < 0) return std::string("no communication");
      return fmt::format("{} (communication {})", name(static_cast<Op>(g.class_view(g.class_of(rank)).comm_op[comm])),
                         comm);
    };
    Maybe found;
    const auto compare = [&](auto... arguments) {
      if (!found) found = column(rank, arguments...);
    };
    // Operations first: of all consequences of a difference in the program they say most.
    compare(
        "op", a.comm_op, b.comm_op, equal, [](auto&, auto v) { return std::string(name(static_cast<Op>(v))); }, issue);
    compare("group", a.comm_group, b.comm_group, equal, group, issue);
    compare(
        "dtype", a.comm_dtype, b.comm_dtype, equal,
        [](auto&, auto v) { return std::string(name(static_cast<DType>(v))); }, issue);
    compare(
        "reduce_op", a.comm_reduce_op, b.comm_reduce_op, equal,
        [](auto&, auto v) { return std::string(name(static_cast<ReduceOp>(v))); }, issue);
    compare("input_bytes", a.comm_input_bytes, b.comm_input_bytes, equal, number, issue);
    compare("output_bytes", a.comm_output_bytes, b.comm_output_bytes, equal, number, issue);
    compare("flags", a.comm_flags, b.comm_flags, equal, number, issue);
    compare("seq", a.comm_seq, b.comm_seq, equal, number, issue);
    compare("peer", a.comm_peer, b.comm_peer, equal, number, issue);
    compare("tag", a.comm_tag, b.comm_tag, equal, number, issue);
    compare("batch", a.comm_batch, b.comm_batch, equal, number, issue);
    compare("lane", a.lane_name, b.lane_name, same_text, text, no_node);
    compare(
        "node kind", a.node_kind, b.node_kind, equal,
        [](auto&, auto v) { return std::string(name(static_cast<NodeKind>(v))); }, itself);
    compare(
        "node lane", a.node_lane, b.node_lane, equal,
        [rank](auto& g, auto v) { return std::string(g.string(g.class_view(g.class_of(rank)).lane_name[v])); }, itself);
    compare("node communication", a.node_comm, b.node_comm, equal, node_text, itself);
    compare("node name", a.node_name, b.node_name, same_text, text, itself);
    compare("edge from", a.edge_src, b.edge_src, equal, number,
            [&](std::size_t i) { return static_cast<int>(a.edge_src[i]); });
    compare("edge to", a.edge_dst, b.edge_dst, equal, number,
            [&](std::size_t i) { return static_cast<int>(a.edge_src[i]); });
    compare("iteration", a.mark_node, b.mark_node, equal, number,
            [&](std::size_t i) { return static_cast<int>(a.mark_node[i]); });
    return found;
  }

  Maybe times(int rank) {
    const auto time = [](const ExecutionGraph&, auto v) { return fmt::format("{} ns", v); };
    const auto bytes = [](const ExecutionGraph&, auto v) { return fmt::format("{} bytes", v); };
    const auto index = [](const ExecutionGraph&, auto v) { return fmt::format("node {}", v); };
    const auto itself = [](std::size_t i) { return static_cast<int>(i); };
    const auto equal = std::equal_to<>();
    const auto ta = a_.timing(rank), tb = b_.timing(rank);
    // Durations first: starts differ in all that follows.
    if (auto found = column(rank, "duration", ta.duration_ns, tb.duration_ns, equal, time, itself)) return found;
    if (auto found = column(rank, "start", ta.start_ns, tb.start_ns, equal, time, itself)) return found;
    const auto ma = a_.memory(rank), mb = b_.memory(rank);
    const auto at = [&](std::size_t i) { return static_cast<int>(ma.node[i]); };
    if (auto found = column(rank, "memory step", ma.node, mb.node, equal, index, at)) return found;
    if (auto found = column(rank, "memory in use", ma.bytes, mb.bytes, equal, bytes, at)) return found;
    return column(rank, "memory peak", ma.peak, mb.peak, equal, bytes, at);
  }

  const ExecutionGraph &a_, &b_;
  std::set<std::pair<int, int>> equal_classes_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> equal_groups_;
};

}  // namespace

Result<std::optional<Difference>> first_difference(const ExecutionGraph& a, const ExecutionGraph& b, bool timing,
                                                   const std::vector<int>& ranks) {
  if (a.world_size() != b.world_size())
    return Maybe(Difference{-1, -1, "ranks", std::to_string(a.world_size()), std::to_string(b.world_size())});
  Comparison comparison(a, b);
  const auto count = ranks.empty() ? static_cast<std::size_t>(a.world_size()) : ranks.size();
  for (std::size_t i = 0; i < count; ++i) {
    const int rank = ranks.empty() ? static_cast<int>(i) : ranks[i];
    PRISM_RETURN_IF_ERROR(a.check_rank(rank));
    PRISM_RETURN_IF_ERROR(b.check_rank(rank));
    if (auto found = comparison.rank(rank, timing)) return found;
  }
  return Maybe();
}

}  // namespace prism
