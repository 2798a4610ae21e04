// Executes the programs of a pruned collective, knowing nothing of why they are what they are.
//
// `Arithmetic` says what a chunk's value is: T, identity(), reduce(T& own, const T& came), and
// combine(bool virtual_part, int chunk, const std::vector<const T*>& sources) -> T for assistants.
#pragma once
#include <vector>

#include "catch2.hpp"
#include "replay/pruning.hpp"

namespace prism::test {

// Messages in one direction between two, a sandbox member being one of them: first in, first out.
template <typename T>
class Wires {
 public:
  struct Message {
    int step, chunk;
    T value;
  };
  Wires(const PrunedCollective& plan) : members_(plan.members), index_(static_cast<std::size_t>(plan.members), -1) {
    for (std::size_t i = 0; i < plan.sandbox.size(); ++i) index_[plan.sandbox[i].member] = static_cast<int>(i);
    first_.resize(2 * plan.sandbox.size() * static_cast<std::size_t>(plan.members), -1);
    last_ = first_;
  }
  void send(int from, int to, Message message) {
    const auto wire = this->wire(from, to);
    const auto number = static_cast<int>(messages_.size());
    (first_[wire] < 0 ? first_[wire] : next_[last_[wire]]) = number;
    last_[wire] = number;
    next_.push_back(-1);
    messages_.push_back(std::move(message));
    ++under_way_;
  }
  // Null where nothing is under way.
  Message* receive(int from, int to) {
    const int number = first_[wire(from, to)];
    if (number < 0) return nullptr;
    first_[wire(from, to)] = next_[number];
    --under_way_;
    return &messages_[number];
  }
  std::size_t under_way() const { return under_way_; }
  void forget() { messages_.clear(), next_.clear(); }  // when nothing is under way

 private:
  std::size_t wire(int from, int to) const {
    const bool sends = index_[from] >= 0;
    const auto own = static_cast<std::size_t>(sends ? index_[from] : index_[to]);
    return (2 * own + sends) * static_cast<std::size_t>(members_) + static_cast<std::size_t>(sends ? to : from);
  }
  int members_;
  std::vector<int> index_, first_, last_, next_;
  std::vector<Message> messages_;
  std::size_t under_way_ = 0;
};

template <typename T, typename Arithmetic>
class AssistantState {
 public:
  AssistantState(const Assistant& assistant, Arithmetic& arithmetic)
      : assistant_(assistant), arithmetic_(arithmetic), buffers_(static_cast<std::size_t>(assistant.buffers)) {}
  void combine(const AssistantStep& step) {
    sources_.clear();
    for (std::uint32_t i = 0; i < step.sources; ++i)
      sources_.push_back(&buffers_[assistant_.sources[step.first_source + i]]);
    buffers_[step.buffer] = arithmetic_.combine(step.virtual_part, step.chunk, sources_);
  }
  T sent(const AssistantStep& step) const {
    return step.buffer == AssistantStep::kIdentity ? arithmetic_.identity() : buffers_[step.buffer];
  }
  void take(const AssistantStep& step, T value) {
    if (step.buffer != AssistantStep::kDropped) buffers_[step.buffer] = std::move(value);
  }

 private:
  const Assistant& assistant_;
  Arithmetic& arithmetic_;
  std::vector<T> buffers_;
  std::vector<const T*> sources_;
};

// All in the same step at a time: what is sent in a step has to be received in it. `own`: [sandbox member][chunk].
// `sent` is told of every message of an assistant, with its value.
template <typename T, typename Arithmetic, typename Sent>
void execute_in_steps(const PrunedCollective& plan, std::vector<std::vector<T>>& own, Arithmetic& arithmetic,
                      Sent&& sent) {
  Wires<T> wires(plan);
  std::vector<AssistantState<T, Arithmetic>> states;
  for (const auto& assistant : plan.assistants) states.emplace_back(assistant, arithmetic);
  std::vector<std::size_t> member_at(plan.sandbox.size(), 0), assistant_at(plan.assistants.size(), 0);
  const auto receive = [&](int from, int to, int step, int chunk) -> T& {
    auto* message = wires.receive(from, to);
    if (message == nullptr || message->step != step || message->chunk != chunk)
      FAIL("step " << step << ": chunk " << chunk << " from " << from << " to " << to << " has not been sent");
    return message->value;
  };
  for (int step = 0; step < plan.steps; ++step) {
    for (std::size_t i = 0; i < plan.sandbox.size(); ++i) {
      const auto& [member, steps] = plan.sandbox[i];
      auto& at = member_at[i];
      for (; at < steps.size() && steps[at].step == step && steps[at].kind == MemberStep::Kind::kSend; ++at)
        wires.send(member, steps[at].peer, {step, steps[at].chunk, own[i][steps[at].chunk]});
    }
    for (std::size_t i = 0; i < states.size(); ++i) {
      const auto& steps = plan.assistants[i].steps;
      auto& at = assistant_at[i];
      for (; at < steps.size() && steps[at].step == step && steps[at].kind != AssistantStep::Kind::kReceive; ++at)
        if (steps[at].kind == AssistantStep::Kind::kCombine) {
          states[i].combine(steps[at]);
        } else {
          T value = states[i].sent(steps[at]);
          sent(steps[at], value);
          wires.send(steps[at].member, steps[at].peer, {step, steps[at].chunk, std::move(value)});
        }
    }
    for (std::size_t i = 0; i < states.size(); ++i) {
      const auto& steps = plan.assistants[i].steps;
      for (auto& at = assistant_at[i]; at < steps.size() && steps[at].step == step; ++at)
        states[i].take(steps[at], std::move(receive(steps[at].peer, steps[at].member, step, steps[at].chunk)));
    }
    for (std::size_t i = 0; i < plan.sandbox.size(); ++i) {
      const auto& [member, steps] = plan.sandbox[i];
      for (auto& at = member_at[i]; at < steps.size() && steps[at].step == step; ++at) {
        T& came = receive(steps[at].peer, member, step, steps[at].chunk);
        if (steps[at].kind == MemberStep::Kind::kCombine)
          arithmetic.reduce(own[i][steps[at].chunk], came);
        else
          own[i][steps[at].chunk] = std::move(came);
      }
    }
    if (wires.under_way() != 0) FAIL("step " << step << ": " << wires.under_way() << " messages are not received");
    wires.forget();
  }
  for (std::size_t i = 0; i < plan.sandbox.size(); ++i)
    if (member_at[i] != plan.sandbox[i].steps.size()) FAIL("member " << plan.sandbox[i].member << " is not done");
  for (std::size_t i = 0; i < states.size(); ++i)
    if (assistant_at[i] != plan.assistants[i].steps.size()) FAIL("assistant " << i << " is not done");
}
template <typename T, typename Arithmetic>
void execute_in_steps(const PrunedCollective& plan, std::vector<std::vector<T>>& own, Arithmetic& arithmetic) {
  execute_in_steps(plan, own, arithmetic, [](const AssistantStep&, const T&) {});
}

}  // namespace prism::test
