#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "graph/column_type.hpp"
#include "graph/container.hpp"
#include "graph/impl.hpp"
#include "graph/mapped_file.hpp"
#include "graph/trace_header.hpp"

namespace prism {
namespace {

// A file beside `path` that becomes `path` when it is complete, and vanishes otherwise.
class PartialFile {
 public:
  explicit PartialFile(const std::string& path) : path_(path) {
    std::error_code none;
    if (const auto target = std::filesystem::canonical(path, none); !none) path_ = target;  // a link stays a link
  }
  ~PartialFile() {
    if (fd_ >= 0) ::close(fd_);
    if (exists_) ::unlink(partial_.c_str());
  }
  Result<void> create() {
    struct stat status;
    // A rename would replace a device or a pipe by a file.
    if (::stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
      return Error{ErrorCode::kInvalidInput, path_ + ": exists and is not a regular file"};
    static std::atomic<unsigned> serial = 0;
    do {  // one may be left of a process that was killed, and in a container numbers of processes come again
      partial_ = fmt::format("{}.partial-{}-{}", path_, ::getpid(), serial++);
      fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (fd_ < 0 && errno == EEXIST);
    if (fd_ < 0) return system_error("cannot write", path_);
    exists_ = true;
    return {};
  }
  Result<void> write(const void* data, std::size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const auto written = ::write(fd_, at, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return system_error("cannot write", path_);
      at += written;
      bytes -= static_cast<std::size_t>(written);
    }
    return {};
  }
  // Durable: the data reach the disk before the name does, and the name before this returns.
  Result<void> commit(bool durable) {
    if (durable && ::fsync(fd_) != 0) return system_error("cannot write", path_);
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0) return system_error("cannot write", path_);
    if (::rename(partial_.c_str(), path_.c_str()) != 0) return system_error("cannot write", path_);
    exists_ = false;
    if (!durable) return {};
    const auto parent = std::filesystem::path(path_).parent_path();
    const int folder = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
      ::fsync(folder);  // best effort: some file systems refuse it for folders
      ::close(folder);
    }
    return {};
  }

 private:
  std::string path_, partial_;
  int fd_ = -1;
  bool exists_ = false;
};

}  // namespace

Result<void> write_trace(const ExecutionGraph& graph, const std::string& path, bool durable) {
  const auto& impl = graph.impl();
  Container container;
  PRISM_ASSIGN_OR_RETURN(container.metadata["prism"], format_trace_header(impl.header));
  std::uint64_t end = 0;
  for_each_column(impl.columns, [&]<typename T>(std::string_view name, const View<T>& column) {
    container.entries.push_back(
        {std::string(name), container_dtype<T>(), column.size(), end, end + column.size_bytes()});
    end += column.size_bytes();
  });
  PRISM_ASSIGN_OR_RETURN(const auto header, container_header(container));
  PartialFile file(path);
  PRISM_RETURN_IF_ERROR(file.create());
  Result<void> result = file.write(header.data(), header.size());
  for_each_column(impl.columns, [&]<typename T>(std::string_view, const View<T>& column) {
    if (result) result = file.write(column.data(), column.size_bytes());
  });
  PRISM_RETURN_IF_ERROR(result);
  return file.commit(durable);
}

}  // namespace prism
