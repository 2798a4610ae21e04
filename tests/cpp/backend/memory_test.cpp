// The run's shared memory and who has which piece of it.
#include "backend/protocol/window_allocator.hpp"
#include "catch2.hpp"

using namespace prism;

namespace {

bool overlap(Region a, Region b) { return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes; }

}  // namespace

TEST_CASE("giving back an empty tensor's memory gives back nobody else's") {
  const auto memory = SharedMemory::create(1, 64u << 20);
  REQUIRE(memory);
  WindowAllocator window(**memory, 0);
  const Region first = window.allocate(64).value(), empty = window.allocate(0).value();
  REQUIRE(empty.bytes == 0);
  REQUIRE((*memory)->contains(empty, 0));
  window.free(empty.offset);
  REQUIRE_FALSE(overlap(first, window.allocate(64).value()));
}

TEST_CASE("what is given back is handed out again, and counted") {
  const auto memory = SharedMemory::create(1, 64u << 20);
  REQUIRE(memory);
  const auto& staged = (*memory)->control().staged_bytes;
  {
    WindowAllocator window(**memory, 0);
    const Region small = window.allocate(100).value(), large = window.allocate(1u << 20).value();
    REQUIRE(staged == 128 + (1u << 20));
    REQUIRE_FALSE(overlap(small, large));
    REQUIRE(window.block_of({small.offset + 60, 40}) == static_cast<std::int64_t>(small.offset));
    REQUIRE(window.block_of({small.offset + 100, 40}) == -1);  // beyond its 128 bytes
    window.free(large.offset);
    REQUIRE(staged == 128);
    REQUIRE(window.allocate(1u << 20).value().offset == large.offset);
  }
  REQUIRE(staged == 0);
}
