// The run's shared memory: one anonymous, sparse file (memfd) that the coordinator makes and every rank maps whole.
// Window r belongs to rank r, the last one to the coordinator, and begins with the ControlBlock. No name, so nothing is
// left behind however the processes end; not /dev/shm, so a full one does not matter; sealed against shrinking, so that
// no mapped page can vanish. Pages are reserved (fallocate) before anything writes them: running out is an error here,
// never a SIGBUS there.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/protocol/operation.hpp"
#include "core/result.hpp"

namespace prism {

// Written by all processes, hence atomic; zero is its initial state.
struct ControlBlock {
  std::atomic<std::uint64_t> staged_bytes, staged_bytes_peak, budget_bytes;
  std::atomic<std::uint32_t> ranks_waiting;  // for a slot, right now
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class SharedMemory {
 public:
  // `address_space_bytes` is divided among `ranks` + 1 windows; halved until the system maps it.
  static Result<std::unique_ptr<SharedMemory>> create(int ranks, std::uint64_t address_space_bytes);
  // Takes over `fd`.
  static Result<std::unique_ptr<SharedMemory>> attach(int fd, int ranks, std::uint64_t window_bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int fd() const { return fd_; }
  std::uint64_t window_bytes() const { return window_; }
  std::uint64_t window_begin(int owner) const { return window_ * static_cast<std::uint64_t>(owner); }
  std::byte* at(std::uint64_t offset) const { return base_ + offset; }
  ControlBlock& control() const { return *reinterpret_cast<ControlBlock*>(at(window_begin(ranks_))); }
  int coordinator() const { return ranks_; }  // the owner of the last window
  // Whether a region named by another process lies in the window of `owner`; of anyone when owner is -1.
  bool contains(Region region, int owner = -1) const;

 private:
  SharedMemory(int fd, int ranks, std::uint64_t window, std::byte* base)
      : fd_(fd), ranks_(ranks), window_(window), base_(base) {}
  static std::byte* map(int fd, std::uint64_t bytes);
  int fd_, ranks_;
  std::uint64_t window_;
  std::byte* base_;
};

}  // namespace prism
