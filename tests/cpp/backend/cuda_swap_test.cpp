// The driver's calls in their documented order, against a library that stands for the driver.
#include <dlfcn.h>

#include "backend/device/cuda_device_swap.hpp"
#include "catch2.hpp"

using namespace prism;

TEST_CASE("swapping locks with a time limit, checkpoints, restores and unlocks, on a driver found at run time") {
  // Loaded before, it is what its name finds.
  void* driver = dlopen(PRISM_FAKE_DRIVER "/libcuda.so.1", RTLD_NOW);
  REQUIRE(driver != nullptr);
  REQUIRE(dlopen(PRISM_FAKE_DRIVER "/libnvidia-ml.so.1", RTLD_NOW) != nullptr);
  const auto state = reinterpret_cast<int (*)()>(dlsym(driver, "fake_driver_state"));
  auto* busy = static_cast<bool*>(dlsym(driver, "fake_driver_busy"));
  const auto swap = make_cuda_device_swap();
  const auto viable = swap->viable();
  if (!viable && viable.error().message.find("ptrace") != std::string::npos) return;  // a machine that forbids it
  INFO((viable ? "" : viable.error().message));
  REQUIRE(viable);
  REQUIRE(swap->devices() == 1);
  REQUIRE_FALSE(swap->memory(1));
  REQUIRE(swap->memory(0)->total == 1000);

  constexpr int kProcess = 77, kRunning = 0, kCheckpointed = 2;
  REQUIRE(swap->swap_out(kProcess));
  REQUIRE(state() == kCheckpointed);
  const auto twice = swap->swap_out(kProcess);
  REQUIRE(twice.error().code == ErrorCode::kIo);
  REQUIRE_THAT(twice.error().message, ContainsSubstring("process 77 is checkpointed; accepted: running"));
  REQUIRE(swap->swap_in(kProcess));
  REQUIRE(state() == kRunning);

  *busy = true;
  REQUIRE(swap->swap_out(kProcess).error().code == ErrorCode::kTimeout);
  REQUIRE(state() == kRunning);
  *busy = false;
  REQUIRE_THAT(swap->swap_out(78).error().message, ContainsSubstring("of process 78: CUDA_ERROR_INVALID_VALUE"));
}
