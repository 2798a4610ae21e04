// A new file, written from its beginning to its end by one thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.hpp"

namespace prism {

class OutputFile {
 public:
  OutputFile() = default;
  ~OutputFile();  // closes; the file stays as it is
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  Result<void> create(const std::string& path);  // kIo where it exists
  Result<void> write(std::span<const std::byte> bytes);
  // With `to_disk` the system begins to carry it there at once, so that synchronize() has less to do in the end.
  Result<void> close(bool to_disk = true);
  std::uint64_t bytes() const { return bytes_; }

 private:
  Result<void> put(std::span<const std::byte> bytes);
  Error refused() const;
  std::string path_;
  int fd_ = -1;
  std::uint64_t bytes_ = 0;
  std::vector<std::byte> buffer_;
};

// Until all that was written to the file or folder is on the disk.
Result<void> synchronize(const std::string& path);

}  // namespace prism
