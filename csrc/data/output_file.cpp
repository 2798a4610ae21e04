#include "data/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "graph/mapped_file.hpp"

namespace prism {
namespace {

constexpr std::size_t kBuffer = 1u << 20;

}  // namespace

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Error OutputFile::refused() const { return system_error("cannot write", path_); }

Result<void> OutputFile::create(const std::string& path) {
  path_ = path;
  bytes_ = 0;
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  return fd_ >= 0 ? Result<void>() : refused();
}

Result<void> OutputFile::put(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return refused();
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Result<void> OutputFile::write(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBuffer) {
    PRISM_RETURN_IF_ERROR(put(buffer_));
    buffer_.clear();
    if (bytes.size() >= kBuffer) return put(bytes);
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return {};
}

Result<void> OutputFile::close(bool to_disk) {
  PRISM_RETURN_IF_ERROR(put(buffer_));
  buffer_ = {};
  if (to_disk) sync_file_range(fd_, 0, 0, SYNC_FILE_RANGE_WRITE);
  return ::close(std::exchange(fd_, -1)) == 0 ? Result<void>() : refused();
}

Result<void> synchronize(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool done = fd >= 0 && ::fsync(fd) == 0;
  const int reason = errno;
  if (fd >= 0) ::close(fd);
  errno = reason;
  return done ? Result<void>() : system_error("cannot write", path);
}

}  // namespace prism
