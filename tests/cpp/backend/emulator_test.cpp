// The emulator beside real ranks: here the test is the ranks, and their clocks say what it wants.
#include "backend/emulator/emulator.hpp"

#include <deque>
#include <random>

#include "catch2.hpp"
#include "core/deadline.hpp"
#include "replay/program.hpp"

using namespace prism;
using test::ms;
using test::Program;

namespace {

// A real rank of one lane, in steps: its next span ends, and it issues, or waits for what is not there yet.
class RealRank {
 public:
  RealRank(const ExecutionGraph& graph, int rank)
      : rank_(rank), graph_(graph), view_(graph.class_view(graph.class_of(rank))) {
    due_.assign(view_.comm_op.size(), -1);
    clock_.write([](auto& clock) { clock.phase = ClockPhase::kStands; });
  }
  const RankClock& clock() const { return clock_; }
  int rank() const { return rank_; }
  bool ended() const { return node_ == view_.node_kind.size(); }
  std::int64_t end_ns() const { return now_; }

  void due(std::uint32_t comm, std::int64_t at) {
    due_[comm] = at;
    clock_.write([&](auto& clock) {
      ++clock.seen;
      if (clock.phase == ClockPhase::kBlocked)
        clock.phase = ClockPhase::kWakes, clock.clock_ns = std::max(clock.clock_ns, at);
    });
  }
  // As far as it gets.
  void go(Emulator& emulator) {
    for (; !ended(); ++node_) {
      const auto kind = static_cast<NodeKind>(view_.node_kind[node_]);
      const auto comm = view_.node_comm[node_];
      if (kind == NodeKind::kTransfer) {
        std::int64_t at = 0;
        clock_.write(
            [&](auto& clock) { clock.phase = ClockPhase::kStands, clock.clock_ns = at = now_, ++clock.issued; });
        emulator.issued(rank_, static_cast<std::uint32_t>(comm), at);
      } else if (kind == NodeKind::kWait) {
        std::int64_t last = now_;
        bool missing = false;
        for (std::size_t e = 0; e < view_.edge_dst.size(); ++e)
          if (view_.edge_dst[e] == node_) {
            const auto at = due_[static_cast<std::size_t>(view_.node_comm[view_.edge_src[e]])];
            missing = missing || at < 0;
            last = std::max(last, at);
          }
        if (missing) {
          clock_.write([&](auto& clock) {
            if (clock.phase == ClockPhase::kStands) clock.clock_ns = now_;
            clock.phase = ClockPhase::kBlocked;
          });
          return;
        }
        now_ = last;
        clock_.write([&](auto& clock) { clock.phase = ClockPhase::kStands, clock.clock_ns = now_; });
      } else {
        now_ += graph_.timing(rank_).duration_ns[node_] + (node_ == 0 ? delay_ns : 0);
      }
    }
    if (!std::exchange(told_, true)) emulator.finished(rank_);
  }
  std::int64_t delay_ns = 0;  // of its first span

 private:
  const int rank_;
  const ExecutionGraph& graph_;
  const ClassView& view_;
  RankClock clock_{};
  std::size_t node_ = 0;
  std::int64_t now_ = 0;
  bool told_ = false;
  std::vector<std::int64_t> due_;
};

struct Outcome {
  std::map<int, std::int64_t> end_ns;
  std::optional<Error> error;
};

Outcome emulate(const ExecutionGraph& graph, const std::vector<int>& sandbox, std::int64_t delay_ns = 0) {
  std::deque<RealRank> ranks;
  for (const int rank : sandbox) ranks.emplace_back(graph, rank);
  ranks.front().delay_ns = delay_ns;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Emulation::Released> due;
  Outcome outcome;
  auto emulation = Emulation::make(graph, {.sandbox = sandbox});
  REQUIRE(emulation);
  const auto clock_of = [&](int rank) -> const RankClock& {
    return std::find_if(ranks.begin(), ranks.end(), [&](auto& one) { return one.rank() == rank; })->clock();
  };
  Emulator emulator(std::move(*emulation), clock_of,
                    {[&](std::vector<Emulation::Released> now) {
                       const std::lock_guard lock(mutex);
                       due.insert(due.end(), now.begin(), now.end());
                       changed.notify_all();
                     },
                     [&](Error error) {
                       const std::lock_guard lock(mutex);
                       outcome.error = std::move(error);
                       changed.notify_all();
                     }});
  emulator.start();
  while (!outcome.error && std::any_of(ranks.begin(), ranks.end(), [](auto& rank) { return !rank.ended(); })) {
    for (auto& rank : ranks) rank.go(emulator);
    if (std::all_of(ranks.begin(), ranks.end(), [](auto& rank) { return rank.ended(); })) break;
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return !due.empty() || outcome.error; }));
    for (const auto& one : std::exchange(due, {}))
      for (auto& rank : ranks)
        if (rank.rank() == one.rank) rank.due(one.comm, one.at_ns);
  }
  emulator.stop();
  for (auto& rank : ranks) outcome.end_ns[rank.rank()] = rank.end_ns();
  return outcome;
}

std::int64_t end_of(const ReplayReport& report, int rank) {
  const auto& timeline = report.timelines[static_cast<std::size_t>(rank)];
  return timeline.start_ns.back() + timeline.duration_ns.back();
}

