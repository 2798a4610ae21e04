#include "backend/coordinator/matcher.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>

#include "backend/coordinator/rules.hpp"

namespace prism {
namespace {

std::shared_ptr<Exchange> new_exchange(std::shared_ptr<Group> group, std::size_t parts, bool collective,
                                       std::uint64_t seq) {
  auto exchange = std::make_shared<Exchange>();
  exchange->group = std::move(group);
  exchange->collective = collective;
  exchange->seq = seq;
  exchange->arrivals.resize(parts);
  exchange->expected = parts;
  exchange->absent_sum = parts * (parts - 1) / 2;
  return exchange;
}

std::shared_ptr<Exchange> take_front(Mailbox::Queues& queues, std::int32_t source) {
  const auto queue = queues.find(source);
  auto exchange = queue->second.front();
  queue->second.pop_front();
  if (queue->second.empty()) queues.erase(queue);
  return exchange;
}

// The source whose first entry came first among `source` (any: all sources) and receives from anybody; nullopt: none.
std::optional<std::int32_t> earliest(const Mailbox::Queues& queues, std::int32_t source, bool sends) {
  std::optional<std::int32_t> best;
  const auto consider = [&](std::int32_t key) {
    const auto queue = queues.find(key);
    if (queue != queues.end() && (!best || queue->second.front()->seq < queues.at(*best).front()->seq)) best = key;
  };
  if (sends && source < 0)
    for (const auto& queue : queues) consider(queue.first);
  else
    consider(source);
  if (!sends) consider(-1);
  return best;
}

void let_go(Group& group) {
  group.collectives.clear();
  group.mail.clear();
}

}  // namespace

Matcher::Matcher(int ranks, std::function<void(int, int)> urge, const std::vector<int>& real)
    : urge_(std::move(urge)), memberships_(static_cast<std::size_t>(ranks)) {
  if (real.empty()) return;
  real_.resize(static_cast<std::size_t>(ranks));
  for (const int rank : real) real_[static_cast<std::size_t>(rank)] = true;
}

std::size_t Matcher::real_members(const Group& group) const {
  return static_cast<std::size_t>(std::count_if(group.members.begin(), group.members.end(),
                                                [this](std::int32_t member) { return !is_virtual(member); }));
}

Matcher::~Matcher() {
  for (auto& entry : groups_)
    for (auto& group : entry.second) let_go(*group);
}

Result<void> Matcher::join(int rank, GroupHandle handle, const std::string& key, std::vector<std::int32_t> members) {
  auto& mine = memberships_[static_cast<std::size_t>(rank)];
  const auto self = std::find(members.begin(), members.end(), rank);
  std::unordered_set<std::int32_t> distinct(members.begin(), members.end());
  const bool in_range = std::all_of(members.begin(), members.end(), [&](std::int32_t member) {
    return member >= 0 && static_cast<std::size_t>(member) < memberships_.size();
  });
  if (self == members.end() || distinct.size() != members.size() || !in_range || mine.count(handle) != 0)
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("group '{}' of ranks {}; accepted: distinct ranks of 0 to {}, this one among them", key,
                             members, memberships_.size() - 1)};
  const auto member = static_cast<std::size_t>(self - members.begin());
  auto& of_key = groups_[key];
  const auto open = std::find_if(of_key.begin(), of_key.end(), [&](const auto& group) {
    return group->members != members || !group->joined[member];
  });
  std::shared_ptr<Group> group;
  if (open == of_key.end()) {
    group = of_key.emplace_back(std::make_shared<Group>());
    group->key = key;
    group->joined.resize(members.size());
    group->members = std::move(members);
  } else if (group = *open; group->members != members) {
    return Error{ErrorCode::kMismatch, fmt::format("group '{}' has the ranks {} here, but {} on a rank that joined it "
                                                   "before",
                                                   key, members, group->members)};
  }
  group->joined[member] = true;
  mine.emplace(handle, Membership{std::move(group), static_cast<int>(member)});
  return {};
}

Result<void> Matcher::leave(int rank, GroupHandle handle) {
  auto& mine = memberships_[static_cast<std::size_t>(rank)];
  const auto place = mine.find(handle);
  if (place == mine.end()) return Error{ErrorCode::kInvalidInput, fmt::format("no group has the handle {}", handle)};
  const auto group = place->second.group;
  mine.erase(place);
  if (++group->left < real_members(*group)) return {};
  const auto of_key = groups_.find(group->key);
  of_key->second.erase(std::find(of_key->second.begin(), of_key->second.end(), group));
  if (of_key->second.empty()) groups_.erase(of_key);
  let_go(*group);
  return {};
}

