// The engine's side of communications: whom each waits for, when its transfer starts and ends.
#include "replay/engine.hpp"

namespace prism::engine {
namespace {

bool has_come(std::uint32_t member) { return member != kNeverIssued; }  // or is taken to come in time

}  // namespace

void Engine::enqueue(int rank, std::uint32_t comm, std::uint32_t round, std::int64_t at_ns) {
  const auto part = in_flight_.add(rank, comm, round);
  const auto& plan = in_flight_.comm(part);
  if (options_.timelines && round == 0) {
    timelines_[rank].start_ns[plan.transfer] = at_ns;
    timelines_[rank].duration_ns[plan.transfer] = -1;  // in progress
  }
  if (is_point_to_point(plan.op)) return post_message(part, at_ns);
  if (in_flight_.push(part)) taken_up(part, at_ns);
}

void Engine::taken_up(std::uint32_t part, std::int64_t at_ns) {
  in_flight_[part].taken_up_ns = at_ns;
  auto& meeting = in_flight_.meeting(in_flight_.join(part));
  carrier_.came(part, at_ns, ended_);
  const auto missing = --meeting.missing;
  if (rules_[static_cast<std::size_t>(meeting.op)] != StartRule::kLastMember) {
    carrier_.taken_up(part, at_ns, ended_);
    const auto root = static_cast<std::uint32_t>(meeting.root);
    return join_tree(meeting, (in_flight_.own_member(part) + meeting.size - root) % meeting.size, at_ns);
  }
  if (missing > 0) return;
  for (std::uint32_t m = 0; m < meeting.size; ++m)
    if (const auto other = in_flight_.member(meeting, m); is_entry(other)) can_start(other, at_ns);
  carrier_.start_all(in_flight_[part].meeting, at_ns, ended_);
}

// `member`, counted from the root, has come: it may be what its parent, itself, and all behind it lacked.
void Engine::join_tree(const Meeting& meeting, std::uint32_t member, std::int64_t at_ns) {
  Tree tree{rules_[static_cast<std::size_t>(meeting.op)], meeting.size};
  const auto part = [&](std::uint32_t v) { return in_flight_.member_from_root(meeting, v); };
  const auto has_data = [&](std::uint32_t v) {
    while (v != 0 && has_come(part(v))) v = tree.parent(v);
    return v == 0 && has_come(part(0));
  };
  const auto start_if_ready = [&](std::uint32_t v) {
    if (!is_entry(part(v)) || in_flight_[part(v)].start_ns != kUnset) return;
    bool ready = has_data(v);
    if (v == 0 && tree.rule == StartRule::kStar)
      ready = meeting.missing == 0;
    else if (ready)
      tree.children(v, [&](std::uint32_t child) { ready = ready && has_come(part(child)); });
    if (ready) start_transfer(part(v), at_ns);
  };
  if (member != 0) start_if_ready(tree.parent(member));
  if (!has_data(member)) return;
  std::vector<std::uint32_t> reached{member};
  while (!reached.empty()) {
    std::uint32_t v = reached.back();
    reached.pop_back();
    start_if_ready(v);
    tree.children(v, [&](std::uint32_t child) {
      if (has_come(part(child))) reached.push_back(child);
    });
  }
}

void Engine::post_message(std::uint32_t part, std::int64_t at_ns) {
  in_flight_[part].taken_up_ns = at_ns;
  const int peer = in_flight_.peer(part);
  const bool sends = in_flight_.comm(part).op == Op::kSend;
  if (!sends) carrier_.posted(part, at_ns);
  if (peer >= 0 && job_.ranks[peer].cls < 0)
    return sends ? start_message(part, kNone, at_ns) : start_message(kNone, part, at_ns);
  if (const auto other = in_flight_.meet(part); other != kNone)
    start_message(sends ? part : other, sends ? other : part, at_ns);
}

void Engine::start_message(std::uint32_t send, std::uint32_t receive, std::int64_t at_ns) {
  for (const auto part : {send, receive})
    if (part != kNone) can_start(part, at_ns);
  carrier_.start_message(send, receive, at_ns, ended_);
}

void Engine::start_transfer(std::uint32_t part, std::int64_t at_ns) {
  can_start(part, at_ns);
  carrier_.start(part, at_ns, ended_);
}

void Engine::can_start(std::uint32_t part, std::int64_t at_ns) {
  Part& own = in_flight_[part];
  own.start_ns = at_ns;
  if (options_.timelines && own.round == 0) transfer_start_ns_[job_.ranks[own.rank].entry_base + own.comm] = at_ns;
}

void Engine::transfer_ended(std::uint32_t part, std::int64_t at_ns) {
  Part& own = in_flight_[part];
  const int rank = own.rank;
  const auto& plan = in_flight_.comm(part);
  // With another algorithm than the rule's own tree a part may end although the rule still waits for somebody.
  if (own.start_ns == kUnset) can_start(part, own.taken_up_ns);
  if (options_.timelines && own.round == 0)
    timelines_[rank].duration_ns[plan.transfer] = at_ns - timelines_[rank].start_ns[plan.transfer];
  if (options_.observer) options_.observer->transferred(rank, own.comm, own.round, own.start_ns, at_ns);
  if (is_outside_[rank])
    released_.push_back(
        {rank, options_.loop ? options_.loop->number(job_.ranks[rank].cls, own.comm, own.round) : own.comm, at_ns});
  else
    source_ended(rank, in_flight_.program(rank).targets_of(plan), own.round, at_ns);
  if (is_point_to_point(plan.op)) return in_flight_.remove(part);
  own.ended = true;
  const auto next = in_flight_.pop(part);
  auto& meeting = in_flight_.meeting(own.meeting);
  if (--meeting.left == 0) {
    carrier_.over(own.meeting);
    in_flight_.end(own.meeting);
  }
  if (next != kNone) taken_up(next, at_ns);
}

}  // namespace prism::engine
