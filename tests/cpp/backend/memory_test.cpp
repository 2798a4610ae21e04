// The run's shared memory and who has which piece of it.
#include "backend/protocol/window_allocator.hpp"

#include <unistd.h>

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

TEST_CASE("what the memory budget does not hold goes to disk, and is the owner's all the same") {
  const auto memory = SharedMemory::create(2, 64u << 20, ".");
  REQUIRE(memory);
  auto& control = (*memory)->control();
  control.budget_bytes = 3u << 20;
  WindowAllocator window(**memory, 1);
  const Region first = window.allocate(2u << 20).value(), second = window.allocate(2u << 20).value();
  REQUIRE_FALSE((*memory)->is_spilled(first.offset));
  REQUIRE((*memory)->is_spilled(second.offset));
  for (const Region region : {first, second}) {
    REQUIRE((*memory)->contains(region, 1));
    REQUIRE_FALSE((*memory)->contains(region, 0));
    REQUIRE((*memory)->contains(region));
    REQUIRE(window.block_of({region.offset + 100, 50}) == static_cast<std::int64_t>(region.offset));
  }
  *(*memory)->at(second.offset + second.bytes - 1) = std::byte{7};
  REQUIRE(control.staged_bytes == 2u << 20);
  REQUIRE(control.spilled_bytes == 2u << 20);
  window.free(first.offset);
  const Region third = window.allocate(1u << 20).value();
  REQUIRE_FALSE((*memory)->is_spilled(third.offset));
  REQUIRE(*(*memory)->at(second.offset + second.bytes - 1) == std::byte{7});
  window.free(second.offset);
  REQUIRE(control.spilled_bytes == 0);
  REQUIRE(control.spilled_bytes_peak == 2u << 20);
}

TEST_CASE("what a rank's window of memory does not hold goes to disk as well") {
  const auto memory = SharedMemory::create(1, 16u << 20, ".");  // windows of 8 MiB
  REQUIRE(memory);
  WindowAllocator window(**memory, 0);
  REQUIRE_FALSE((*memory)->is_spilled(window.allocate(5u << 20).value().offset));
  REQUIRE((*memory)->is_spilled(window.allocate(5u << 20).value().offset));
  REQUIRE((*memory)->control().staged_bytes == 5u << 20);
  const auto refused = window.allocate(9u << 20);
  REQUIRE_FALSE(refused);
  REQUIRE(refused.error().message.find("does not fit the 8388608 bytes") != std::string::npos);
}

TEST_CASE("a folder that does not serve is an error only where it was asked for") {
  REQUIRE((*SharedMemory::create(1, 16u << 20, "nonesuch"))->spill_window_bytes() == 0);
  const auto refused = SharedMemory::create(1, 16u << 20, "nonesuch", true);
  REQUIRE_FALSE(refused);
  REQUIRE(refused.error().message.find("staged in 'nonesuch': No such file") != std::string::npos);
}

TEST_CASE("another process sees what is spilled through the descriptors that it is given") {
  const auto mine = SharedMemory::create(1, 64u << 20, ".");
  REQUIRE(mine);
  (*mine)->control().budget_bytes = 1;
  WindowAllocator window(**mine, 0);
  const Region region = window.allocate(5000).value();
  *(*mine)->at(region.offset) = std::byte{9};
  const auto attach = [&](int spill_fd, std::uint64_t spill_window_bytes) {
    return SharedMemory::attach(dup((*mine)->fd()), spill_fd, 1, (*mine)->window_bytes(), spill_window_bytes);
  };
  const auto theirs = attach(dup((*mine)->spill_fd()), (*mine)->spill_window_bytes());
  REQUIRE(theirs);
  REQUIRE((*theirs)->contains(region, 0));
  REQUIRE(*(*theirs)->at(region.offset) == std::byte{9});
  REQUIRE_FALSE(attach(-1, (*mine)->spill_window_bytes()));
  REQUIRE_FALSE(attach(dup((*mine)->spill_fd()), (*mine)->spill_window_bytes() / 2));
  REQUIRE_FALSE(attach(dup((*mine)->spill_fd()), 0));
}
