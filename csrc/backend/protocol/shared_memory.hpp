// The run's shared memory: one anonymous, sparse file (memfd) that the coordinator makes and every rank maps whole.
// Window r belongs to rank r, the last one to the coordinator. A rank's first page is for its RankClock, the
// coordinator's for the ControlBlock. No name, so nothing is
// left behind however the processes end; not /dev/shm, so a full one does not matter; sealed against shrinking, so that
// no mapped page can vanish. Behind it in the address space lies a second file of such windows, on a disk (without a
// name as well): there go tensors beyond the memory budget. Pages of both are reserved (fallocate) before anything
// writes them: running out is an error here, never a SIGBUS there.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/protocol/operation.hpp"
#include "backend/protocol/rank_clock.hpp"
#include "core/result.hpp"

namespace prism {

// Written by all processes, hence atomic; zero is its initial state.
struct ControlBlock {
  std::atomic<std::uint64_t> staged_bytes, staged_bytes_peak, budget_bytes;
  std::atomic<std::uint64_t> spilled_bytes, spilled_bytes_peak;
  std::atomic<std::uint32_t> ranks_waiting;  // for a slot, right now
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class SharedMemory {
 public:
  // `address_space_bytes` is divided among `ranks` + 1 windows; halved until the system maps it. `spill_directory`: ""
  // for none. One that is itself in memory (tmpfs), or where no space can be reserved, is an error if `must_spill` and
  // else counts as none: a job that may never spill must not fail for want of a disk.
  static Result<std::unique_ptr<SharedMemory>> create(int ranks, std::uint64_t address_space_bytes,
                                                      const std::string& spill_directory = "", bool must_spill = false);
  // Takes over the descriptors; `spill_fd` is -1 where there is no spilling.
  static Result<std::unique_ptr<SharedMemory>> attach(int fd, int spill_fd, int ranks, std::uint64_t window_bytes,
                                                      std::uint64_t spill_window_bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int fd() const { return memory_.fd; }
  int spill_fd() const { return disk_.fd; }
  std::uint64_t window_bytes() const { return memory_.window; }
  std::uint64_t spill_window_bytes() const { return disk_.window; }  // 0: no spilling
  std::uint64_t window_begin(int owner) const { return memory_.begin(owner); }
  std::uint64_t spill_window_begin(int owner) const { return disk_.begin(owner); }
  std::byte* at(std::uint64_t offset) const { return base_ + offset; }
  ControlBlock& control() const { return *reinterpret_cast<ControlBlock*>(at(window_begin(ranks_))); }
  // Where the rank is a real one of an emulation; its page is reserved by whoever makes the memory.
  RankClock& clock(int rank) const { return *reinterpret_cast<RankClock*>(at(window_begin(rank))); }
  int coordinator() const { return ranks_; }  // the owner of the last window
  bool is_spilled(std::uint64_t offset) const { return offset >= disk_.first; }
  // Whether a region named by another process lies in a window of `owner`; of anyone when owner is -1.
  bool contains(Region region, int owner = -1) const;
  // Makes sure that the pages exist, and gives them back to the system. The region lies in one window.
  Result<void> reserve(Region region);
  void release(Region region);

 private:
  struct File {
    int fd = -1;
    std::uint64_t first = 0, window = 0;  // offset of the first window, bytes of each
    std::uint64_t begin(int owner) const { return first + window * static_cast<std::uint64_t>(owner); }
  };
  SharedMemory(int ranks, File memory, File disk) : ranks_(ranks), memory_(memory), disk_(disk) {}
  std::uint64_t total_bytes() const { return disk_.begin(ranks_ + 1); }
  bool map();
  Result<void> open_disk(const std::string& directory, std::uint64_t window);
  const File& file_of(std::uint64_t offset) const { return is_spilled(offset) ? disk_ : memory_; }

  int ranks_;
  File memory_, disk_;
  std::byte* base_ = nullptr;
};

}  // namespace prism
