// Which ranks' state is on their device, and what has to happen before a rank may run: the policy of device swapping,
// without any I/O. Whoever owns it (the coordinator's loop) asks next() and reports what has been done, until the
// answer is kRun.
//
// Automatic: a rank that has lost its slot stays on the device until room is needed. A rank needs what it held last, or
// the most that any rank of the device held (ranks of a job are alike, and one that has not allocated yet will), and a
// sixteenth of the device for what it allocates beyond. Free memory is measured before each change of rank; what has
// gone since the last time is held by those that ran meanwhile.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/device/device_swap.hpp"

namespace prism {

enum class SwapMode : std::uint8_t { kNever, kAuto, kAlways };

class Residency {
 public:
  struct Step {
    enum Kind : std::uint8_t {
      kRun,      // the rank may have its slot
      kMeasure,  // the device's free memory
      kSwapOut,  // `rank`, which is another
      kSwapIn,   // `rank`
      kWait,     // for others that run, or that are ending, to make room
      kNoRoom    // and nobody who could make some
    } kind = kRun;
    int rank = -1;
  };
  Residency(SwapMode mode, std::vector<int> device_of_rank, int devices);

  int device_of(int rank) const { return at(rank).device; }
  // It has state on its device from now on.
  void uses_device(int rank);
  bool on_device(int rank) const { return at(rank).used && !at(rank).away; }
  bool away(int rank) const { return at(rank).away; }
  std::uint64_t bytes(int rank) const { return at(rank).bytes; }
  // Its slot: had, given back; its program's end (its memory goes a moment later).
  void runs(int rank);
  void rests(int rank);
  void ended(int rank);
  void gone(int rank) { at(rank).ended = false; }  // and so is its memory
  bool is_ending(int rank) const { return at(rank).ended; }

  // `victims`: ranks of the same device that may be swapped out, whoever is to go first in front.
  Step next(int rank, std::span<const int> victims) const;

  void measured(int device, std::optional<DeviceMemory> memory);
  void look_again(int index) { device(index).fresh = false; }
  void swapped_out(int rank, std::optional<DeviceMemory> before, std::optional<DeviceMemory> after);
  void swapped_in(int rank, std::optional<DeviceMemory> after);
  // Its device has work that does not end: let it stay this time.
  void is_busy(int rank) { at(rank).busy = true; }
  std::string describe_lack(int rank) const;

 private:
  struct Rank {
    int device = 0;
    bool used = false, away = false, running = false, ended = false, busy = false;
    bool ran = false;  // since the device was measured last
    std::uint64_t bytes = 0;
  };
  struct Device {
    std::optional<DeviceMemory> memory;  // when last looked at
    bool fresh = false;                  // looked at since a rank ran last
    int last = -1;                       // who ran last
    bool used = false;                   // by any rank
    std::uint64_t peak = 0;              // the most that a rank held
  };
  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  Device& device(int index) { return devices_[static_cast<std::size_t>(index)]; }
  const Device& device(int index) const { return devices_[static_cast<std::size_t>(index)]; }
  std::uint64_t needed(int rank) const;
  bool others_may_make_room(int rank) const;

  const SwapMode mode_;
  std::vector<Rank> ranks_;
  std::vector<Device> devices_;
};

}  // namespace prism
