#include "replay/pruning/programs.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace prism::pruning {
namespace {

// Counts, since there are about as many steps as things to do; those of one step are few.
template <typename Step, typename Key>
void sort(std::vector<Step>& all, int steps, Key&& key) {
  std::vector<std::uint32_t> place(static_cast<std::size_t>(steps) + 1, 0);
  for (const Step& one : all) ++place[one.step + 1];
  std::partial_sum(place.begin(), place.end(), place.begin());
  std::vector<Step> sorted(all.size());
  for (const Step& one : all) sorted[place[one.step]++] = one;
  const auto before = [&](const Step& a, const Step& b) { return key(a) < key(b); };
  auto first = sorted.begin();
  for (int step = 0; step < steps; ++step) {  // a place is now where the next step begins
    const auto last = sorted.begin() + place[step];
    if (last - first > 1) std::sort(first, last, before);
    first = last;
  }
  all = std::move(sorted);
}

}  // namespace

Programs::Programs(const Sandbox& sandbox, int members, int steps, int chunks) : sandbox_(sandbox), parts_(members) {
  plan_.members = members;
  plan_.steps = steps;
  plan_.chunks = chunks;
  peers_.resize(sandbox.chosen().size());
  for (const int member : sandbox.chosen()) {
    plan_.sandbox.push_back({member, {}});
    plan_.sandbox.back().steps.reserve(4 * static_cast<std::size_t>(chunks));  // as in a ring
  }
  std::iota(parts_.begin(), parts_.end(), 0);
}

void Programs::member_step(int member, MemberStep::Kind kind, int step, int peer, int chunk) {
  const int index = sandbox_.index(member);
  plan_.sandbox[index].steps.push_back({kind, step, peer, chunk});
  auto& known = peers_[index][kind == MemberStep::Kind::kSend];
  if (std::find(known.begin(), known.end(), peer) == known.end()) known.push_back(peer);
}

void Programs::live(const Message& message) {
  ++plan_.messages;
  member_step(message.from, MemberStep::Kind::kSend, message.step, message.to, message.chunk);
  member_step(message.to, message.combines ? MemberStep::Kind::kCombine : MemberStep::Kind::kTake, message.step,
              message.from, message.chunk);
}

Value Programs::out(const Message& message) {
  ++plan_.messages;
  member_step(message.from, MemberStep::Kind::kSend, message.step, message.to, message.chunk);
  return add({.from = message.from, .to = message.to, .step = message.step, .chunk = message.chunk});
}

void Programs::in(const Message& message, Value value) {
  ++plan_.messages;
  member_step(message.to, message.combines ? MemberStep::Kind::kCombine : MemberStep::Kind::kTake, message.step,
              message.from, message.chunk);
  arrivals_.push_back({message, value});
}

Value Programs::combined(std::int32_t chunk, bool virtual_part, std::span<const Value> sources) {
  const auto first = static_cast<std::uint32_t>(sources_.size());
  for (const Value source : sources)
    if (source != kNothing) sources_.push_back(source);
  const auto count = static_cast<std::uint32_t>(sources_.size()) - first;
  if (!virtual_part && count < 2) {
    const Value only = count == 1 ? sources_.back() : kNothing;
    sources_.resize(first);
    return only;
  }
  return add({.step = std::numeric_limits<std::int32_t>::max(),
              .chunk = chunk,
              .first_source = first,
              .sources = count,
              .virtual_part = virtual_part});
}

Value Programs::add(Known known) {
  const auto value = static_cast<Value>(values_.size());
  values_.push_back(known);
  parts_.push_back(static_cast<std::int32_t>(parts_.size()));
  return value;
}

std::int32_t Programs::part_of(std::int32_t node) {
  while (parts_[node] != node) node = parts_[node] = parts_[parts_[node]];
  return node;
}

// Backwards, since what is combined comes after its sources: a value that is of use to somebody joins them.
void Programs::find_uses() {
  for (const auto& [message, value] : arrivals_) {
    if (value == kNothing) continue;
    Known& known = values_[value];
    known.last = std::max(known.last, message.step);
    if (known.from < 0) known.step = std::min(known.step, message.step);
    join(message.from, node(value));
  }
  for (auto value = static_cast<Value>(values_.size()); value-- > 0;) {
    const Known& known = values_[value];
    if (known.last < 0) continue;
    if (known.to >= 0) join(known.to, node(value));
    for (std::uint32_t i = 0; i < known.sources; ++i) {
      const Value of = sources_[known.first_source + i];
      Known& source = values_[of];
      source.last = std::max(source.last, known.step);
      if (source.from < 0) source.step = std::min(source.step, known.step);
      join(node(of), node(value));
    }
  }
}

