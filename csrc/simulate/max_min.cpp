#include "simulate/max_min.hpp"

#include <algorithm>

namespace prism::simulate {
namespace {

constexpr double kTolerance = 1e-12;  // relative: what rounding may leave between equal rates

bool above(double a, double b) { return a > b * (1 + kTolerance); }

}  // namespace

MaxMin::MaxMin(std::vector<double> capacities) : links_(capacities.size()) {
  for (std::size_t i = 0; i < capacities.size(); ++i) links_[i].capacity = capacities[i];
}

MaxMin::Slot MaxMin::add(std::span<const LinkId> route) {
  Slot slot = static_cast<Slot>(flows_.size());
  if (free_.empty()) {
    flows_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  auto& flow = flows_[slot];
  flow.route = route;
  flow.rate = 0;
  flow.bottleneck = -1;
  flow.positions.resize(route.size());
  for (std::uint32_t i = 0; i < route.size(); ++i) {
    auto& list = links_[route[i]].flows;
    flow.positions[i] = static_cast<std::uint32_t>(list.size());
    list.push_back({slot, i});
    mark(route[i]);
  }
  affect(slot);
  return slot;
}

void MaxMin::remove(Slot slot) {
  auto& flow = flows_[slot];
  for (std::uint32_t i = 0; i < flow.route.size(); ++i) {
    auto& list = links_[flow.route[i]].flows;
    const auto position = flow.positions[i];
    list[position] = list.back();
    flows_[list[position].slot].positions[list[position].position] = position;
    list.pop_back();
    mark(flow.route[i]);
  }
  flow.rate = 0;
  flow.route = {};
  free_.push_back(slot);
}

void MaxMin::set_capacity(LinkId link, double capacity) {
  links_[link].capacity = capacity;
  mark(link);
}

double MaxMin::used(LinkId link) const {
  double sum = 0;
  for (const auto& member : links_[link].flows) sum += flows_[member.slot].rate;
  return sum;
}

void MaxMin::mark(LinkId link) {
  if (links_[link].dirty) return;
  links_[link].dirty = true;
  dirty_.push_back(link);
}

void MaxMin::affect(Slot slot) {
  auto& flow = flows_[slot];
  if (flow.affected) return;
  flow.affected = true;
  affected_.push_back(slot);
}

void MaxMin::touch(LinkId link) {
  if (links_[link].touched) return;
  links_[link].touched = true;
  touched_.push_back(link);
}

double MaxMin::share(LinkId link) const { return std::max(links_[link].left, 0.0) / links_[link].open; }

const std::vector<MaxMin::Change>& MaxMin::solve() {
  changed_.clear();
  for (const auto link : touched_) links_[link].touched = false;
  touched_.clear();
  for (const auto link : dirty_) {
    touch(link);
    for (const auto& member : links_[link].flows)
      if (flows_[member.slot].bottleneck == link) affect(member.slot);
    links_[link].dirty = false;
  }
  dirty_.clear();
  // Flows that were added and removed without a solve() between are gone.
  std::erase_if(affected_, [&](Slot slot) {
    if (!flows_[slot].route.empty()) return false;
    flows_[slot].affected = false;
    return true;
  });
  do fill();
  while (grow());
  for (const auto slot : affected_) {
    auto& flow = flows_[slot];
    flow.affected = false;
    if (flow.rate != flow.solved) changed_.push_back({slot, flow.rate});
    flow.rate = flow.solved;
  }
  affected_.clear();
  return changed_;
}

// Progressive filling of the affected flows in what the others leave.
void MaxMin::fill() {
  for (const auto slot : affected_) {
    flows_[slot].settled = false;
    for (const auto link : flows_[slot].route) touch(link);
  }
  heap_.clear();
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.level != b.level ? a.level > b.level : a.link > b.link;
  };
  for (const auto link : touched_) {
    auto& state = links_[link];
    state.left = state.capacity;
    state.open = 0;
    state.level = -1;
    for (const auto& member : state.flows) {
      const auto& flow = flows_[member.slot];
      if (flow.affected)
        ++state.open;
      else
        state.left -= flow.rate;
    }
    if (state.open > 0) heap_.push_back({share(link), link});
  }
  std::make_heap(heap_.begin(), heap_.end(), later);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const auto [level, link] = heap_.back();
    heap_.pop_back();
    auto& state = links_[link];
    if (state.open == 0) continue;
    if (const double now = share(link); now > level) {  // its flows are held elsewhere, the others may have more
      heap_.push_back({now, link});
      std::push_heap(heap_.begin(), heap_.end(), later);
      continue;
    }
    state.level = level;
    for (const auto& member : state.flows)
      if (flows_[member.slot].affected && !flows_[member.slot].settled) settle(member.slot, link, level);
  }
}

void MaxMin::settle(Slot slot, LinkId bottleneck, double level) {
  auto& flow = flows_[slot];
  flow.settled = true;
  flow.solved = level;
  flow.bottleneck = bottleneck;
  for (const auto link : flow.route) {
    links_[link].left -= level;
    --links_[link].open;
  }
}

// Whether further flows have to be solved again.
bool MaxMin::grow() {
  const auto before = affected_.size();
  for (std::size_t i = 0; i < touched_.size(); ++i) {
    const auto link = touched_[i];
    const auto& state = links_[link];
    double used = 0, fastest = 0;
    for (const auto& member : state.flows) {
      const double rate = rate_now(member.slot);
      used += rate;
      fastest = std::max(fastest, rate);
    }
    const bool full = !above(state.capacity, used);
    const bool over = above(used, state.capacity);
    for (const auto& member : state.flows) {
      const auto& flow = flows_[member.slot];
      if (flow.affected) continue;
      // Faster than those that this link holds back; or its own bottleneck is none any more.
      const bool too_fast = over || (state.level >= 0 && above(flow.rate, state.level));
      const bool too_slow = flow.bottleneck == link && (!full || above(fastest, flow.rate));
      if (too_fast || too_slow) affect(member.slot);
    }
  }
  return affected_.size() > before;
}

}  // namespace prism::simulate
