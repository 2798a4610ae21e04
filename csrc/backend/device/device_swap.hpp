// The seam between the coordinator and the driver that moves a process's device state to host memory and back, so that
// more logical ranks can share a device than its memory holds. Any thread; calls for one process never overlap.
#pragma once
#include <cstdint>
#include <optional>

#include "core/result.hpp"

namespace prism {

struct DeviceMemory {
  std::uint64_t total = 0, free = 0;  // bytes
};

class DeviceSwap {
 public:
  virtual ~DeviceSwap() = default;
  // Whether swapping can work on this machine; the error says in words what is missing.
  virtual Result<void> viable() = 0;
  // As the ranks number them (CUDA_VISIBLE_DEVICES).
  virtual int devices() = 0;
  // nullopt: nobody can tell here.
  virtual std::optional<DeviceMemory> memory(int device) = 0;
  // Waits for the device's queued work, copies its memory to the host and gives the device up. The process's threads go
  // on, but their calls to the driver block until swap_in(). kTimeout: the device did not become idle in time, and the
  // process is as before. After any other error the process may be in no good state.
  virtual Result<void> swap_out(int pid) = 0;
  // The reverse, on the same device. There must be room: a restore that runs out of memory cannot be repeated.
  virtual Result<void> swap_in(int pid) = 0;
};

}  // namespace prism
