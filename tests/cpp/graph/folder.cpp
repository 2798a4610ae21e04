#include <stdlib.h>

#include <filesystem>
#include <stdexcept>

#include "graph/jobs.hpp"

namespace prism::testing {

Folder::Folder() {
  auto pattern = (std::filesystem::temp_directory_path() / "prism-test-XXXXXX").string();
  if (!mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder");
  path_ = pattern;
}
Folder::~Folder() { std::filesystem::remove_all(path_); }
std::vector<std::string> Folder::files() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) names.push_back(entry.path().filename());
  return names;
}

}  // namespace prism::testing
