#include "replay/critical_path.hpp"

#include <algorithm>

namespace prism::engine {

CriticalPath::CriticalPath(const Job& job, const Execution& execution, const Holds& holds)
    : job_(job), execution_(execution), holds_(holds) {
  for (const auto& timeline : execution.timelines) most_steps_ += timeline.start_ns.size();
}

CriticalPath::Cause CriticalPath::cause_of_transfer(int rank, std::uint32_t node) const {
  const auto entry = job_.ranks[rank].entry_base + static_cast<std::uint32_t>(job_.view(rank).node_comm[node]);
  const auto holder = holds_.holder(entry);
  const int of = job_.entry_rank[holder];
  const auto arrival = holds_.arrival_ns(holder);
  if (const auto other = holds_.freed_by(holder); other != kNone) return {of, job_.transfer_node(other), arrival};
  Cause cause{of, kNone, arrival};
  for (const auto source : job_.plan(of).in[job_.transfer_node(holder)])
    if (cause.node == kNone || (end_of(of, source) == arrival && end_of(of, cause.node) != arrival))
      cause.node = source;
  return cause;
}

CriticalPath::Cause CriticalPath::cause_of(int rank, std::uint32_t node) const {
  const ClassView& view = job_.view(rank);
  if (static_cast<NodeKind>(view.node_kind[node]) == NodeKind::kTransfer) return cause_of_transfer(rank, node);
  Cause cause{rank, job_.plan(rank).before_on_lane[node], execution_.timelines[rank].start_ns[node]};
  if (cause.node != kNone) cause.end_ns = end_of(rank, cause.node);
  for (const auto source : job_.plan(rank).in[node])
    if (const auto end = end_of(rank, source); end > cause.end_ns) cause = {rank, source, end};
  return cause;
}

void CriticalPath::append(Analysis::Path& path, int iteration, int rank, std::uint32_t node, std::int64_t from_ns,
                          std::int64_t until_ns) const {
  if (until_ns <= from_ns) return;
  struct Part {
    int rank;
    std::uint32_t node;
    std::int64_t start_ns, end_ns;
  };
  std::vector<Part> parts;  // the last one first
  auto at = until_ns;
  // A wait begins when its lane is free, whatever it then waits for.
  const auto kind = static_cast<NodeKind>(job_.view(rank).node_kind[node]);
  if (kind == NodeKind::kWait && until_ns <= execution_.timelines[rank].start_ns[node])
    node = job_.plan(rank).before_on_lane[node];
  // A record whose times contradict each other must not lead around in a circle.
  for (std::size_t step = 0; at > from_ns && node != kNone && step < most_steps_; ++step) {
    const Cause cause = cause_of(rank, node);
    const auto start = std::max(from_ns, std::min(at, cause.end_ns));
    if (start < at) parts.push_back({rank, node, start, at});
    at = start;
    node = cause.node;
    rank = cause.rank;
  }
  if (at > from_ns) parts.push_back({rank, Analysis::kNotStarted, from_ns, at});
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    path.iteration.push_back(iteration);
    path.rank.push_back(part->rank);
    path.node.push_back(part->node);
    path.start_ns.push_back(part->start_ns);
    path.duration_ns.push_back(part->end_ns - part->start_ns);
  }
}

}  // namespace prism::engine