// Four ranks in a pipeline that sends forwards and back, with an all-reduce of pairs.
ExecutionGraph pipeline(std::int64_t more_of_rank_0 = 0) {
  Program job(4, "gloo");
  for (int step = 0; step < 3; ++step)
    for (int r = 0; r < 4; ++r) {
      auto& rank = job[r];
      rank.compute((step == 0 && r == 0 ? more_of_rank_0 : 0) + (1 + r) * ms);
      if (r > 0) rank.blocking({.op = Op::kRecv, .service = ms / 4, .peer = r - 1});
      rank.compute(ms);
      if (r < 3) rank.blocking({.op = Op::kSend, .service = ms / 4, .peer = r + 1});
      if (r < 3) rank.blocking({.op = Op::kRecv, .service = ms / 4, .peer = r + 1, .tag = 1});
      rank.compute(ms / 2);
      if (r > 0) rank.blocking({.op = Op::kSend, .service = ms / 4, .peer = r - 1, .tag = 1});
      rank.blocking({.op = Op::kAllReduce, .service = ms});
    }
  return job.graph();
}

}  // namespace

TEST_CASE("real ranks that do what the trace says end when the replay says", "[one_host]") {
  const auto graph = pipeline();
  const auto whole = replay(graph).value();
  for (const auto& sandbox : {std::vector<int>{0}, {2}, {1, 2}, {0, 3}, {0, 1, 2, 3}}) {
    const auto outcome = emulate(graph, sandbox);
    CHECK_FALSE(outcome.error);
    for (const auto& [rank, end] : outcome.end_ns) CHECK(end == end_of(whole, rank));
  }
}

TEST_CASE("a delay of a real rank goes through virtual ones and comes back", "[one_host]") {
  for (const std::int64_t delay : {ms / 3, 7 * ms}) {
    const auto late = replay(pipeline(delay)).value();
    for (const auto& sandbox : {std::vector<int>{0}, {0, 3}}) {
      const auto outcome = emulate(pipeline(), sandbox, delay);
      CHECK_FALSE(outcome.error);
      for (const auto& [rank, end] : outcome.end_ns) CHECK(end == end_of(late, rank));
    }
  }
}

TEST_CASE("a job in which nobody can go on ends with who waits for whom", "[one_host]") {
  Program job(2, "gloo");
  for (int r = 0; r < 2; ++r) job[r].blocking({.op = Op::kAllReduce, .service = ms});
  RankClock clock{};
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Error> error;
  auto emulation = Emulation::make(job.graph(), {.sandbox = {1}});
  Emulator emulator(std::move(*emulation), [&](int) -> const RankClock& { return clock; },
                    {[](auto) {},
                     [&](Error failed) {
                       const std::lock_guard lock(mutex);
                       error = std::move(failed);
                       changed.notify_all();
                     }});
  emulator.start();
  clock.write([](auto& now) { now.phase = ClockPhase::kBlocked; });  // for something that the trace does not know
  std::unique_lock lock(mutex);
  REQUIRE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return error.has_value(); }));
  CHECK(error->code == ErrorCode::kDeadlock);
  CHECK(error->message.find("rank 1 has not joined") != std::string::npos);
}

TEST_CASE("what a program issues is found in the trace, or the difference is told") {
  Program job(2, "gloo");
  for (int r = 0; r < 2; ++r) {
    job[r].blocking({.op = Op::kAllReduce, .bytes = 64});
    job[r].blocking({.op = r == 0 ? Op::kSend : Op::kRecv, .peer = 1 - r, .tag = 5, .bytes = 8});
  }
  auto emulation = Emulation::make(job.graph(), {.sandbox = {0}}).value();
  Emulation::Call call{.group = "world", .op = Op::kAllReduce, .input_bytes = 64, .output_bytes = 64};
  CHECK(emulation->first_left(0) == "rank 0 has not issued all_reduce 0 of group 'world' (64 bytes in, 64 out)");
  CHECK(emulation->find(0, call).value() == 0);
  CHECK(emulation->left_of(0) == 1);
  CHECK(emulation->find(0, call).error().message.find("twice") != std::string::npos);
  CHECK(
      emulation->find(0, {.group = "world", .op = Op::kSend, .peer = 1, .tag = 5, .input_bytes = 8, .output_bytes = 8})
          .value() == 1);
  CHECK(emulation->left_of(0) == 0);
  CHECK(emulation->first_left(0).empty());
  call.input_bytes = 32;
  CHECK(emulation->find(0, call).error().message ==
        "rank 0: the program issues all_reduce 0 of group 'world' (32 bytes in, 64 out); the trace has all_reduce 0 of "
        "group 'world' (64 bytes in, 64 out)");
  call = {.group = "world", .op = Op::kAllReduce, .number = 1, .input_bytes = 64, .output_bytes = 64};
  CHECK(emulation->find(0, call).error().message.find("the trace has none of that number") != std::string::npos);
  call.group = "tp";
  CHECK(emulation->find(0, call).error().message.find("no such group") != std::string::npos);
  CHECK(emulation->find(1, call).error().message == "rank 1 is not one of those that are real");
  CHECK_FALSE(Emulation::make(job.graph(), {.sandbox = {2}}));
  CHECK_FALSE(Emulation::make(job.graph(), {}));
}
