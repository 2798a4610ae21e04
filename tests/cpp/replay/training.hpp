// Random training jobs whose iterations are all alike: what an emulation does that repeats the last ones, a record of
// all of them says.
//
// Before the loop a broadcast and a prefetched all-gather; in an iteration spans, collectives of all and of halves,
// messages around a ring, a second thread that reduces, some waits at once and some at the end; what is prefetched in
// one iteration is waited for in the next. After the loop everybody waits for the last prefetch, and there is a
// barrier.
#pragma once
#include <random>

#include "replay/program.hpp"

namespace prism::test {

struct Training {
  unsigned seed = 0;
  const char* model = "nccl";
  int ranks = 4;
  int period = 1;       // iterations until they are alike again
  bool closed = true;   // a mark ends the last iteration
  bool threads = true;  // odd ranks have two
  bool any_source = false;
};

class TrainingJob {
 public:
  explicit TrainingJob(const Training& training) : training_(training) {
    std::mt19937 random(training.seed);
    const auto up_to = [&](int n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
    for (int i = 0; i < training.period; ++i) {
      auto& script = scripts_.emplace_back();
      const auto actions = 6 + up_to(8);
      for (std::int64_t a = 0; a < actions; ++a)
        script.push_back({.what = static_cast<int>(up_to(6)),
                          .root = static_cast<int>(up_to(training.ranks)),
                          .shift = 1 + static_cast<int>(up_to(training.ranks - 1)),
                          .bytes = up_to(1'000'000),
                          .service = up_to(3 * ms),
                          .waits = up_to(2) == 0,
                          .salt = static_cast<unsigned>(random())});
    }
  }

  Program program(int iterations) const {
    Program job(training_.ranks, training_.model);
    for (int r = 0; r < training_.ranks; ++r) {
      auto& groups = job[r].record.groups;
      std::vector<std::int32_t> half;
      for (int m = r % 2; m < training_.ranks; m += 2) half.push_back(m);
      groups.push_back({r % 2 == 0 ? "even" : "odd", half});
      run(job[r], r, iterations);
    }
    return job;
  }

 private:
  struct Action {
    int what, root, shift;
    std::int64_t bytes, service;
    bool waits;
    unsigned salt;
  };

  std::int64_t span(int rank, const Action& action) const {
    return 1 +
           static_cast<std::int64_t>(std::minstd_rand(action.salt + 97u * static_cast<unsigned>(rank))() % (2 * ms));
  }

  void run(RankProgram& rank, int r, int iterations) const {
    rank.blocking({.op = Op::kBroadcast, .service = ms, .peer = 0, .bytes = 1000});
    rank.compute(1 + 1000 * r);
    auto prefetched = rank.issue({.op = Op::kAllGather, .service = 2 * ms, .bytes = 400'000}, 50);
    for (int i = 0; i < iterations; ++i) {
      rank.mark();
      rank.compute(500);
      rank.wait({prefetched});
      iteration(rank, r, scripts_[static_cast<std::size_t>(i % training_.period)], prefetched);
    }
    if (training_.closed) rank.mark();
    rank.compute(700);
    rank.wait({prefetched});
    rank.blocking({.op = Op::kBarrier, .service = ms});
    rank.compute(900);
  }

  void iteration(RankProgram& rank, int r, const std::vector<Action>& script, std::int32_t& prefetched) const {
    const int world = training_.ranks;
    std::vector<std::int32_t> open;
    for (std::size_t a = 0; a < script.size(); ++a) {
      const auto& action = script[a];
      const auto computed = rank.compute(span(r, action), a == 0 ? "first" : "");
      if (a == 1) prefetched = rank.issue({.op = Op::kAllGather, .service = 2 * ms, .bytes = 400'000}, 50);
      CommSpec spec{.service = action.service, .bytes = action.bytes};
      if (action.what == 0) {
        open.push_back(rank.issue(spec, 100));
      } else if (action.what == 1) {
        spec.op = Op::kBroadcast, spec.peer = action.root;
        open.push_back(rank.issue(spec));
      } else if (action.what == 2) {
        spec.op = Op::kReduceScatter, spec.group = 1;
        open.push_back(rank.issue(spec, 30));
      } else if (action.what == 3) {
        auto send = spec, receive = spec;
        send.op = Op::kSend, send.peer = (r + action.shift) % world;
        receive.op = Op::kRecv, receive.peer = training_.any_source ? -1 : (r + world - action.shift) % world;
        open.push_back(rank.issue(send, 20));
        open.push_back(rank.issue(receive));
      } else if (action.what == 4 && training_.threads && r % 2 == 1) {
        second_thread(rank, action, computed);
      } else if (action.what == 4) {
        rank.blocking({.op = Op::kAllReduce, .service = action.service, .bytes = action.bytes});
      } else {
        spec.op = Op::kAllToAll;
        open.push_back(rank.issue(spec));
      }
      if (!action.waits || open.empty()) continue;
      rank.wait(open);
      open.clear();
    }
    if (!open.empty()) rank.wait(open);
  }

  // It is handed over to, and hands back.
  void second_thread(RankProgram& rank, const Action& action, std::uint32_t computed) const {
    rank.lane("second");
    const auto first = rank.compute(300);
    const auto last = rank.blocking({.op = Op::kAllReduce, .service = action.service, .bytes = action.bytes});
    rank.lane("main");
    const auto next = rank.compute(1);
    rank.record.edges.push_back({computed, first});
    rank.record.edges.push_back({last, next});
  }

  const Training training_;
  std::vector<std::vector<Action>> scripts_;
};

}  // namespace prism::test
