// The way of each chunk through a collective's members, as the schedules of csrc/simulate have it: a tree in which the
// chunk is reduced towards its root, and one in which it is spread from there. Rings are trees without branches.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "replay/pruning/sandbox.hpp"
#include "simulate/schedule.hpp"

namespace prism::pruning {

enum class Tree { kReduce, kSpread };

// A message between a member and one next to it in a tree, and the schedule's step in which it passes.
struct Link {
  std::int32_t peer, step;
};

// The nearest sandbox member between a member and the root, -1 where all are virtual; and the one below it on the way.
struct Nearest {
  std::int32_t member = -1, below = -1;
};

class Ways {
 public:
  virtual ~Ways() = default;
  virtual int chunks() const = 0;
  virtual int root(int chunk) const = 0;
  virtual bool has(Tree tree) const = 0;
  // Towards the root, of a member that is not the root.
  virtual Link above(Tree tree, int chunk, int member) const = 0;
  virtual void below(Tree tree, int chunk, int member, std::vector<Link>& links) const = 0;
  virtual Nearest nearest(Tree tree, int chunk, int member, const Sandbox& sandbox) const;
  // Whom a member has messages with, whatever the chunk; may be told twice.
  virtual void neighbours(int member, std::vector<std::int32_t>& found) const = 0;
};

// `chunks`: of the schedule. Null for an algorithm that has no such ways.
std::unique_ptr<Ways> make_ways(const simulate::CollectiveShape& shape, const std::string& algorithm, int chunks);
bool is_recursive_doubling(Op op, const std::string& algorithm);
std::int64_t exchanges(int members);  // messages of it
// Whom sandbox members have messages with, appended; false where the algorithm is not known to be less than everybody.
bool partners(const simulate::CollectiveShape& shape, const std::string& algorithm, int chunks,
              std::span<const std::int32_t> sandbox, std::vector<std::int32_t>& found);
// "ring, tree"
std::string prunable(Op op);

using MakeWays = std::unique_ptr<Ways>(const simulate::CollectiveShape& shape, int chunks);
MakeWays ring_ways, chain_ways, segmented_ring_ways, double_binary_tree_ways, binomial_ways, halving_doubling_ways;

}  // namespace prism::pruning
