#include "backend/client/heap.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "catch2.hpp"

using namespace prism;

namespace {

// Pools of 1 KiB, each of one size of block; a freed block is the next of its size to be handed out.
class Pools {
 public:
  static constexpr std::size_t kPool = 1024, kHeader = 48;

  void* allocate(std::size_t size) {
    auto& freed = freed_[size / 16];
    if (!freed.empty()) {
      const auto address = freed.back();
      freed.pop_back();
      return reinterpret_cast<void*>(address);
    }
    auto& [next, end] = open_[size / 16];
    if (next + size > end) {
      next = fresh_ + kHeader;
      end = fresh_ += kPool;
    }
    next += size;
    return reinterpret_cast<void*>(next - size);
  }
  void free(std::size_t size, void* block) { freed_[size / 16].push_back(reinterpret_cast<std::uintptr_t>(block)); }
  std::uintptr_t fresh() const { return fresh_; }

 private:
  struct Open {
    std::uintptr_t next = 0, end = 0;
  };
  std::vector<std::vector<std::uintptr_t>> freed_{9};
  std::vector<Open> open_{9};
  std::uintptr_t fresh_ = 1 << 20;
};

}  // namespace

TEST_CASE("after the gaps of pools are filled, every size of block comes from a fresh pool", "[heap]") {
  Pools pools;
  for (const std::size_t size : {16, 48, 128}) {
    std::vector<void*> blocks;
    for (int i = 0; i < 200; ++i) blocks.push_back(pools.allocate(size));
    for (std::size_t i = 0; i < blocks.size(); i += 3) pools.free(size, blocks[i]);
  }
  const auto before = pools.fresh();
  const auto filled =
      fill_pools([&](std::size_t size) { return pools.allocate(size); }, Pools::kPool, Pools::kHeader, 128);
  CHECK(filled >= 67 * (16 + 48 + 128));
  for (std::size_t size = 16; size <= 128; size += 16)
    CHECK(reinterpret_cast<std::uintptr_t>(pools.allocate(size)) >= before);
}

TEST_CASE("an allocator without pools does not take memory without end", "[heap]") {
  std::uintptr_t address = 0;
  const auto filled = fill_pools([&](std::size_t) { return reinterpret_cast<void*>(address += 4096); }, 1024, 48, 64);
  CHECK(filled == 64 << 20);
}

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("after the gaps of the C heap are filled, allocations lie above all earlier ones", "[heap]") {
  std::vector<void*> blocks;
  for (int i = 0; i < 5000; ++i) blocks.push_back(std::malloc(24 + 37 * (i % 100)));
  std::uintptr_t highest = 0;
  const auto end = reinterpret_cast<std::uintptr_t>(sbrk(0));  // beyond it: what threads of earlier cases left
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % 2)
      std::free(blocks[i]);
    else if (const auto address = reinterpret_cast<std::uintptr_t>(blocks[i]); address < end)
      highest = std::max(highest, address);
  }
  CHECK(fill_c_heap() >= 2500 * 24);
  std::vector<void*> after;
  for (std::size_t size = 24; size < 4000; size += 16) {
    after.push_back(std::malloc(size));
    CHECK(reinterpret_cast<std::uintptr_t>(after.back()) > highest);
  }
  for (auto* block : after) std::free(block);
  for (std::size_t i = 0; i < blocks.size(); i += 2) std::free(blocks[i]);
}
#endif

TEST_CASE("memory that is put into huge pages keeps what is in it", "[heap]") {
  constexpr std::size_t kBytes = 8u << 20;
  auto* memory =
      static_cast<unsigned char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(memory != MAP_FAILED);
  for (std::size_t i = 0; i < kBytes; i += 4096) std::memset(memory + i, static_cast<int>(i / 4096 % 251), 4096);
  const auto placed = use_huge_pages();
  CHECK((placed == 0 || placed >= 6u << 20));  // 0: the system has none
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kBytes; ++i) wrong += memory[i] != i / 4096 % 251;
  CHECK(wrong == 0);
  munmap(memory, kBytes);
}
