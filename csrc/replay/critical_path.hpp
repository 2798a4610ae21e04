// What the time of an iteration is made of, across ranks.
#pragma once
#include <cstdint>
#include <vector>

#include "replay/analysis.hpp"
#include "replay/holds.hpp"

namespace prism::engine {

// Backwards from a node, each step to what it was ready at last: on its lane, from another lane, its transfer; a
// transfer's is the member that came last, or the collective whose end freed that member's worker. O(length of the
// path); of two that ended together the one on the own lane, then the first.
class CriticalPath {
 public:
  CriticalPath(const Job& job, const Execution& execution, const Holds& holds);
  // The path from `from_ns` to `until_ns`, when the rank was in `node` or had just ended it, appended to `path`.
  void append(Analysis::Path& path, int iteration, int rank, std::uint32_t node, std::int64_t from_ns,
              std::int64_t until_ns) const;

 private:
  struct Cause {
    int rank;
    std::uint32_t node;  // kNone: nothing before it
    std::int64_t end_ns;
  };
  Cause cause_of(int rank, std::uint32_t node) const;
  Cause cause_of_transfer(int rank, std::uint32_t node) const;
  std::int64_t end_of(int rank, std::uint32_t node) const { return execution_.timelines[rank].end_ns(node); }

  const Job& job_;
  const Execution& execution_;
  const Holds& holds_;
  std::size_t most_steps_ = 0;
};

}  // namespace prism::engine
