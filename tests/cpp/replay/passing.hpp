// Executes the programs of a pruned collective as processes that know nothing of each other's steps, but by messages.
// Who goes on next is drawn; so a run shows one of many orders, and whether anybody waits for ever.
#pragma once
#include <algorithm>
#include <deque>
#include <map>

#include "collective_inputs.hpp"
#include "replay/pruned.hpp"

namespace prism::test {

enum class Sends {
  kBuffered,    // done at once
  kRendezvous,  // done when they have been received
};

// A sandbox member posts all messages of a step at once. An assistant does one thing after the other, and waits for
// each.
template <typename T, typename Arithmetic>
class Passing {
 public:
  Passing(const PrunedCollective& plan, std::vector<std::vector<T>>& own, Arithmetic& arithmetic, Sends sends)
      : plan_(plan), own_(own), arithmetic_(arithmetic), sends_(sends) {
    for (const auto& assistant : plan.assistants) states_.emplace_back(assistant, arithmetic);
    members_.resize(plan.sandbox.size());
    assistants_.resize(plan.assistants.size());
  }

  // False where nobody can go on and somebody is not done.
  bool run(std::uint64_t seed) {
    Random random{seed};
    std::vector<int> order(members_.size() + assistants_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(static_cast<int>(i))]);
      for (const int process : order) {
        const auto member = static_cast<std::size_t>(process);
        const int turns = 1 + random.below(3);  // some run ahead
        for (int turn = 0; turn < turns; ++turn)
          progress |= member < members_.size() ? go_on(member) : go_on_assistant(member - members_.size());
      }
    }
    for (std::size_t i = 0; i < members_.size(); ++i)
      if (members_[i].at != plan_.sandbox[i].steps.size()) return false;
    for (std::size_t i = 0; i < assistants_.size(); ++i)
      if (assistants_[i].at != plan_.assistants[i].steps.size()) return false;
    return std::all_of(wires_.begin(), wires_.end(), [](const auto& wire) { return wire.second.messages.empty(); });
  }

 private:
  struct Wire {
    struct Message {
      int step, chunk;
      T value;
    };
    std::deque<Message> messages;
    std::size_t sent = 0, received = 0;
  };
  struct Awaited {
    const Wire* wire;
    std::size_t number;
  };
  struct Member {
    std::size_t at = 0, end = 0;    // the step's first message, and behind its last; equal: not begun
    std::vector<std::size_t> left;  // to receive
    std::vector<Awaited> posted;
  };
  struct Assistant {
    std::size_t at = 0;
    bool posted = false;
    Awaited awaited{};
  };

  Awaited post(int from, int to, int step, int chunk, T value) {
    Wire& wire = wires_[{from, to}];
    wire.messages.push_back({step, chunk, std::move(value)});
    return {&wire, ++wire.sent};
  }
  bool is_done(const Awaited& send) const { return sends_ == Sends::kBuffered || send.wire->received >= send.number; }
  bool receive(int from, int to, int step, int chunk, T& value) {
    Wire& wire = wires_[{from, to}];
    if (wire.messages.empty()) return false;
    auto& message = wire.messages.front();
    if (message.step != step || message.chunk != chunk)
      FAIL("from " << from << " to " << to << " came chunk " << message.chunk << " of step " << message.step
                   << " for chunk " << chunk << " of step " << step);
    value = std::move(message.value);
    wire.messages.pop_front();
    ++wire.received;
    return true;
  }

  bool go_on(std::size_t index) {
    const auto& [member, steps] = plan_.sandbox[index];
    Member& state = members_[index];
    if (state.at == steps.size()) return false;
    bool progress = false;
    if (state.end == state.at) {
      for (; state.end < steps.size() && steps[state.end].step == steps[state.at].step; ++state.end) {
        const auto& step = steps[state.end];
        if (step.kind == MemberStep::Kind::kSend)
          state.posted.push_back(post(member, step.peer, step.step, step.chunk, own_[index][step.chunk]));
        else
          state.left.push_back(state.end);
      }
      progress = true;
    }
    for (std::size_t i = 0; i < state.left.size();) {
      const auto& step = steps[state.left[i]];
      T value{};
      // Of the same sender the earlier one is first.
      if (!receive(step.peer, member, step.step, step.chunk, value)) {
        ++i;
        continue;
      }
      if (step.kind == MemberStep::Kind::kCombine)
        arithmetic_.reduce(own_[index][step.chunk], value);
      else
        own_[index][step.chunk] = std::move(value);
      state.left.erase(state.left.begin() + static_cast<std::ptrdiff_t>(i));
      progress = true;
    }
    const auto done = [&](const Awaited& send) { return is_done(send); };
    if (!state.left.empty() || !std::all_of(state.posted.begin(), state.posted.end(), done)) return progress;
    state.posted.clear();
    state.at = state.end;
    return true;
  }

  bool go_on_assistant(std::size_t index) {
    const auto& steps = plan_.assistants[index].steps;
    Assistant& state = assistants_[index];
    if (state.at == steps.size()) return false;
    const auto& step = steps[state.at];
    if (step.kind == AssistantStep::Kind::kCombine) {
      states_[index].combine(step);
    } else if (step.kind == AssistantStep::Kind::kReceive) {
      T value{};
      if (!receive(step.peer, step.member, step.step, step.chunk, value)) return false;
      states_[index].take(step, std::move(value));
    } else {
      const bool is_new = !state.posted;
      if (is_new) state.awaited = post(step.member, step.peer, step.step, step.chunk, states_[index].sent(step));
      state.posted = true;
      if (!is_done(state.awaited)) return is_new;
      state.posted = false;
    }
    ++state.at;
    return true;
  }

  const PrunedCollective& plan_;
  std::vector<std::vector<T>>& own_;
  Arithmetic& arithmetic_;
  Sends sends_;
  std::vector<AssistantState<T, Arithmetic>> states_;
  std::vector<Member> members_;
  std::vector<Assistant> assistants_;
  std::map<std::pair<int, int>, Wire> wires_;
};

}  // namespace prism::test
