#include "backend/client/staging.hpp"

#include <fmt/format.h>

namespace prism {

Result<Region> Staging::stage(std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  auto region = allocator_.allocate(bytes);
  if (!region) return Error{region.error().code, fmt::format("rank {}: {}", rank_, region.error().message)};
  return region;
}

void Staging::discard(Region region) {
  std::lock_guard lock(mutex_);
  if (region.bytes != 0 && uses_.count(region.offset) == 0) allocator_.free(region.offset);
}

Result<void> Staging::take(WorkId work, std::span<const Region> inputs) {
  std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> blocks;
  for (const Region input : inputs) {
    if (input.bytes == 0) continue;
    const std::int64_t block = allocator_.block_of(input);
    if (block < 0)
      return Error{ErrorCode::kInvalidInput,
                   fmt::format("an input of {} bytes at {} was not staged by this rank", input.bytes, input.offset)};
    blocks.push_back(static_cast<std::uint64_t>(block));
  }
  for (const std::uint64_t block : blocks) ++uses_[block];
  if (!blocks.empty()) blocks_.emplace(work, std::move(blocks));
  return {};
}

void Staging::freed(std::span<const WorkId> works) {
  std::lock_guard lock(mutex_);
  for (const WorkId work : works) {
    const auto taken = blocks_.find(work);
    if (taken == blocks_.end()) continue;
    for (const std::uint64_t block : taken->second) {
      const auto use = uses_.find(block);
      if (use == uses_.end() || --use->second != 0) continue;
      uses_.erase(use);
      allocator_.free(block);
    }
    blocks_.erase(taken);
  }
}

}  // namespace prism
