// What an edit matches.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.hpp"
#include "replay/what_if.hpp"

namespace prism::engine {

bool matches(const std::optional<std::string>& pattern, std::string_view name);
bool matches(const std::vector<RankRange>& ranks, const std::optional<int>& cls, const ExecutionGraph& graph, int rank);
// Iteration that a node belongs to, -1 before the first mark: by program order on the marks' lane, elsewhere by time.
int iteration_of(const ClassView& view, TimingView timing, std::uint32_t node);
// The operation and the group of a rank's communication, for edits that have these fields.
template <typename Edit>
bool matches_communication(const Edit& edit, const ExecutionGraph& graph, int rank, std::uint32_t comm) {
  const ClassView& view = graph.class_view(graph.class_of(rank));
  return matches(edit.op, name(static_cast<Op>(view.comm_op[comm]))) &&
         matches(edit.group, graph.group_name(graph.group_of_slot(rank, view.comm_group[comm])));
}

// d, or what is set, by scale and addition; -1 where that is more than 2^63 ns.
std::int64_t edited(std::int64_t duration_ns, double scale, std::int64_t add_ns,
                    const std::optional<std::int64_t>& set_ns);

// " ranks 0-7, 12 class 1 name 'optimizer'"
std::string describe(const std::vector<RankRange>& ranks, const std::optional<int>& cls,
                     const std::optional<int>& iteration);
template <typename Edit>
std::string describe_communication(const Edit& edit) {
  auto text = describe(edit.ranks, edit.cls, edit.iteration);
  if (edit.op) text += " op '" + *edit.op + "'";
  if (edit.group) text += " group '" + *edit.group + "'";
  return text.empty() ? "all communication" : text.substr(1);
}

}  // namespace prism::engine
