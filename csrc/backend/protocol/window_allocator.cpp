#include "backend/protocol/window_allocator.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace prism {
namespace {

constexpr std::uint64_t kAlignment = 64;  // a cache line, and more than any vector unit asks for
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kLarge = 256u << 10;
constexpr std::uint64_t kSmallGrowth = 512u << 10;  // pages are reserved in such steps

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

void raise_peak(std::atomic<std::uint64_t>& peak, std::uint64_t value) {
  std::uint64_t before = peak.load(std::memory_order_relaxed);
  while (value > before && !peak.compare_exchange_weak(before, value)) {
  }
}

}  // namespace

void FreeSpace::insert(std::uint64_t offset, std::uint64_t bytes) {
  auto next = by_offset_.lower_bound(offset);
  if (next != by_offset_.end() && next->first == offset + bytes) {
    bytes += next->second;
    by_size_.erase({next->second, next->first});
    next = by_offset_.erase(next);
  }
  if (next != by_offset_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      offset = previous->first;
      bytes += previous->second;
      by_size_.erase({previous->second, previous->first});
      by_offset_.erase(previous);
    }
  }
  by_offset_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
}

std::int64_t FreeSpace::take(std::uint64_t bytes) {
  const auto hole = by_size_.lower_bound({bytes, 0});
  if (hole == by_size_.end()) return -1;
  const auto [size, offset] = *hole;
  by_size_.erase(hole);
  by_offset_.erase(offset);
  if (size > bytes) insert(offset + bytes, size - bytes);
  return static_cast<std::int64_t>(offset);
}

WindowAllocator::WindowAllocator(SharedMemory& memory, int owner) : memory_(memory), owner_(owner) {
  const std::uint64_t begin = memory.window_begin(owner);
  small_end_ = begin + kPage;  // the first one is the clock's, or the control block's
  large_begin_ = begin + memory.window_bytes() / 4;
  large_.insert(large_begin_, begin + memory.window_bytes() - large_begin_);
  if (memory.spill_window_bytes() != 0) disk_.insert(memory.spill_window_begin(owner), memory.spill_window_bytes());
}

WindowAllocator::~WindowAllocator() {
  for (const auto& [offset, bytes] : blocks_) uncharge(offset, bytes);
}

Result<Region> WindowAllocator::allocate(std::uint64_t bytes) {
  if (bytes == 0) return Region{memory_.window_begin(owner_ + 1), 0};  // the window's end: no block begins there
  const std::uint64_t most = std::max(memory_.window_bytes(), memory_.spill_window_bytes());
  if (bytes > most) return out_of_window(bytes, most);
  const std::uint64_t rounded = round_up(bytes, bytes < kLarge ? kAlignment : kPage);
  if (!charge(rounded)) return spill(bytes);
  auto offset = bytes < kLarge ? small_block(rounded) : pages(large_, rounded);
  if (!offset) {  // the window is full, or the system has no more memory
    memory_.control().staged_bytes.fetch_sub(rounded, std::memory_order_relaxed);
    if (memory_.spill_window_bytes() != 0) return spill(bytes);
    return offset.error();
  }
  blocks_.emplace(*offset, rounded);
  return Region{*offset, bytes};
}

Result<std::uint64_t> WindowAllocator::small_block(std::uint64_t bytes) {
  std::int64_t offset = small_.take(bytes);
  while (offset < 0) {
    const std::uint64_t step = std::min(large_begin_ - small_end_, kSmallGrowth);
    if (step == 0) return pages(large_, round_up(bytes, kPage));
    PRISM_RETURN_IF_ERROR(memory_.reserve({small_end_, step}));
    small_.insert(small_end_, step);
    small_end_ += step;
    offset = small_.take(bytes);
  }
  return static_cast<std::uint64_t>(offset);
}

