// Structural comparison of two graphs, independent of how their classes, strings and groups are numbered.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace prism {

// The first difference, by rank, then in the order of the fields of ClassView.
struct Difference {
  int rank = -1;  // -1: of the job as a whole
  int node = -1;  // node of the rank; -1 where no node is concerned
  std::string field;
  std::string a, b;  // the two values in the program's words
};

// Groups are equal when their members are. With `timing`, times and memory count as well. Errors are those of a corrupt
// file. Each pair of classes is compared once: O(nodes of the classes + slots of the ranks).
// `ranks`: only these; all where there are none.
Result<std::optional<Difference>> first_difference(const ExecutionGraph& a, const ExecutionGraph& b, bool timing,
                                                   const std::vector<int>& ranks = {});

}  // namespace prism
