#include "backend/device/cuda_driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

namespace prism::cuda {
namespace {

// Libraries stay open: the driver keeps threads of its own.
Result<void*> open_library(const char* name, const char* what) {
  if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  const char* why = dlerror();
  return Error{ErrorCode::kIo, fmt::format("no {} ({})", what, why != nullptr ? why : name)};
}

template <typename Function>
Result<void> find(void* library, const char* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
  if (function != nullptr) return {};
  return Error{ErrorCode::kIo, fmt::format("it has no {}", symbol)};
}

}  // namespace

Result<Driver> load_driver() {
  PRISM_ASSIGN_OR_RETURN(void* library, open_library("libcuda.so.1", "NVIDIA driver"));
  Driver driver;
  PRISM_RETURN_IF_ERROR(find(library, "cuInit", driver.init));
  PRISM_RETURN_IF_ERROR(find(library, "cuDriverGetVersion", driver.version));
  PRISM_RETURN_IF_ERROR(find(library, "cuGetErrorName", driver.error_name));
  PRISM_RETURN_IF_ERROR(find(library, "cuDeviceGetCount", driver.device_count));
  PRISM_RETURN_IF_ERROR(find(library, "cuDeviceGet", driver.device_get));
  PRISM_RETURN_IF_ERROR(find(library, "cuDeviceGetUuid_v2", driver.device_uuid));  // of a MIG instance, where it is one
  const auto checkpointing = [&]() -> Result<void> {
    PRISM_RETURN_IF_ERROR(find(library, "cuCheckpointProcessGetState", driver.process_state));
    PRISM_RETURN_IF_ERROR(find(library, "cuCheckpointProcessLock", driver.process_lock));
    PRISM_RETURN_IF_ERROR(find(library, "cuCheckpointProcessCheckpoint", driver.process_checkpoint));
    PRISM_RETURN_IF_ERROR(find(library, "cuCheckpointProcessRestore", driver.process_restore));
    return find(library, "cuCheckpointProcessUnlock", driver.process_unlock);
  };
  if (auto found = checkpointing(); !found) {
    int version = 0;
    driver.version(&version);
    return Error{found.error().code, fmt::format("the NVIDIA driver is too old, {} and is of CUDA {}.{}; accepted: 570 "
                                                 "(CUDA 12.8) or newer",
                                                 found.error().message, version / 1000, version % 1000 / 10)};
  }
  return driver;
}

Result<Nvml> load_nvml() {
  PRISM_ASSIGN_OR_RETURN(void* library, open_library("libnvidia-ml.so.1", "NVML"));
  Nvml nvml;
  PRISM_RETURN_IF_ERROR(find(library, "nvmlInit_v2", nvml.init));
  PRISM_RETURN_IF_ERROR(find(library, "nvmlDeviceGetHandleByUUID", nvml.handle_by_uuid));
  PRISM_RETURN_IF_ERROR(find(library, "nvmlDeviceGetMemoryInfo", nvml.memory));
  return nvml;
}

std::string uuid_text(const Uuid& uuid, const char* prefix) {
  std::string text = prefix;
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid.bytes[i]);
  }
  return text;
}

}  // namespace prism::cuda
