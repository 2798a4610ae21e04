// Decides that a silent job is deadlocked. When no rank can run and nothing is in flight, every rank is asked whether
// its threads sleep for good (a thread may wait in something that cannot be hooked, or may be about to issue an
// operation); the answers must agree for a while, without use of the processor. Loop thread only.
#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <vector>

#include "backend/protocol/messages.hpp"

namespace prism {

class QuietWatch {
 public:
  struct Actions {
    std::function<int(std::uint64_t probe)> ask;  // sends Probe to all that live; returns to how many
    std::function<void()> deadlocked;
  };
  QuietWatch(boost::asio::io_context& io, int ranks, Actions actions);
  // At the end of each turn of the loop. `unhooked`: some rank sleeps outside of our calls.
  void look(bool quiet, bool unhooked);
  void reply(int rank, const wire::ProbeReply& reply);
  // Something happened: the silence begins anew.
  void disturb();
  void stop();
  // Whether a rank has not answered the present question.
  bool owes_answer(int rank) const;

 private:
  void ask();
  void round_complete();

  boost::asio::steady_timer timer_;
  Actions actions_;
  enum class State { kIdle, kPause, kAsked, kStopped } state_ = State::kIdle;
  bool unhooked_ = false;
  std::uint64_t probe_ = 0;
  int expected_ = 0, answers_ = 0;
  std::int64_t pause_ns_ = 0;
  std::int64_t quiet_since_ns_ = -1;  // first round of the present silence in which nobody was awake
  wire::Quietness least_ = wire::Quietness::kAsleep;
  bool computed_ = false;
  std::int64_t asked_ns_ = 0, asked_before_ns_ = -1;
  struct Answer {
    std::uint64_t probe = 0;
    std::int64_t cpu_ns = -1;
  };
  std::vector<Answer> last_;
};

}  // namespace prism
