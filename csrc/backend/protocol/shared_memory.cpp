#include "backend/protocol/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace prism {
namespace {

constexpr std::uint64_t kWindowUnit = 2u << 20;  // a huge page, should the system use them
constexpr std::uint64_t kLargestWindow = 64ull << 30;

Error system_error(const char* what) {
  return {ErrorCode::kIo, fmt::format("shared memory: {}: {}", what, std::strerror(errno))};
}

}  // namespace

std::byte* SharedMemory::map(int fd, std::uint64_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) return nullptr;
  madvise(base, bytes, MADV_DONTDUMP);  // a core file of terabytes helps nobody
  return static_cast<std::byte*>(base);
}

Result<std::unique_ptr<SharedMemory>> SharedMemory::create(int ranks, std::uint64_t address_space_bytes) {
  const auto windows = static_cast<std::uint64_t>(ranks) + 1;
  for (std::uint64_t space = address_space_bytes;; space /= 2) {
    const std::uint64_t window = std::min(kLargestWindow, space / windows / kWindowUnit * kWindowUnit);
    if (window == 0) return system_error("no address space is left for the ranks' windows");
    const int fd = memfd_create("prism", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return system_error("memfd_create");
    std::byte* base = nullptr;
    if (ftruncate(fd, static_cast<off_t>(window * windows)) != 0 || (base = map(fd, window * windows)) == nullptr) {
      close(fd);
      continue;
    }
    std::unique_ptr<SharedMemory> memory(new SharedMemory(fd, ranks, window, base));
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return system_error("sealing");
    const auto control = static_cast<off_t>(memory->window_begin(ranks));
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, control, sizeof(ControlBlock)) != 0) return system_error("fallocate");
    return memory;
  }
}

Result<std::unique_ptr<SharedMemory>> SharedMemory::attach(int fd, int ranks, std::uint64_t window_bytes) {
  const std::uint64_t bytes = window_bytes * (static_cast<std::uint64_t>(ranks) + 1);
  struct stat status {};
  if (window_bytes == 0 || window_bytes > kLargestWindow || fstat(fd, &status) != 0 ||
      static_cast<std::uint64_t>(status.st_size) != bytes) {
    close(fd);
    return Error{ErrorCode::kInvalidInput, fmt::format("shared memory of {} bytes for {} windows of {} bytes",
                                                       status.st_size, ranks + 1, window_bytes)};
  }
  std::byte* base = map(fd, bytes);
  if (base == nullptr) {
    const Error error = system_error("mapping it");
    close(fd);
    return error;
  }
  return std::unique_ptr<SharedMemory>(new SharedMemory(fd, ranks, window_bytes, base));
}

SharedMemory::~SharedMemory() {
  munmap(base_, window_ * (static_cast<std::uint64_t>(ranks_) + 1));
  close(fd_);
}

bool SharedMemory::contains(Region region, int owner) const {
  const std::uint64_t begin = owner < 0 ? 0 : window_begin(owner);
  const std::uint64_t end = owner < 0 ? window_begin(ranks_ + 1) : begin + window_;
  return region.offset >= begin && region.offset <= end && region.bytes <= end - region.offset;
}

}  // namespace prism
