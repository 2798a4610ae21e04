#include "backend/protocol/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "backend/protocol/socket.hpp"

namespace prism {
namespace {

constexpr std::uint64_t kWindowUnit = 2u << 20;  // a huge page, should the system use them
constexpr std::uint64_t kLargestWindow = 64ull << 30;
constexpr std::uint64_t kLargestFile = 8ull << 40;  // half of what ext4 allows

Error system_error(const char* what) {
  return {ErrorCode::kIo, fmt::format("shared memory: {}: {}", what, std::strerror(errno))};
}

bool is_in_memory(const std::string& directory) {
  struct statfs status {};
  return statfs(directory.c_str(), &status) == 0 && (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC);
}

// A file without a name in `directory`.
int open_unnamed(const std::string& directory) {
  const int fd = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  std::string path = directory + "/prism-spill-XXXXXX";  // a file system without O_TMPFILE
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

std::uint64_t bytes_of(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

}  // namespace

bool SharedMemory::map() {
  const std::uint64_t bytes = total_bytes();
  void* base = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return false;
  base_ = static_cast<std::byte*>(base);
  const auto place = [&](const File& file, std::uint64_t length) {
    return length == 0 || mmap(base_ + file.first, length, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file.fd, 0) != MAP_FAILED;
  };
  if (!place(memory_, disk_.first) || !place(disk_, bytes - disk_.first)) return false;
  madvise(base_, bytes, MADV_DONTDUMP);  // a core file of terabytes helps nobody
  return true;
}

Result<std::unique_ptr<SharedMemory>> SharedMemory::create(int ranks, std::uint64_t address_space_bytes,
                                                           const std::string& spill_directory, bool must_spill) {
  const auto windows = static_cast<std::uint64_t>(ranks) + 1;
  const auto share = [&](std::uint64_t bytes) {
    return std::min(kLargestWindow, bytes / windows / kWindowUnit * kWindowUnit);
  };
  for (std::uint64_t space = address_space_bytes;; space /= 2) {
    File memory{-1, 0, share(space)};
    if (memory.window == 0) return system_error("no address space is left for the ranks' windows");
    memory.fd = memfd_create("prism", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    std::unique_ptr<SharedMemory> made(new SharedMemory(ranks, memory, {-1, memory.begin(ranks + 1), 0}));
    if (memory.fd < 0) return system_error("memfd_create");
    if (!spill_directory.empty())
      if (auto opened = made->open_disk(spill_directory, share(std::min(space, kLargestFile))); !opened && must_spill)
        return opened.error();
    if (ftruncate(memory.fd, static_cast<off_t>(made->disk_.first)) != 0 || !made->map()) continue;
    if (fcntl(memory.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return system_error("sealing");
    PRISM_RETURN_IF_ERROR(made->reserve({made->window_begin(ranks), sizeof(ControlBlock)}));
    return made;
  }
}

Result<void> SharedMemory::open_disk(const std::string& directory, std::uint64_t window) {
  const auto refused = [&](const char* why) {
    return Error{ErrorCode::kIo,
                 fmt::format("tensors beyond the memory budget cannot be staged in '{}': {}", directory, why)};
  };
  if (is_in_memory(directory)) return refused("it is in memory itself, and not on a disk");
  UniqueFd fd(open_unnamed(directory));
  if (fd.get() < 0) return refused(std::strerror(errno));
  // Some file systems cannot reserve, and better say so now.
  if (fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 0, kWindowUnit) != 0 ||
      fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kWindowUnit) != 0)
    return refused(std::strerror(errno));
  const auto windows = static_cast<off_t>(ranks_) + 1;
  while (window != 0 && ftruncate(fd.get(), static_cast<off_t>(window) * windows) != 0)
    window = window / 2 / kWindowUnit * kWindowUnit;
  if (window == 0) return refused(std::strerror(errno));
  disk_.fd = fd.release();
  disk_.window = window;
  return {};
}

Result<std::unique_ptr<SharedMemory>> SharedMemory::attach(int fd, int spill_fd, int ranks, std::uint64_t window_bytes,
                                                           std::uint64_t spill_window_bytes) {
  const auto windows = static_cast<std::uint64_t>(ranks) + 1;
  const File memory{fd, 0, window_bytes}, disk{spill_fd, window_bytes * windows, spill_window_bytes};
  std::unique_ptr<SharedMemory> attached(new SharedMemory(ranks, memory, disk));
  if (window_bytes == 0 || window_bytes > kLargestWindow || spill_window_bytes > kLargestWindow ||
      bytes_of(fd) != disk.first || (spill_fd >= 0 ? bytes_of(spill_fd) : 0) != spill_window_bytes * windows)
    return Error{
        ErrorCode::kInvalidInput,
        fmt::format("shared memory of {} bytes, and a file of {} for what is spilled, for {} windows of {} and "
                    "{} bytes",
                    bytes_of(fd), spill_fd >= 0 ? bytes_of(spill_fd) : 0, windows, window_bytes, spill_window_bytes)};
  if (!attached->map()) return system_error("mapping it");
  return attached;
}

SharedMemory::~SharedMemory() {
  if (base_ != nullptr) munmap(base_, total_bytes());
  for (const int fd : {memory_.fd, disk_.fd})
    if (fd >= 0) close(fd);
}

bool SharedMemory::contains(Region region, int owner) const {
  const auto inside = [&](const File& file) {
    const std::uint64_t begin = owner < 0 ? file.first : file.begin(owner);
    const std::uint64_t end = owner < 0 ? file.begin(ranks_ + 1) : begin + file.window;
    return region.offset >= begin && region.offset <= end && region.bytes <= end - region.offset;
  };
  return inside(memory_) || (disk_.window != 0 && inside(disk_));
}

Result<void> SharedMemory::reserve(Region region) {
  const File& file = file_of(region.offset);
  const auto offset = static_cast<off_t>(region.offset - file.first), bytes = static_cast<off_t>(region.bytes);
  while (fallocate(file.fd, FALLOC_FL_KEEP_SIZE, offset, bytes) != 0)
    if (errno != EINTR)
      return Error{ErrorCode::kIo,
                   fmt::format("reserving {} bytes of {}: {}", region.bytes,
                               is_spilled(region.offset) ? "disk" : "shared memory", std::strerror(errno))};
  return {};
}

void SharedMemory::release(Region region) {
  const File& file = file_of(region.offset);
  fallocate(file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(region.offset - file.first),
            static_cast<off_t>(region.bytes));
}

}  // namespace prism
