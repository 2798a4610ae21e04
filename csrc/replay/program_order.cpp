#include "replay/program_order.hpp"

#include <algorithm>

namespace prism::engine {

std::vector<std::uint32_t> in_order(const ClassPlan& plan) {
  const auto nodes = static_cast<std::uint32_t>(plan.next_on_lane.size());
  std::vector<std::uint32_t> missing(nodes, 0), order;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    missing[node] += static_cast<std::uint32_t>(plan.in[node].size());
    if (plan.next_on_lane[node] != kNone) ++missing[plan.next_on_lane[node]];
  }
  for (std::uint32_t node = 0; node < nodes; ++node)
    if (missing[node] == 0) order.push_back(node);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto before = [&](std::uint32_t next) {
      if (--missing[next] == 0) order.push_back(next);
    };
    if (plan.next_on_lane[order[i]] != kNone) before(plan.next_on_lane[order[i]]);
    for (const auto target : plan.out[order[i]]) before(target);
  }
  return order;
}

std::vector<int> iterations_by_cause(const ClassView& view, const ClassPlan& plan) {
  std::vector<int> iteration(view.node_kind.size(), -1);
  for (std::size_t i = 0; i < view.mark_node.size(); ++i) iteration[view.mark_node[i]] = static_cast<int>(i);
  for (const auto node : in_order(plan)) {
    const auto before = [&](std::uint32_t next) { iteration[next] = std::max(iteration[next], iteration[node]); };
    if (plan.next_on_lane[node] != kNone) before(plan.next_on_lane[node]);
    for (const auto target : plan.out[node]) before(target);
  }
  return iteration;
}

}  // namespace prism::engine
