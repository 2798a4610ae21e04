#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "catch2.hpp"
#include "graph/jobs.hpp"

namespace prism::test {

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

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

void spit(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string written(const Folder& folder, const Job3D& job) {
  const auto path = folder.path("job.prism");
  const auto graph = job.build();
  REQUIRE(graph);
  REQUIRE(write_trace(*graph, path));
  return path;
}

}  // namespace prism::test
