#include "replay/in_flight.hpp"

#include <algorithm>
#include <tuple>

namespace prism::engine {

InFlight::InFlight(const Job& job, const Loop* loop)
    : job_(job),
      loop_(loop),
      rounds_(loop ? loop->rounds() : 1),
      programs_(loop ? &loop->programs() : &job.programs),
      last_of_queue_(job.queues, kNone) {}

std::int64_t InFlight::seq(int rank, std::uint32_t comm, std::uint32_t round) const {
  const auto& plan = program(rank).comms[comm];
  const std::int64_t rounds = plan.region == Period::kAfter ? rounds_ - 1 : round;
  return plan.seq + rounds * plan.seq_per_round;
}

int InFlight::peer(std::uint32_t part) const {
  const auto slot = comm(part).peer;
  return slot < 0 ? -1 : job_.graph->rank_of_peer_slot(parts_[part].rank, static_cast<std::uint32_t>(slot));
}

std::uint32_t InFlight::add(int rank, std::uint32_t comm, std::uint32_t round) {
  auto part = static_cast<std::uint32_t>(parts_.size());
  if (free_parts_.empty()) {
    parts_.emplace_back();
  } else {
    part = free_parts_.back();
    free_parts_.pop_back();
  }
  parts_[part] = {.rank = rank, .comm = comm, .round = round};
  return part;
}

void InFlight::remove(std::uint32_t part) {
  parts_[part].rank = -1;
  free_parts_.push_back(part);
}

std::uint32_t& InFlight::last_of_queue(std::uint32_t part) {
  return last_of_queue_[job_.ranks[parts_[part].rank].queue_base + comm(part).group];
}

bool InFlight::push(std::uint32_t part) {
  auto& last = last_of_queue(part);
  if (last == kNone) {
    last = parts_[part].next = part;
    return true;
  }
  int before = 1;
  for (auto one = parts_[last].next; one != last && before < job_.model.workers; one = parts_[one].next) ++before;
  parts_[part].next = parts_[last].next;
  last = parts_[last].next = part;
  return before < job_.model.workers;
}

std::uint32_t InFlight::pop(std::uint32_t part) {
  auto& last = last_of_queue(part);
  auto before = last;
  while (parts_[before].next != part) before = parts_[before].next;
  if (before == part) {
    last = kNone;
    return kNone;
  }
  parts_[before].next = parts_[part].next;
  if (last == part) last = before;
  auto next = parts_[last].next;
  for (int i = 1; i < job_.model.workers; ++i) {
    if (next == last) return kNone;
    next = parts_[next].next;
  }
  return next;
}

std::uint32_t InFlight::join(std::uint32_t part) {
  auto& own = parts_[part];
  const auto& plan = comm(part);
  const auto group = this->group(own.rank, plan);
  const auto number = seq(own.rank, own.comm, own.round);
  auto& known = meeting_of_[{number, group}];
  auto& index = own.meeting;
  index = known - 1;
  if (known == 0) {
    index = static_cast<std::uint32_t>(meetings_.size());
    if (free_meetings_.empty()) {
      meetings_.emplace_back();
    } else {
      index = free_meetings_.back();
      free_meetings_.pop_back();
    }
    known = index + 1;
    const auto ranks = job_.graph->group_members(group);
    const auto size = static_cast<std::uint32_t>(ranks.size());
    auto& free = free_blocks(size).first;
    auto first = static_cast<std::uint32_t>(members_.size());
    if (free.empty()) {
      members_.resize(members_.size() + size);
    } else {
      first = free.back();
      free.pop_back();
    }
    for (std::uint32_t m = 0; m < size; ++m)
      members_[first + m] = job_.ranks[ranks[m]].cls < 0 ? kNotRecorded : kNeverIssued;
    const auto in_graph = job_.in_graph_of[group];
    meetings_[index] = {group, size, first, in_graph, in_graph, is_rooted(plan.op) ? plan.peer : 0, number, plan.op};
  }
  members_[meetings_[index].members + own_member(part)] = part;
  return index;
}

void InFlight::end(std::uint32_t index) {
  const auto& meeting = meetings_[index];
  for (std::uint32_t m = 0; m < meeting.size; ++m)
    if (const auto part = member(meeting, m); is_entry(part)) remove(part);
  free_blocks(meeting.size).first.push_back(meeting.members);
  meeting_of_.erase(meeting_of_.find({meeting.seq, meeting.group}));
  free_meetings_.push_back(index);
}

std::uint32_t InFlight::find(std::uint32_t group, std::int64_t seq) const {
  const auto* known = meeting_of_.find({seq, group});
  return known ? *known - 1 : kNone;
}

InFlight::FreeBlocks& InFlight::free_blocks(std::uint32_t size) {
  for (auto& blocks : free_blocks_)
    if (blocks.size == size) return blocks;
  return free_blocks_.emplace_back(size);
}

std::optional<InFlight::Place> InFlight::place_of(std::uint32_t group, std::int64_t seq, int rank) const {
  const auto cls = job_.ranks[rank].cls;
  if (cls < 0) return std::nullopt;
  const auto groups = job_.graph->group_slots(rank);
  const auto slot = static_cast<std::size_t>(std::find(groups.begin(), groups.end(), group) - groups.begin());
  if (slot >= job_.classes[cls].queues) return std::nullopt;
  const auto comms = job_.classes[cls].collectives[slot];
  const auto& plans = program(rank).comms;
  std::uint32_t round = 0;
  if (loop_) std::tie(seq, round) = Loop::recorded(plans, comms, seq, rounds_);
  const auto known =
      std::lower_bound(comms.begin(), comms.end(), seq, [&](auto c, auto wanted) { return plans[c].seq < wanted; });
  if (known == comms.end() || plans[*known].seq != seq) return std::nullopt;
  return Place{*known, round};
}

const CommPlan* InFlight::comm_of(const Meeting& meeting, std::uint32_t m) const {
  const auto part = member(meeting, m);
  if (part == kNotRecorded) return nullptr;
  if (is_entry(part)) return &comm(part);
  const int rank = job_.graph->group_members(meeting.group)[m];
  const auto place = place_of(meeting.group, meeting.seq, rank);
  return place ? &program(rank).comms[place->comm] : nullptr;
}

std::uint32_t InFlight::meet(std::uint32_t part) {
  const auto& own = comm(part);
  const bool sends = own.op == Op::kSend;
  const int rank = parts_[part].rank, other = peer(part), destination = sends ? other : rank;
  const bool any = job_.plan(destination).any_source;
  const MailboxKey key{group(rank, own), any ? -1 : sends ? rank : other, destination, job_.model.tags ? own.tag : 0};
  auto& known = mailboxes_[key];
  auto last = known - 1;
  const auto matches = [&](std::uint32_t one) {
    if ((comm(one).op == Op::kSend) == sends) return false;
    if (!any) return true;
    const int source = sends ? rank : other, of_one = sends ? peer(one) : parts_[one].rank;
    return source == of_one || source < 0 || of_one < 0;
  };
  // Without receives from any source all that wait are of one kind: it is the first, or none.
  for (auto before = last; known > 0; before = parts_[before].next) {
    const auto one = parts_[before].next;
    if (!any && !matches(one)) break;
    if (matches(one)) {
      parts_[before].next = parts_[one].next;
      if (one == last) known = before + 1;
      if (one == before) mailboxes_.erase(&known);
      return one;
    }
    if (one == last) break;
  }
  parts_[part].next = known == 0 ? part : parts_[last].next;
  if (known > 0) parts_[last].next = part;
  known = part + 1;
  return kNone;
}

std::size_t InFlight::bytes() const {
  std::size_t blocks = 0;
  for (const auto& one : free_blocks_) blocks += one.first.capacity() * sizeof(std::uint32_t);
  return parts_.capacity() * sizeof(Part) + meetings_.capacity() * sizeof(Meeting) +
         (free_parts_.capacity() + free_meetings_.capacity() + last_of_queue_.capacity() + members_.capacity()) *
             sizeof(std::uint32_t) +
         blocks + meeting_of_.bytes() + mailboxes_.bytes();
}

}  // namespace prism::engine