Result<std::uint64_t> WindowAllocator::pages(FreeSpace& space, std::uint64_t bytes) {
  const std::int64_t offset = space.take(bytes);
  if (offset < 0) return out_of_window(bytes, &space == &disk_ ? memory_.spill_window_bytes() : memory_.window_bytes());
  const Region region{static_cast<std::uint64_t>(offset), bytes};
  if (auto reserved = memory_.reserve(region); !reserved) {
    space.insert(region.offset, bytes);
    return reserved.error();
  }
  return region.offset;
}

Result<Region> WindowAllocator::spill(std::uint64_t bytes) {
  if (memory_.spill_window_bytes() == 0) return out_of_budget(bytes);
  const std::uint64_t rounded = round_up(bytes, kPage);
  auto& control = memory_.control();
  // Counted before it is reserved: another rank that finds the disk full meanwhile says what fills it.
  const std::uint64_t before = control.spilled_bytes.fetch_add(rounded, std::memory_order_relaxed);
  auto offset = pages(disk_, rounded);
  if (!offset) {
    const std::uint64_t others = control.spilled_bytes.fetch_sub(rounded, std::memory_order_relaxed) - rounded;
    return Error{
        offset.error().code,
        fmt::format("{}; {} bytes are in memory (--memory-budget {}) and {} on disk (--spill-dir), {} more are "
                    "needed",
                    offset.error().message, control.staged_bytes.load(), control.budget_bytes.load(), others, rounded)};
  }
  raise_peak(control.spilled_bytes_peak, before + rounded);
  blocks_.emplace(*offset, rounded);
  return Region{*offset, bytes};
}

void WindowAllocator::free(std::uint64_t offset) {
  const auto block = blocks_.find(offset);
  if (block == blocks_.end()) return;
  const std::uint64_t bytes = block->second;
  blocks_.erase(block);
  uncharge(offset, bytes);
  const bool spilled = memory_.is_spilled(offset);
  if (!spilled && offset < large_begin_) return small_.insert(offset, bytes);
  // A small block that found its quarter full holds whole pages all the same.
  const Region region{offset, round_up(bytes, kPage)};
  memory_.release(region);
  (spilled ? disk_ : large_).insert(region.offset, region.bytes);
}

std::int64_t WindowAllocator::block_of(Region region) const {
  auto block = blocks_.upper_bound(region.offset);
  if (block == blocks_.begin()) return -1;
  --block;
  const std::uint64_t inside = region.offset - block->first;
  if (inside > block->second || region.bytes > block->second - inside) return -1;
  return static_cast<std::int64_t>(block->first);
}

bool WindowAllocator::charge(std::uint64_t bytes) {
  ControlBlock& control = memory_.control();
  const std::uint64_t budget = control.budget_bytes.load(std::memory_order_relaxed);
  const std::uint64_t before = control.staged_bytes.fetch_add(bytes, std::memory_order_relaxed);
  if (budget != 0 && before + bytes > budget) {
    control.staged_bytes.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  raise_peak(control.staged_bytes_peak, before + bytes);
  return true;
}

void WindowAllocator::uncharge(std::uint64_t offset, std::uint64_t bytes) {
  auto& control = memory_.control();
  auto& counter = memory_.is_spilled(offset) ? control.spilled_bytes : control.staged_bytes;
  counter.fetch_sub(bytes, std::memory_order_relaxed);
}

Error WindowAllocator::out_of_window(std::uint64_t bytes, std::uint64_t window) const {
  return {ErrorCode::kIo, fmt::format("a tensor of {} bytes does not fit the {} bytes of shared memory that one rank "
                                      "may have; what is staged and not yet read by all is still in it",
                                      bytes, window)};
}

Error WindowAllocator::out_of_budget(std::uint64_t bytes) const {
  const std::uint64_t budget = memory_.control().budget_bytes, used = memory_.control().staged_bytes;
  return {ErrorCode::kIo,
          fmt::format("a tensor of {} bytes does not fit the memory for staged tensors: {} of {} bytes "
                      "are available; raise --memory-budget, or name a folder on a disk with --spill-dir",
                      bytes, budget > used ? budget - used : 0, budget)};
}

}  // namespace prism
