// A libcuda.so.1 and libnvidia-ml.so.1 in one, of one device and one process (pid 77), that checks the order of calls
// and their arguments as the CUDA documentation has them.
#include <cstdint>
#include <cstring>

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kNotInitialized = 3, kIllegalState = 401, kNotReady = 600;
constexpr int kProcess = 77;
bool initialized = false;
int state = 0;  // running, locked, checkpointed, failed

int move(int pid, int from, int to) {
  if (!initialized) return kNotInitialized;
  if (pid != kProcess) return kInvalidValue;
  if (state != from) return kIllegalState;
  state = to;
  return kSuccess;
}

}  // namespace

extern "C" {
bool fake_driver_busy = false;
int fake_driver_state() { return state; }

int cuInit(unsigned flags) {
  initialized = flags == 0;
  return initialized ? kSuccess : kInvalidValue;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuGetErrorName(int error, const char** name) {
  *name = error == kIllegalState   ? "CUDA_ERROR_ILLEGAL_STATE"
          : error == kInvalidValue ? "CUDA_ERROR_INVALID_VALUE"
                                   : "?";
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return initialized ? kSuccess : kNotInitialized;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = 40 + ordinal;
  return kSuccess;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(i + device - 40);
  return kSuccess;
}
int cuCheckpointProcessGetState(int pid, int* out) {
  *out = state;
  return pid == kProcess ? kSuccess : kInvalidValue;
}
int cuCheckpointProcessLock(int pid, const void* args) {
  std::uint64_t words[8];
  std::memcpy(words, args, sizeof words);
  const auto timeout_ms = static_cast<std::uint32_t>(words[0]);
  if (timeout_ms == 0 || words[0] >> 32 != 0) return kInvalidValue;  // would wait for ever
  for (int i = 1; i < 8; ++i)
    if (words[i] != 0) return kInvalidValue;
  return fake_driver_busy ? kNotReady : move(pid, 0, 1);
}
int cuCheckpointProcessCheckpoint(int pid, const void* args) { return args ? kInvalidValue : move(pid, 1, 2); }
int cuCheckpointProcessRestore(int pid, const void* args) { return args ? kInvalidValue : move(pid, 2, 1); }
int cuCheckpointProcessUnlock(int pid, const void* args) { return args ? kInvalidValue : move(pid, 1, 0); }

int nvmlInit_v2() { return kSuccess; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (std::strcmp(uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f") != 0) return kInvalidValue;
  *device = &state;
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  if (device != &state) return kInvalidValue;
  memory[0] = 1000, memory[2] = state == 2 ? 100 : 700, memory[1] = memory[0] - memory[2];
  return kSuccess;
}
}
