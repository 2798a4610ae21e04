#include "replay/period_finder.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "replay/program_order.hpp"
#include "replay/report.hpp"

namespace prism::engine {

PeriodFinder::PeriodFinder(const ClassView& view, const ClassPlan& plan, bool open)
    : view_(view), plan_(plan), iteration_(iterations_by_cause(view, plan)) {
  const auto iterations = iteration_plan(view, plan);
  lanes_.assign(open ? iterations.marks.size() : iterations.count(), Lanes(plan.lane_first.size()));
  closed_ = !open && iterations.last == kNone;
  if (iterations.model != kNone) open_span_ = iterations.last, open_model_ = iterations.model;
  for (std::size_t lane = 0; lane < plan.lane_first.size(); ++lane)
    for (auto node = plan.lane_first[lane]; node != kNone; node = plan.next_on_lane[node])
      if (const auto i = iteration_[node]; i >= 0 && static_cast<std::size_t>(i) < lanes_.size())
        lanes_[static_cast<std::size_t>(i)][lane].push_back(node);
}

std::vector<std::uint32_t> PeriodFinder::posts(std::uint32_t issue) const {
  std::vector<std::uint32_t> transfers;
  for (const auto target : plan_.out[issue])
    if (kind(target) == NodeKind::kTransfer) transfers.push_back(target);
  return transfers;
}

bool PeriodFinder::same_communications(std::uint32_t issue, std::uint32_t earlier,
                                       std::vector<std::uint32_t>& before) const {
  const auto own = posts(issue), others = posts(earlier);
  if (own.size() != others.size()) return false;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const auto a = static_cast<std::size_t>(view_.node_comm[own[i]]);
    const auto b = static_cast<std::size_t>(view_.node_comm[others[i]]);
    const auto same = [&](const auto& column) { return column[a] == column[b]; };
    if (!same(view_.comm_op) || !same(view_.comm_dtype) || !same(view_.comm_reduce_op) || !same(view_.comm_flags) ||
        !same(view_.comm_group) || !same(view_.comm_peer) || !same(view_.comm_tag))
      return false;
    before[own[i]] = others[i];
  }
  return true;
}

// `before` gets the place of each node of iteration i, and of what it issues, in the earlier one.
std::optional<std::string> PeriodFinder::compare(std::size_t i, std::size_t earlier,
                                                 std::vector<std::uint32_t>& before) const {
  const auto is = [&](std::string what) {
    return fmt::format("iteration {} is no repetition of {}: {}", i, earlier, what);
  };
  const bool may_be_longer = !closed_ && i + 1 == lanes_.size();
  for (std::size_t lane = 0; lane < lanes_[i].size(); ++lane) {
    const auto &own = lanes_[i][lane], &others = lanes_[earlier][lane];
    for (std::size_t k = 0; k < std::min(own.size(), others.size()); ++k) {
      const auto a = own[k], b = others[k];
      if (kind(a) != kind(b))
        return is(fmt::format("node {} is of kind {}, and node {} in its place of kind {}", a, name(kind(a)), b,
                              name(kind(b))));
      if (kind(a) == NodeKind::kIssue && !same_communications(a, b, before))
        return is(fmt::format("node {} issues something else than node {} in its place", a, b));
      before[a] = b;
    }
    if (own.size() < others.size() || (own.size() > others.size() && !may_be_longer))
      return is(fmt::format("lane {} has {} nodes in it, and {} in the other", lane, own.size(), others.size()));
  }
  return std::nullopt;
}

// What a node of the period needs is, source for source, what it needs in the period before, one period later; or the
// same, where that was there before both. In the first period of a record something that is not repeated may stand in
// the place of what is carried from one period to the next.
bool PeriodFinder::same_sources(std::uint32_t node, const std::vector<Area>& area,
                                const std::vector<std::uint32_t>& before, std::vector<bool>& carried) const {
  const auto known = plan_.in[before[node]];
  std::vector<std::uint32_t> left(known.begin(), known.end());
  const auto take = [&](auto&& matches) {
    const auto found = std::find_if(left.begin(), left.end(), matches);
    if (found == left.end()) return false;
    left.erase(found);
    return true;
  };
  const auto take_node = [&](std::uint32_t wanted) { return take([&](auto one) { return one == wanted; }); };
  const auto first = plan_.in.first[node], end = plan_.in.first[node + 1];
  std::vector<std::uint32_t> others;  // edges
  for (auto e = first; e < end; ++e) {
    const auto source = plan_.in.to[e];
    if (area[source] == kLater) return false;
    if (area[source] == kInPeriod && !take_node(before[source])) return false;
    if (area[source] != kInPeriod) others.push_back(e);
  }
  const auto is_carried = [&](std::uint32_t e) {
    const auto source = plan_.in.to[e];
    return carried[e] = area[source] == kPeriodBefore && before[source] != kNone && take_node(before[source]);
  };
  others.erase(std::remove_if(others.begin(), others.end(), is_carried), others.end());
  others.erase(std::remove_if(others.begin(), others.end(), [&](auto e) { return take_node(plan_.in.to[e]); }),
               others.end());
  for (const auto e : others) {
    const auto source = plan_.in.to[e];
    const auto stands_for_it = [&](auto one) { return area[one] == kEarlier; };
    if (area[source] != kPeriodBefore || before[source] != kNone || !take(stands_for_it)) return false;
    carried[e] = true;
  }
  return left.empty() && (kind(node) != NodeKind::kTransfer ||
                          std::none_of(carried.begin() + first, carried.begin() + end, [](bool one) { return one; }));
}

