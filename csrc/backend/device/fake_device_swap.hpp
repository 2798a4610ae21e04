// DeviceSwap without a device, to a script. Who holds how much stands in memory (hold()) or in a folder, one file per
// process with the bytes it holds; calls can be made to last, to fail and to hang.
#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backend/device/device_swap.hpp"

namespace prism {

class FakeDeviceSwap : public DeviceSwap {
 public:
  struct Event {
    std::string call;   // swap_out, swap_in
    int nth = 0;        // from 1, per call
    std::string error;  // empty: it hangs
    bool busy = false;  // the error is a timeout
  };
  struct Options {
    std::string not_viable;  // the reason, where it is not
    int devices = 1;
    std::uint64_t capacity_bytes = 0;  // of each device; 0: unknown
    double swap_s = 0;                 // that each swap takes
    std::string folder;                // PID files: "DEVICE BYTES"
    std::string log;                   // file: a line per swap, {"call", "pid", "begin_ns", "end_ns", "error"}
    std::vector<Event> events;
  };
  explicit FakeDeviceSwap(Options options) : options_(std::move(options)) {}
  // From {"devices", "capacity_bytes", "swap_s", "folder", "log", "not_viable", "events": [{"call", "nth", "error"}]}.
  static Result<std::shared_ptr<FakeDeviceSwap>> from_file(const std::string& path);

  void hold(int pid, std::uint64_t bytes, int device = 0);
  bool is_out(int pid);
  // Ends what hangs.
  void release();

  Result<void> viable() override;
  int devices() override { return options_.devices; }
  std::optional<DeviceMemory> memory(int device) override;
  Result<void> swap_out(int pid) override { return swap(pid, "swap_out", false); }
  Result<void> swap_in(int pid) override { return swap(pid, "swap_in", true); }

 private:
  Result<void> swap(int pid, const char* call, bool in);
  Result<void> happens(std::unique_lock<std::mutex>& lock, int pid, const std::string& call, bool in);
  void read_folder();
  std::uint64_t used(int device) const;

  const Options options_;
  std::mutex mutex_;
  std::condition_variable released_cv_;
  bool released_ = false;
  struct Held {
    int device = 0;
    std::uint64_t bytes = 0;
  };
  std::map<int, Held> held_;  // by process
  std::set<int> out_;
  std::map<std::string, int> calls_;
};

}  // namespace prism
