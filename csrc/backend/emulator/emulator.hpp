// Runs an Emulation beside its real ranks, in real time: says when each of their operations is due, at the moment when
// it is.
//
// One thread of its own, which owns the Emulation. It lets emulated time go on no further than the clocks of the real
// ranks have gone (RankClock), so that what it decides is never overtaken, and needs no synchronisation with them:
// ranks that all wait let it run ahead to what they wait for. Due times are exact on the emulated clocks however late
// the machine is; by how much releases were late in real time is counted (lag).
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <vector>

#include "backend/protocol/rank_clock.hpp"
#include "replay/emulation.hpp"

namespace prism {

class Emulator {
 public:
  // Both are called on the emulator's thread.
  struct Handlers {
    std::function<void(std::vector<Emulation::Released>)> release;  // these are due now
    std::function<void(Error)> fail;
  };
  // `clock_of` gives clocks that live as long as this does.
  Emulator(std::shared_ptr<Emulation> emulation, std::function<const RankClock&(int rank)> clock_of, Handlers handlers);
  ~Emulator();  // ends the thread

  Emulation& emulation() { return *emulation_; }  // find() and describe(): by one other thread
  // Emulated time is 0 from here on; all real ranks have joined.
  void start();
  // Every operation of a rank, in its order. `comm`: kNoCommunication for one that the trace does not know.
  static constexpr std::uint32_t kNoCommunication = 0xffffffffu;
  void issued(int rank, std::uint32_t comm, std::int64_t at_ns);
  void finished(int rank);
  void stop();
  // After stop(): a JSON object: releases, lag_s: {p50, p99, max}, late_issue_s, emulated_s, wall_s,
  // differences, groups: {total, instantiated, mixed}.
  std::string statistics_json() const;

 private:
  struct Message {
    int rank;
    bool finished;
    std::uint32_t comm;
    std::int64_t at_ns;
  };
  struct Rank {
    const RankClock* clock = nullptr;
    std::uint64_t handled = 0;   // issues
    std::uint64_t released = 0;  // operations
    std::int64_t bound_ns = 0;   // it issues nothing before this
    bool over = false;
  };
  struct Due {
    std::int64_t at_ns;
    Emulation::Released what;
    bool operator<(const Due& other) const {  // the earliest first
      return std::tie(at_ns, what.rank, what.comm) > std::tie(other.at_ns, other.what.rank, other.what.comm);
    }
  };
  void loop();
  Result<void> turn(std::vector<Message> inbox);
  void look(Rank& rank) const;
  void release_due();
  void sleep();

  const std::shared_ptr<Emulation> emulation_;
  const Handlers handlers_;
  std::map<int, Rank> ranks_;
  std::priority_queue<Due> due_;
  std::vector<std::int64_t> lag_ns_;
  std::int64_t start_ns_ = 0, end_ns_ = 0;
  bool idle_ = false;     // all real ranks wait or have ended, and nothing of theirs is on its way
  bool settled_ = false;  // then: some wait, and nothing is due either

  std::mutex mutex_;
  std::condition_variable woken_;
  std::vector<Message> inbox_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace prism
