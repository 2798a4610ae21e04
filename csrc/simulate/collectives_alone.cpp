// Rings that nothing disturbs.
#include <limits>
#include <utility>

#include "simulate/collectives.hpp"

namespace prism::simulate {

// From now on without events, where nothing is in the way.
bool Collectives::leave_alone(std::uint32_t number, std::optional<Picoseconds> all_come_at) {
  auto& run = runs_[number];
  if (!run.schedule) return false;
  const int members = run.schedule->members(), steps = run.schedule->steps();
  run.until_try = std::numeric_limits<int>::max();
  if (run.manner != Manner::kInSteps || run.schedule->lanes() > 1 || members < 2 || steps < 1 ||
      run.schedule->alike(0) < steps)
    return false;
  std::vector<Network::Way> ways;
  std::vector<Undisturbed::Member> states;
  for (int m = 0; m < members; ++m) {
    sends_.clear();
    const int receives = run.schedule->part(m, 0, sends_);
    if (receives != 1 || sends_.size() != 1 || sends_[0].to != (m + 1) % members) return false;  // no ring
    auto way = network_.way({0, run.endpoints[m], run.endpoints[sends_[0].to], sends_[0].bytes});
    if (!way) return false;
    const auto& member = run.members[m];
    // Not by their number: the last one may have been delivered, at this moment, without our having been told.
    if (member.posted > 0) way->own = member.latest | kMark;
    ways.push_back(*way);
    states.push_back(
        {member.step, member.outstanding[0], 0, all_come_at.value_or(0), later(way->latency, way->passing)});
  }
  run.until_try = members;
  if (!network_.hold(number, ways, *this)) return false;
  for (int m = 0; m < members && !run.early.empty(); ++m)
    while (run.early.erase(early_key(m, states[m].step + 1 + static_cast<int>(states[m].early))) > 0) ++states[m].early;
  Undisturbed begun(std::move(states), steps);
  if (all_come_at) begun.begin();
  run.alone = std::make_unique<Alone>(Alone{std::move(ways), begun, begun, {}});
  return true;
}

void Collectives::go_on_alone(std::uint32_t number) {
  auto& run = runs_[number];
  run.alone->now.go_on(
      kNever, [](int, int, Picoseconds, Picoseconds) {},
      [&](int member, Picoseconds at) {
        if (at == kNever) overdue_ = true;
        if (at != kNever) endings_.post(at, {number, member, run.version});
      });
}

void Collectives::advance(Picoseconds until, std::vector<Done>& done) {
  while (endings_.next() <= until && endings_.next() != kNever) {
    const auto at = endings_.next();
    const auto [number, member, version] = endings_.pop();
    if (version == runs_[number].version) end(number, member, at, done);
  }
}

// Once more what has been, as far as nothing after `until` is needed, now that it is certain.
template <typename Ended>
Undisturbed Collectives::settled(Alone& alone, Picoseconds until, std::vector<Left>& under_way, Ended&& ended) {
  auto state = std::move(alone.begun);
  for (const auto& [from, at] : alone.arrived) state.arrived(from, at);
  const auto sent = [&](int member, int step, Picoseconds left, Picoseconds arrives) {
    if (arrives > until) return under_way.push_back({member, step, left});
    ++sent_;
    network_.arrived_alone(left, alone.ways[member]);
  };
  state.go_on(until, sent, std::forward<Ended>(ended));
  return state;
}

void Collectives::end_alone(std::uint32_t number) {
  auto& run = runs_[number];
  std::vector<Left> none;
  if (network_.observed())
    settled(*run.alone, kNever, none, [](int, Picoseconds) {});
  else
    for (const auto& member : run.alone->begun.members())
      sent_ += static_cast<std::uint64_t>(run.schedule->steps() - 1 - member.step);
  network_.release(number, run.alone->ways);
  run.alone.reset();
}

void Collectives::disturbed(std::uint32_t number, Picoseconds at) {
  auto& run = runs_[number];
  const auto alone = std::move(run.alone);
  ++run.version;
  run.until_try = run.schedule->members();
  network_.release(number, alone->ways);
  std::vector<Left> under_way;
  const auto state = settled(*alone, at - 1, under_way, [&](int member, Picoseconds when) {
    if (!run.members[member].ended) endings_.post(when, {number, member, run.version});
  });
  for (int m = 0; m < run.schedule->members(); ++m) {
    auto& member = run.members[m];
    member.step = state.members()[m].step;
    member.outstanding[0] = state.members()[m].outstanding;
    for (int ahead = 1; ahead <= state.early(m); ++ahead) run.early[early_key(m, member.step + ahead)] = 1;
  }
  for (const auto& [m, step, left] : under_way) {
    ++run.members[m].posted;
    auto& way = alone->ways[m];
    run.members[m].latest = new_message({number, m, (m + 1) % run.schedule->members(), step});
    way.message.id = run.members[m].latest | kMark;
    network_.resume(left, at, way);
  }
}

}  // namespace prism::simulate
