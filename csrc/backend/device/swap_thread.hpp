// Swaps and measurements of one device, one after the other on a thread of their own: each takes up to seconds. Owned
// by the coordinator's loop, which calls run() and stop().
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "backend/device/device_swap.hpp"
#include "core/deadline.hpp"

namespace prism {

class SwapThread {
 public:
  enum class Action : std::uint8_t { kMeasure, kSwapOut, kSwapIn };
  struct Outcome {
    Result<void> status;
    std::optional<DeviceMemory> before, after;
    std::int64_t duration_ns = 0;  // of the swap alone
  };
  using Done = std::function<void(const Outcome&)>;

  SwapThread(std::shared_ptr<DeviceSwap> swap, int device);
  ~SwapThread();
  // `done` runs on the thread; it does no more than post.
  void run(Action action, int pid, Done done);
  // Lets the present call end, until the deadline; nothing that is queued begins, and no `done` runs after this. A call
  // that hangs in the driver is left behind.
  void stop(Deadline deadline);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace prism
