// The part of the CUDA driver and of NVML that swapping needs, found at run time: nothing is linked, and no header of
// CUDA is needed to build. Signatures and structures are those of cuda.h 12.8 to 13 and of nvml.h.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "core/result.hpp"

namespace prism::cuda {

constexpr int kSuccess = 0, kNotReady = 600;
enum ProcessState : int { kRunning, kLocked, kCheckpointed, kFailed };

struct LockArgs {
  unsigned timeout_ms = 0;  // 0: none
  unsigned reserved0 = 0;
  std::uint64_t reserved1[7] = {};
};
static_assert(sizeof(LockArgs) == 64);

struct NvmlMemory {
  unsigned long long total = 0, free = 0, used = 0;
};

struct Uuid {
  std::array<unsigned char, 16> bytes{};
};

struct Driver {
  int (*init)(unsigned flags) = nullptr;
  int (*version)(int* version) = nullptr;
  int (*error_name)(int error, const char** name) = nullptr;
  int (*device_count)(int* count) = nullptr;
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*device_uuid)(Uuid* uuid, int device) = nullptr;
  int (*process_state)(int pid, int* state) = nullptr;
  int (*process_lock)(int pid, LockArgs* args) = nullptr;
  // Their optional arguments are always left out: the same devices come back.
  int (*process_checkpoint)(int pid, void* args) = nullptr;
  int (*process_restore)(int pid, void* args) = nullptr;
  int (*process_unlock)(int pid, void* args) = nullptr;
};
// Opens libcuda.so.1; an error says what it lacks. Does not initialise the driver.
Result<Driver> load_driver();

// Free memory without a context of our own on the device, which would take hundreds of megabytes of it.
struct Nvml {
  int (*init)() = nullptr;
  int (*handle_by_uuid)(const char* uuid, void** device) = nullptr;
  int (*memory)(void* device, NvmlMemory* memory) = nullptr;
};
Result<Nvml> load_nvml();  // libnvidia-ml.so.1

// "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", or with another prefix (MIG).
std::string uuid_text(const Uuid& uuid, const char* prefix);

}  // namespace prism::cuda
