// The ranks of one device that have a slot and whose device state is being brought, one at a time. Loop thread only.
#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "backend/device/swap_thread.hpp"

namespace prism {

struct Admissions {
  Admissions(boost::asio::io_context& io, std::shared_ptr<DeviceSwap> swap, int device)
      : thread(std::move(swap), device), retry(io) {}
  std::deque<int> queue;            // the first is being served
  bool busy = false;                // a call of the thread is under way
  std::int64_t waits_since_ns = 0;  // the first, for others to make room
  SwapThread thread;
  boost::asio::steady_timer retry;
};

}  // namespace prism
