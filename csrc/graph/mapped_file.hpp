// A whole file, mapped read-only for as long as this lives.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "core/result.hpp"

namespace prism {

class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::string_view bytes) : bytes_(bytes) {}
  std::string_view bytes_;
};

// "<what> <path>: <the system's reason for errno>", kIo.
Error system_error(std::string_view what, const std::string& path);

}  // namespace prism