// By part; -1 where nobody is played.
std::vector<std::int32_t> Programs::make_assistants() {
  std::vector<std::uint8_t> played(plan_.members, 0);
  for (const auto& one : arrivals_) played[one.message.from] = 1;
  for (const auto& known : values_)
    if (known.to >= 0) played[known.to] = 1;
  std::vector<std::int32_t> of_part(parts_.size(), -1);
  for (int member = 0; member < plan_.members; ++member) {
    if (played[member] == 0) continue;
    std::int32_t& assistant = of_part[part_of(member)];
    if (assistant < 0) {
      assistant = static_cast<std::int32_t>(plan_.assistants.size());
      plan_.assistants.emplace_back();
    }
    plan_.assistants[assistant].members.push_back(member);
  }
  return of_part;
}

// Until then the number of a buffer is that of its value. A buffer is free from the step on that follows its last use.
void Programs::number_buffers(Assistant& assistant) {
  std::vector<std::int32_t> next, free_after(plan_.steps, -1);  // lists of buffers, by the step of their last use
  std::int32_t free = -1, at = 0;
  for (auto& step : assistant.steps) {
    for (; at < step.step; ++at)
      for (auto buffer = free_after[at]; buffer >= 0;) {
        const auto after = std::exchange(next[buffer], free);
        free = std::exchange(buffer, after);
      }
    if (step.buffer < 0) continue;
    Known& known = values_[step.buffer];
    if (step.kind != AssistantStep::Kind::kSend) {
      if (free < 0) {
        free = assistant.buffers++;
        next.push_back(-1);
      }
      known.buffer = free;
      free = std::exchange(next[free], free_after[known.last]);
      free_after[known.last] = known.buffer;
    }
    step.buffer = known.buffer;
    const auto first = static_cast<std::uint32_t>(assistant.sources.size());
    for (std::uint32_t i = 0; i < step.sources; ++i)
      assistant.sources.push_back(values_[sources_[step.first_source + i]].buffer);
    step.first_source = first;
  }
}

PrunedCollective Programs::finish() {
  using Kind = AssistantStep::Kind;
  find_uses();
  const auto of_part = make_assistants();
  const auto steps_of = [&](std::int32_t node) -> auto& { return plan_.assistants[of_part[part_of(node)]].steps; };
  if (plan_.assistants.size() == 1) plan_.assistants[0].steps.reserve(values_.size() + arrivals_.size());
  for (Value value = 0; value < static_cast<Value>(values_.size()); ++value) {
    const Known& known = values_[value];
    if (known.from >= 0)
      steps_of(known.to).push_back({.kind = Kind::kReceive,
                                    .step = known.step,
                                    .member = known.to,
                                    .peer = known.from,
                                    .chunk = known.chunk,
                                    .buffer = known.last < 0 ? AssistantStep::kDropped : value});
    else if (known.last >= 0)
      steps_of(node(value))
          .push_back({.kind = Kind::kCombine,
                      .virtual_part = known.virtual_part,
                      .step = known.step,
                      .chunk = known.chunk,
                      .buffer = value,
                      .first_source = known.first_source,
                      .sources = known.sources});
  }
  for (const auto& [message, value] : arrivals_)
    steps_of(message.from)
        .push_back({.kind = Kind::kSend,
                    .step = message.step,
                    .member = message.from,
                    .peer = message.to,
                    .chunk = message.chunk,
                    .buffer = value == kNothing ? AssistantStep::kIdentity : value});
  for (auto& assistant : plan_.assistants) {
    sort(assistant.steps, plan_.steps, [](const AssistantStep& step) {
      return std::tuple(step.kind, step.member, step.peer, step.kind == Kind::kCombine ? step.buffer : step.chunk);
    });
    number_buffers(assistant);
  }
  for (auto& member : plan_.sandbox) {
    sort(member.steps, plan_.steps, [](const MemberStep& step) {
      return std::tuple(step.kind != MemberStep::Kind::kSend, step.peer, step.chunk);
    });
    count_edges(member);
  }
  return std::move(plan_);
}

// Of those between two sandbox members, the sender's side counts.
void Programs::count_edges(const SandboxMember& member) {
  const auto& peers = peers_[sandbox_.index(member.member)];
  for (const bool sends : {false, true})
    for (const int peer : peers[sends])
      if (!sandbox_.has(peer))
        ++plan_.edges_across;
      else if (sends)
        ++plan_.edges_within;
}

}  // namespace prism::pruning
