#include "backend/client/heap.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#ifdef __GLIBC__
#include <malloc.h>
#include <unistd.h>
#endif

namespace prism {
namespace {

struct Block {
  Block* next;
};
Block* held = nullptr;  // what fills the gaps, so that leak checkers know it

}  // namespace

std::size_t fill_c_heap() {
  std::size_t filled = 0;
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  constexpr int kMostForeign = 16;  // from what threads, now gone, left in this one's cache
  // What lies below the unused end of the heap can only be a gap.
  const auto end = [] { return reinterpret_cast<std::uintptr_t>(sbrk(0)); };
  const auto top = end() - mallinfo2().keepcost;
  const auto fill = [&](std::size_t size) {
    for (int foreign = 0; auto* memory = std::malloc(size);) {
      const auto address = reinterpret_cast<std::uintptr_t>(memory);
      if (address >= top && (address < end() || ++foreign > kMostForeign)) return std::free(memory);
      held = new (memory) Block{held};
      filled += size;
    }
  };
  // From large to small, so that nothing remains of a large gap.
  for (std::size_t size = 128 << 10; size > 1032; size -= size / 16 & ~std::size_t{15}) fill(size);
  for (std::size_t size = 1032; size >= 24; size -= 16) fill(size);
#endif
  return filled;
}

std::size_t fill_pools(const std::function<void*(std::size_t)>& allocate, std::size_t pool_bytes,
                       std::size_t header_bytes, std::size_t largest) {
  constexpr std::size_t kMostBytes = 64 << 20;  // where the allocator is none of pools
  std::size_t filled = 0;
  for (std::size_t size = 16; size <= largest; size += 16) {
    const auto blocks = (pool_bytes - header_bytes) / size;
    std::uintptr_t last = 0;
    // A pool whose blocks come in order is a fresh one: no other has a gap.
    for (std::size_t in_order = 0; in_order < blocks && filled < kMostBytes; filled += size) {
      const auto address = reinterpret_cast<std::uintptr_t>(allocate(size));
      if (!address) return filled;
      in_order = address == last + size ? in_order + 1 : 1;
      last = address;
    }
  }
  return filled;
}

std::size_t use_huge_pages() {
  constexpr std::uintptr_t kHugePage = 2u << 20;
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers lack
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    char access[5] = "", name[16] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %*s %15s", &begin, &end, access, name) < 3) continue;
    const std::string_view kind(name);
    if (std::string_view(access) == "rw-p" && (kind.empty() || kind == "[heap]")) ranges.emplace_back(begin, end);
  }
  std::size_t placed = 0;
  for (const auto& [begin, end] : ranges)
    for (auto at = (begin + kHugePage - 1) / kHugePage * kHugePage; at + kHugePage <= end; at += kHugePage)
      if (madvise(reinterpret_cast<void*>(at), kHugePage, kCollapse) == 0) placed += kHugePage;
  return placed;
}

}  // namespace prism
