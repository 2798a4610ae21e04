#include "catch2.hpp"
#include "graph/jobs.hpp"

namespace prism::test {

std::string written(const Folder& folder, const Job3D& job) {
  const auto path = folder.path("job.prism");
  const auto graph = job.build();
  REQUIRE(graph);
  REQUIRE(write_trace(*graph, path));
  return path;
}

}  // namespace prism::test
