#include "graph/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <system_error>

namespace prism {

Error system_error(std::string_view what, const std::string& path) {
  return {ErrorCode::kIo, fmt::format("{} {}: {}", what, path, std::generic_category().message(errno))};
}

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // never waits for a pipe's writer
  if (fd < 0) return system_error("cannot open", path);
  struct stat status;
  std::optional<Error> error;
  void* data = nullptr;
  if (::fstat(fd, &status) != 0) {
    error = system_error("cannot read", path);
  } else if (!S_ISREG(status.st_mode)) {
    error = Error{ErrorCode::kInvalidInput, path + ": not a regular file"};
  } else if (status.st_size > 0) {
    data = ::mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) error = system_error("cannot map", path);
  }
  ::close(fd);
  if (error) return *error;
  return std::shared_ptr<const MappedFile>(
      new MappedFile({static_cast<const char*>(data), data ? static_cast<std::size_t>(status.st_size) : 0}));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

}  // namespace prism
