#include "backend/device/cuda_device_swap.hpp"

#include <fmt/format.h>

#include <fstream>
#include <string>
#include <vector>

#include "backend/device/cuda_driver.hpp"

namespace prism {
namespace {

// A kernel may run this long before its rank counts as busy and another is chosen.
constexpr unsigned kLockTimeoutMs = 10'000;

// The driver reaches into the other process as a debugger does. Ranks allow that (PR_SET_PTRACER), which is enough
// where Yama's ptrace_scope is 0 or 1.
Result<void> check_ptrace() {
#ifndef __x86_64__
  return Error{ErrorCode::kIo, "the driver checkpoints processes on x86-64 only"};
#endif
  int scope = 0;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  if (scope < 2) return {};
  constexpr std::uint64_t kSysPtrace = 1u << 19;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (std::uint64_t effective = 0; word == "CapEff:" && status >> std::hex >> effective)
      if (scope == 2 && (effective & kSysPtrace) != 0) return {};
  return Error{ErrorCode::kIo, fmt::format("kernel.yama.ptrace_scope is {}, so that a process may not be reached from "
                                           "another; accepted: 0, 1, or 2 with CAP_SYS_PTRACE",
                                           scope)};
}

class CudaDeviceSwap : public DeviceSwap {
 public:
  Result<void> viable() override {
    if (!checked_) {
      checked_ = true;
      viable_ = start();
    }
    return viable_;
  }

  int devices() override { return viable() ? static_cast<int>(handles_.size()) : 0; }

  std::optional<DeviceMemory> memory(int device) override {
    if (device < 0 || static_cast<std::size_t>(device) >= handles_.size()) return std::nullopt;
    void* handle = handles_[static_cast<std::size_t>(device)];
    cuda::NvmlMemory memory;
    if (handle == nullptr || nvml_.memory(handle, &memory) != cuda::kSuccess) return std::nullopt;
    return DeviceMemory{memory.total, memory.free};
  }

  Result<void> swap_out(int pid) override {
    PRISM_RETURN_IF_ERROR(expect_state(pid, cuda::kRunning, "swapping out"));
    cuda::LockArgs lock;
    lock.timeout_ms = kLockTimeoutMs;
    const int locked = driver_.process_lock(pid, &lock);
    if (locked == cuda::kNotReady)
      return Error{ErrorCode::kTimeout, fmt::format("process {} has work on its device that did not end within {} s",
                                                    pid, kLockTimeoutMs / 1000)};
    PRISM_RETURN_IF_ERROR(check(locked, "cuCheckpointProcessLock", pid));
    auto done = check(driver_.process_checkpoint(pid, nullptr), "cuCheckpointProcessCheckpoint", pid);
    if (!done) driver_.process_unlock(pid, nullptr);  // so that it can at least say where it was
    return done;
  }

  Result<void> swap_in(int pid) override {
    PRISM_RETURN_IF_ERROR(expect_state(pid, cuda::kCheckpointed, "swapping in"));
    PRISM_RETURN_IF_ERROR(check(driver_.process_restore(pid, nullptr), "cuCheckpointProcessRestore", pid));
    return check(driver_.process_unlock(pid, nullptr), "cuCheckpointProcessUnlock", pid);
  }

 private:
  Result<void> start() {
    PRISM_ASSIGN_OR_RETURN(driver_, cuda::load_driver());
    // Restoring needs it in the process that asks for it (or persistence mode).
    PRISM_RETURN_IF_ERROR(check(driver_.init(0), "cuInit", 0));
    int count = 0;
    PRISM_RETURN_IF_ERROR(check(driver_.device_count(&count), "cuDeviceGetCount", 0));
    if (count < 1) return Error{ErrorCode::kIo, "no CUDA device is visible"};
    PRISM_RETURN_IF_ERROR(check_ptrace());
    handles_.assign(static_cast<std::size_t>(count), nullptr);
    auto nvml = cuda::load_nvml();
    if (!nvml || nvml->init() != cuda::kSuccess) return {};  // free memory stays unknown
    nvml_ = *nvml;
    for (int i = 0; i < count; ++i) {
      int device = 0;
      cuda::Uuid uuid;
      void*& handle = handles_[static_cast<std::size_t>(i)];
      if (driver_.device_get(&device, i) != cuda::kSuccess || driver_.device_uuid(&uuid, device) != cuda::kSuccess)
        continue;
      for (const char* prefix : {"GPU-", "MIG-"})
        if (handle == nullptr && nvml_.handle_by_uuid(cuda::uuid_text(uuid, prefix).c_str(), &handle) != cuda::kSuccess)
          handle = nullptr;
    }
    return {};
  }

  Result<void> check(int result, const char* call, int pid) {
    if (result == cuda::kSuccess) return {};
    const char* name = nullptr;
    driver_.error_name(result, &name);
    return Error{ErrorCode::kIo,
                 fmt::format("{}{}: {}", call, pid > 0 ? fmt::format(" of process {}", pid) : std::string(),
                             name != nullptr ? std::string(name) : fmt::format("error {}", result))};
  }

  Result<void> expect_state(int pid, int expected, const char* doing) {
    static constexpr const char* kNames[] = {"running", "locked", "checkpointed", "failed"};
    int state = -1;
    PRISM_RETURN_IF_ERROR(check(driver_.process_state(pid, &state), "cuCheckpointProcessGetState", pid));
    if (state == expected) return {};
    return Error{ErrorCode::kIo,
                 fmt::format("{}: the driver says that process {} is {}; accepted: {}", doing, pid,
                             state >= 0 && state < 4 ? kNames[state] : "in no state it knows", kNames[expected])};
  }

  bool checked_ = false;
  Result<void> viable_;
  cuda::Driver driver_;
  cuda::Nvml nvml_;
  std::vector<void*> handles_;  // NVML's, by the ranks' numbers; null: it does not know the device
};

}  // namespace

std::shared_ptr<DeviceSwap> make_cuda_device_swap() { return std::make_shared<CudaDeviceSwap>(); }

}  // namespace prism
