// Sets of ranks that grow together.
#pragma once
#include <algorithm>
#include <numeric>
#include <vector>

namespace prism::engine {

class Joined {
 public:
  explicit Joined(std::size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0); }
  int first(int rank) {
    while (parent_[rank] != rank) rank = parent_[rank] = parent_[parent_[rank]];
    return rank;
  }
  void join(int a, int b) {
    a = first(a), b = first(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }
  template <typename Ranks>
  void join_all(const Ranks& ranks) {
    for (const int rank : ranks) join(rank, ranks[0]);
  }

 private:
  std::vector<int> parent_;  // the lowest rank of a set is its own
};

}  // namespace prism::engine