std::optional<std::string> PeriodFinder::find(std::size_t first, std::size_t length, Period& period) const {
  const auto nodes = view_.node_kind.size();
  std::vector<std::uint32_t> before(nodes, kNone);
  if (first < length || first + length > lanes_.size())
    return fmt::format("there are only {} iterations", lanes_.size());
  for (std::size_t i = first; i < first + length; ++i)
    if (auto differs = compare(i, i - length, before)) return differs;
  std::vector<bool> repeated(nodes);
  std::vector<Area> area(nodes, kEarlier);
  for (std::uint32_t node = 0; node < nodes; ++node) {
    if (iteration_[node] >= static_cast<int>(first)) area[node] = kLater;
    if (before[node] == kNone) continue;
    repeated[node] = true;
    area[node] = kInPeriod;
    area[before[node]] = kPeriodBefore;
  }
  for (std::size_t i = length; i < first; ++i) {
    if (i + length < first) continue;
    std::vector<std::uint32_t> earlier(nodes, kNone);
    if (compare(i, i - length, earlier)) continue;
    for (std::uint32_t node = 0; node < nodes; ++node)
      if (earlier[node] != kNone) before[node] = earlier[node];
  }
  period = laid_out(first, length, repeated);
  period.carried.assign(plan_.in.to.size(), false);
  for (std::uint32_t node = 0; node < nodes; ++node)
    if (repeated[node] && !same_sources(node, area, before, period.carried))
      return fmt::format(
          "iteration {} is no repetition of {}: node {} waits for something else than node {} in its "
          "place",
          iteration_[node], iteration_[node] - static_cast<int>(length), node, before[node]);
  for (std::uint32_t node = 0; node < nodes; ++node)
    if (repeated[node]) period.before[node] = before[node];
  if (!closed_ && first + length == lanes_.size()) note_open_span(period);
  return std::nullopt;
}

void PeriodFinder::note_open_span(Period& period) const {
  period.open_span = period.open_model = kNone;
  const auto& last = lanes_.back()[view_.node_lane[view_.mark_node.back()]];
  const auto is_repeated = [&](auto node) { return period.region[node] == Period::kRepeated; };
  const auto node = std::find_if(last.rbegin(), last.rend(), is_repeated);
  if (node == last.rend() || kind(*node) != NodeKind::kCompute) return;
  period.open_span = *node;
  period.open_model = period.before[*node];
}

std::optional<std::string> PeriodFinder::take(std::size_t first, std::size_t length, Period& period) const {
  const auto nodes = view_.node_kind.size();
  if (first + length > lanes_.size()) return fmt::format("there are only {} iterations", lanes_.size());
  std::vector<bool> repeated(nodes);
  for (std::size_t i = first; i < first + length; ++i)
    for (const auto& lane : lanes_[i])
      for (const auto node : lane) {
        repeated[node] = true;
        if (kind(node) != NodeKind::kIssue) continue;
        for (const auto transfer : posts(node)) repeated[transfer] = true;
      }
  period = laid_out(first, length, repeated);
  period.carried.assign(plan_.in.to.size(), false);
  for (std::uint32_t node = 0; node < nodes; ++node)
    for (const auto source : plan_.in[node]) {
      const bool on_lane = kind(source) != NodeKind::kTransfer && view_.node_lane[source] == view_.node_lane[node];
      if (repeated[node] && !repeated[source] && !on_lane)
        return fmt::format("node {} in iteration {} waits for node {}, which is not in these iterations", node,
                           iteration_[node], source);
    }
  return std::nullopt;
}

Period PeriodFinder::laid_out(std::size_t first, std::size_t length, const std::vector<bool>& repeated) const {
  const auto nodes = view_.node_kind.size();
  Period period;
  period.open_span = open_span_, period.open_model = open_model_;
  period.region.assign(nodes, Period::kBefore);
  for (auto* column : {&period.before, &period.iteration, &period.place}) column->assign(nodes, kNone);
  for (std::uint32_t node = 0; node < nodes; ++node) {
    if (iteration_[node] >= static_cast<int>(first)) period.region[node] = Period::kAfter;
    if (repeated[node]) period.region[node] = Period::kRepeated;
  }
  for (std::size_t i = 0; i < length; ++i) {
    std::uint32_t place = 0;
    for (const auto& lane : lanes_[first + i])
      for (const auto node : lane) {
        if (!repeated[node]) continue;
        period.iteration[node] = static_cast<std::uint32_t>(i);
        period.place[node] = place++;
      }
  }
  return period;
}

std::vector<std::uint32_t> PeriodFinder::repetition(std::size_t i, std::size_t of, const Period& period) const {
  std::vector<std::uint32_t> nodes;
  const auto token = [&](std::uint32_t node) {
    const auto comm = view_.node_comm[node];
    return std::pair(view_.node_kind[node], comm < 0 ? 0 : view_.comm_op[static_cast<std::size_t>(comm)]);
  };
  for (std::size_t lane = 0; lane < lanes_[i].size(); ++lane) {
    std::size_t k = 0;
    for (const auto node : lanes_[of][lane]) {
      if (period.region[node] != Period::kRepeated) continue;
      if (k >= lanes_[i][lane].size() || token(lanes_[i][lane][k]) != token(node)) return {};
      nodes.push_back(lanes_[i][lane][k++]);
    }
    const bool may_be_longer = !closed_ && i + 1 == lanes_.size();
    if (k < lanes_[i][lane].size() && !may_be_longer) return {};
  }
  return nodes;
}

}  // namespace prism::engine
