// Hands out pieces of one owner's windows of the shared memory. Small blocks come from the first quarter of the window
// in memory, whose pages stay once touched; large ones take whole pages and give them back to the system when freed.
// What the run's memory budget does not hold comes from the window on disk. Owned by one thread, or by a caller who
// locks.
#pragma once
#include <map>
#include <set>

#include "backend/protocol/shared_memory.hpp"

namespace prism {

// Free space by address and by size; best fit, neighbours merged.
class FreeSpace {
 public:
  void insert(std::uint64_t offset, std::uint64_t bytes);
  // Offset of `bytes` taken from the smallest hole that holds them, or -1.
  std::int64_t take(std::uint64_t bytes);

 private:
  std::map<std::uint64_t, std::uint64_t> by_offset_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  // (bytes, offset)
};

class WindowAllocator {
 public:
  WindowAllocator(SharedMemory& memory, int owner);
  ~WindowAllocator();  // returns what is still allocated to the budget
  Result<Region> allocate(std::uint64_t bytes);
  // `offset` came from allocate(); of zero bytes: does nothing.
  void free(std::uint64_t offset);
  // Offset of the allocated block that holds `region`, or -1.
  std::int64_t block_of(Region region) const;

 private:
  Result<std::uint64_t> small_block(std::uint64_t bytes);
  Result<std::uint64_t> pages(FreeSpace& space, std::uint64_t bytes);
  Result<Region> spill(std::uint64_t bytes);
  bool charge(std::uint64_t bytes);
  void uncharge(std::uint64_t offset, std::uint64_t bytes);
  Error out_of_window(std::uint64_t bytes, std::uint64_t window) const;
  Error out_of_budget(std::uint64_t bytes) const;

  SharedMemory& memory_;
  const int owner_;
  FreeSpace small_, large_, disk_;
  std::uint64_t small_end_, large_begin_;          // small blocks have touched pages up to small_end_
  std::map<std::uint64_t, std::uint64_t> blocks_;  // allocated: offset -> bytes
};

}  // namespace prism
