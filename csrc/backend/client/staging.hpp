// This rank's window of the shared memory: blocks handed out by stage(), in use until the operation that took them has
// been read by all. Any thread.
#pragma once
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "backend/protocol/window_allocator.hpp"

namespace prism {

class Staging {
 public:
  Staging(SharedMemory& memory, int rank) : rank_(rank), allocator_(memory, rank) {}
  Result<Region> stage(std::uint64_t bytes);
  void discard(Region region);
  // `work` takes over the blocks that hold `inputs`; an input may be any part of a block, blocks may be shared.
  Result<void> take(WorkId work, std::span<const Region> inputs);
  void freed(std::span<const WorkId> works);
  std::mutex& mutex() { return mutex_; }  // for fork()

 private:
  std::mutex mutex_;
  const int rank_;
  WindowAllocator allocator_;
  std::unordered_map<std::uint64_t, std::uint32_t> uses_;          // by block: inputs that lie in it
  std::unordered_map<WorkId, std::vector<std::uint64_t>> blocks_;  // by operation, one per input
};

}  // namespace prism
