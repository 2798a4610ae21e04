// Ranks that are no ranks of the engine, and issue by themselves.
#pragma once
#include <algorithm>
#include <vector>

#include "catch2.hpp"
#include "replay/engine.hpp"

namespace prism::test {

// A program of one lane: spans, issues, waits, by the clock that it keeps itself. `job` has all that it does; `numbers`
// are what the engine calls its communications, where they are others.
class Outside {
 public:
  Outside(const engine::Job& job, const engine::Durations& durations, int rank, std::vector<std::uint32_t> numbers = {})
      : view_(job.view(rank)),
        plan_(job.plan(rank)),
        duration_ns_(durations[rank]),
        rank_(rank),
        numbers_(std::move(numbers)) {
    node_ = plan_.lane_first[0];
    released_.assign(view_.comm_op.size(), -1);
    end_ns.assign(view_.node_kind.size(), -1);
    go_on();
  }
  int rank() const { return rank_; }
  bool issues() const { return node_ != engine::kNone && !waits_; }
  std::int64_t next_ns() const { return now_; }  // of the issue
  template <typename Engine>
  void issue(Engine& engine) {
    end_ns[node_] = now_;
    for (const auto target : plan_.out[node_])
      if (view_.node_comm[target] >= 0) {
        const auto comm = static_cast<std::uint32_t>(view_.node_comm[target]);
        const auto number = numbers_.empty() ? comm : numbers_[comm];
        REQUIRE(engine.arrived(rank_, number, now_));
        CHECK_FALSE(engine.arrived(rank_, number, now_));
      }
    node_ = plan_.next_on_lane[node_];
    go_on();
  }
  void released(std::uint32_t number, std::int64_t at) {
    auto comm = number;
    if (!numbers_.empty())
      comm = static_cast<std::uint32_t>(std::find(numbers_.begin(), numbers_.end(), number) - numbers_.begin());
    REQUIRE(comm < released_.size());
    released_[comm] = at;
    end_ns[plan_.transfer_of_comm[comm]] = at;
    if (waits_) go_on();
  }
  bool ended() const { return node_ == engine::kNone; }
  std::vector<std::int64_t> end_ns;

 private:
  void go_on() {
    waits_ = false;
    for (; node_ != engine::kNone; node_ = plan_.next_on_lane[node_]) {
      const auto kind = static_cast<NodeKind>(view_.node_kind[node_]);
      if (kind == NodeKind::kWait) {
        for (const auto source : plan_.in[node_]) {
          const auto at = released_[static_cast<std::size_t>(view_.node_comm[source])];
          waits_ = waits_ || at < 0;
          now_ = std::max(now_, at);
        }
        if (waits_) return;
      } else {
        now_ += duration_ns_[node_];
        if (kind == NodeKind::kIssue) return;
      }
      end_ns[node_] = now_;
    }
  }
  const ClassView& view_;
  const engine::ClassPlan& plan_;
  const std::span<const std::int64_t> duration_ns_;
  int rank_;
  const std::vector<std::uint32_t> numbers_;
  std::uint32_t node_;
  std::int64_t now_ = 0;
  bool waits_ = false;
  std::vector<std::int64_t> released_;
};

// Until nobody has anything to issue.
template <typename Engine>
void drive(Engine& engine, std::vector<Outside>& programs) {
  std::vector<typename Engine::Released> released;
  for (;;) {
    Outside* first = nullptr;
    for (auto& program : programs)
      if (program.issues() && (!first || program.next_ns() < first->next_ns())) first = &program;
    released.clear();
    REQUIRE(engine.advance(first ? first->next_ns() : INT64_MAX, released));
    for (const auto& [rank, number, at] : released)
      for (auto& program : programs)
        if (program.rank() == rank) program.released(number, at);
    if (!released.empty()) continue;
    if (!first) break;
    first->issue(engine);
  }
}

}  // namespace prism::test
