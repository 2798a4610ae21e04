#include "calibrate/repetitions.hpp"

#include <algorithm>
#include <map>

#include "replay/program_order.hpp"
#include "replay/report.hpp"

namespace prism::calibration {
namespace {

using engine::kNone;

NodeKind kind_of(const ClassView& view, std::uint32_t node) { return static_cast<NodeKind>(view.node_kind[node]); }

struct Lane {
  std::vector<std::uint32_t> tokens, nodes;  // kind and operation; node: those of transfers left out
  bool operator==(const Lane& other) const { return tokens == other.tokens; }
  bool begins_with(const Lane& other) const {
    return tokens.size() >= other.tokens.size() && std::equal(other.tokens.begin(), other.tokens.end(), tokens.begin());
  }
};
using Lanes = std::vector<Lane>;

std::vector<Lanes> lanes_of(const ClassView& view, const engine::ClassPlan& plan, std::size_t count) {
  const auto iteration = engine::iterations_by_cause(view, plan);
  std::vector<Lanes> lanes(count, Lanes(view.lane_name.size()));
  for (std::uint32_t node = 0; node < view.node_kind.size(); ++node) {
    const auto kind = kind_of(view, node);
    if (iteration[node] < 0 || static_cast<std::size_t>(iteration[node]) >= count || kind == NodeKind::kTransfer)
      continue;
    Lane& lane = lanes[static_cast<std::size_t>(iteration[node])][view.node_lane[node]];
    const auto comm = view.node_comm[node];
    const std::uint32_t op = comm < 0 ? 0 : view.comm_op[static_cast<std::size_t>(comm)];
    lane.tokens.push_back(static_cast<std::uint32_t>(kind) << 8 | op);
    lane.nodes.push_back(node);
  }
  return lanes;
}

// What follows the last iteration's end, such as the end of the program, is cut off where the rest is as another one.
void cut_last(std::vector<Lanes>& lanes) {
  Lanes& last = lanes.back();
  for (std::size_t i = lanes.size() - 1; i-- > 0;) {
    const Lanes& model = lanes[i];
    const auto begins = [](const Lane& a, const Lane& b) { return a.begins_with(b); };
    if (!std::equal(last.begin(), last.end(), model.begin(), begins)) continue;
    for (std::size_t l = 0; l < last.size(); ++l) {
      last[l].tokens.resize(model[l].tokens.size());
      last[l].nodes.resize(model[l].nodes.size());
    }
    return;
  }
}

}  // namespace

Repetitions find_repetitions(const engine::Job& job, int cls) {
  const ClassView& view = job.views[static_cast<std::size_t>(cls)];
  const auto& plan = job.classes[static_cast<std::size_t>(cls)];
  const auto iterations = engine::iteration_plan(view, plan);
  Repetitions result;
  const auto count = iterations.count();
  if (count == 0) return result;
  auto lanes = lanes_of(view, plan, count);
  result.closed = iterations.last == kNone;
  if (!result.closed) cut_last(lanes);
  std::map<std::vector<std::vector<std::uint32_t>>, std::uint32_t> structures;
  std::vector<std::size_t> latest;  // [structures] iteration before
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::vector<std::uint32_t>> key;
    Iteration iteration;
    for (const Lane& lane : lanes[i]) {
      key.push_back(lane.tokens);
      for (const auto node : lane.nodes)
        if (kind_of(view, node) != NodeKind::kWait) iteration.spans.push_back(node);
    }
    const auto [known, is_new] = structures.try_emplace(std::move(key), result.structures);
    iteration.structure = known->second;
    if (is_new) {
      ++result.structures;
      latest.push_back(i);
    } else if (i + 1 == count && !result.closed) {
      const auto& spans = iteration.spans;
      const auto open = std::find(spans.begin(), spans.end(), iterations.last);
      if (open != spans.end() && kind_of(view, *open) == NodeKind::kCompute) {
        result.open_span = static_cast<std::uint32_t>(open - spans.begin());
        result.open_model = latest[iteration.structure];
      }
    }
    latest[iteration.structure] = i;
    result.iterations.push_back(std::move(iteration));
  }
  return result;
}

}  // namespace prism::calibration