Result<std::shared_ptr<Exchange>> Matcher::arrive(int rank, WorkId work, Operation operation) {
  const auto& mine = memberships_[static_cast<std::size_t>(rank)];
  const auto place = mine.find(operation.group);
  if (place == mine.end())
    return Error{ErrorCode::kInvalidInput, fmt::format("no group has the handle {}", operation.group)};
  const Membership membership = place->second;
  const int members = static_cast<int>(membership.group->members.size());
  if (auto checked = rules::check_call(operation, members, membership.member); !checked)
    return Error{checked.error().code,
                 fmt::format("{}, in group '{}'", checked.error().message, membership.group->key)};
  const bool message = is_point_to_point(operation.op);
  Arrival arrival{rank, membership.member, work, std::move(operation)};
  return message ? arrive_message(membership, std::move(arrival)) : arrive_collective(membership, std::move(arrival));
}

Result<std::shared_ptr<Exchange>> Matcher::arrive_collective(const Membership& place, Arrival arrival) {
  Group& group = *place.group;
  const std::uint64_t seq = arrival.operation.seq;
  auto& open = group.collectives[seq];
  if (!open) {
    open = new_exchange(place.group, group.members.size(), true, seq);
    if (!real_.empty()) open->expected = real_members(group);
  }
  const auto exchange = open;
  const auto index = static_cast<std::size_t>(place.member);
  if (exchange->arrivals[index].work != 0)
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("collective #{} of group '{}' was issued twice", seq, group.key)};
  if (exchange->first >= 0) PRISM_RETURN_IF_ERROR(rules::check_members(*exchange, arrival));
  put(*exchange, index, std::move(arrival));
  urge(*exchange, -1);
  if (exchange->complete()) {
    group.collectives.erase(seq);
    if (!exchange->failed && exchange->expected == exchange->arrivals.size())
      PRISM_RETURN_IF_ERROR(rules::check_complete(*exchange));
  } else if (exchange->arrived + 1 == exchange->arrivals.size() && !exchange->failed) {
    urge(*exchange, group.members[exchange->absent_sum]);
  }
  return exchange;
}

Result<std::shared_ptr<Exchange>> Matcher::arrive_message(const Membership& place, Arrival arrival) {
  Group& group = *place.group;
  const Operation& o = arrival.operation;
  const bool sends = o.op == Op::kSend;
  const int destination = sends ? o.peer : place.member, source = sends ? place.member : o.peer;
  const std::uint64_t key =
      static_cast<std::uint64_t>(destination) << 32 | static_cast<std::uint32_t>(arrival.operation.tag);
  Mailbox& box = group.mail[key];
  auto& others = sends ? box.receives : box.sends;
  const std::size_t index = sends ? 0 : 1;
  if (o.peer >= 0 && is_virtual(group.members[static_cast<std::size_t>(o.peer)])) {
    const auto exchange = new_exchange(place.group, 2, false, ++messages_);
    exchange->expected = 1;
    put(*exchange, index, std::move(arrival));
    return exchange;
  }
  if (const auto match = earliest(others, source, !sends)) {
    const auto exchange = take_front(others, *match);
    if (box.sends.empty() && box.receives.empty()) group.mail.erase(key);
    put(*exchange, index, std::move(arrival));
    urge(*exchange, -1);
    PRISM_RETURN_IF_ERROR(rules::check_complete(*exchange));
    return exchange;
  }
  const auto exchange = new_exchange(place.group, 2, false, ++messages_);
  const int peer = o.peer;
  put(*exchange, index, std::move(arrival));
  (sends ? box.sends : box.receives)[source].push_back(exchange);
  if (peer >= 0) urge(*exchange, group.members[static_cast<std::size_t>(peer)]);
  return exchange;
}

void Matcher::put(Exchange& exchange, std::size_t index, Arrival arrival) {
  exchange.arrivals[index] = std::move(arrival);
  exchange.absent_sum -= index;
  ++exchange.arrived;
  if (exchange.first < 0) exchange.first = static_cast<int>(index);
}

void Matcher::urge(Exchange& exchange, int rank) {
  if (exchange.urged >= 0) urge_(exchange.urged, -1);
  exchange.urged = rank;
  if (rank >= 0) urge_(rank, +1);
}

void Matcher::expire(const std::shared_ptr<Exchange>& exchange, Error error) {
  urge(*exchange, -1);
  exchange->failed = std::move(error);
  if (exchange->collective) return;
  Group& group = *exchange->group;
  for (auto box = group.mail.begin(); box != group.mail.end();) {
    for (auto* queues : {&box->second.sends, &box->second.receives})
      for (auto queue = queues->begin(); queue != queues->end();) {
        std::erase(queue->second, exchange);
        queue = queue->second.empty() ? queues->erase(queue) : std::next(queue);
      }
    box = box->second.sends.empty() && box->second.receives.empty() ? group.mail.erase(box) : std::next(box);
  }
}

}  // namespace prism
