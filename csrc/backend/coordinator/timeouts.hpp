// Time limits measured in the patience of the job: time passes only while no rank waits for a slot, so that waiting
// for one's turn on few slots never looks like a peer that does not come. Loop thread only.
#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>

namespace prism {

class Timeouts {
 public:
  explicit Timeouts(boost::asio::io_context& io) : timer_(io) {}
  // Runs `then` after `span_ns`, unless cancelled; the handle is never 0.
  std::uint64_t add(std::int64_t span_ns, std::function<void()> then);
  void cancel(std::uint64_t handle);  // 0 and what has run: nothing happens
  void let_time_pass(bool passes);
  void stop();

 private:
  std::int64_t elapsed() const;
  void arm();
  void fire();

  boost::asio::steady_timer timer_;
  using Key = std::pair<std::int64_t, std::uint64_t>;  // due, handle
  std::map<Key, std::function<void()>> entries_;
  std::unordered_map<std::uint64_t, std::int64_t> due_;
  std::uint64_t handles_ = 0;
  bool passes_ = false, stopped_ = false;
  std::int64_t passed_ns_ = 0, since_ns_ = 0, armed_ns_ = -1;  // armed: on CLOCK_MONOTONIC; never later than needed
};

}  // namespace prism
