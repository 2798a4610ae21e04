// Trees: binomial ones from and to a root, and all-reduce over two binary trees at once.
#include "simulate/binary_tree.hpp"
#include "simulate/schedules.hpp"

namespace prism::simulate::schedules {
namespace {

// Members are numbered from the root. In the step of weight 2^s, v < 2^s sends to v + 2^s; towards the root backwards.
class Binomial final : public Schedule {
 public:
  explicit Binomial(const CollectiveShape& shape) : shape_(shape) {
    while ((std::int64_t{1} << steps_) < shape.members) ++steps_;
    to_root_ = shape.op == Op::kReduce || shape.op == Op::kGather;
    whole_ = shape.op == Op::kReduce || shape.op == Op::kBroadcast;
  }
  int members() const override { return shape_.members; }
  int steps() const override { return steps_; }
  int chunks() const override { return whole_ ? 1 : 0; }
  int part(int member, int step, std::vector<Send>& sends) const override {
    const std::int64_t size = shape_.members, v = (member - shape_.root + size) % size;
    const std::int64_t weight = std::int64_t{1} << (to_root_ ? steps_ - 1 - step : step);
    const std::int64_t child = v < weight ? v + weight : v;  // the one of the two that is further from the root
    if (child >= size || child >= 2 * weight) return 0;
    const std::int64_t below = (size - 1 - child) / (2 * weight) + 1;  // members that hang on it, itself among them
    const std::int64_t bytes = whole_ ? shape_.bytes : below * divided(shape_.bytes, size);
    const std::int64_t to = to_root_ ? child - weight : child;
    if (to == v) return 1;
    sends.push_back({static_cast<int>((to + shape_.root) % size), bytes, 0, 1, to_root_});
    return 0;
  }

 private:
  CollectiveShape shape_;
  int steps_ = 0;
  bool to_root_ = false, whole_ = false;
};

// Pieces of each half go up its tree and come down again, one step behind the other.
class DoubleBinaryTree final : public Schedule {
 public:
  explicit DoubleBinaryTree(const CollectiveShape& shape) : trees_(shape.members), pieces_(divided(shape.bytes, 2)) {}
  int members() const override { return trees_.size(); }
  int steps() const override { return members() > 1 ? trees_.turn() + pieces_.count + trees_.tree.deepest - 1 : 0; }
  int chunks() const override { return 2 * pieces_.count; }
  int part(int member, int step, std::vector<Send>& sends) const override {
    const BinaryTree& tree = trees_.tree;
    int receives = 0;
    for (const int half : {0, 1}) {
      const int v = trees_.vertex(half, member);
      const auto to = [&](int other, int piece, bool up) {
        sends.push_back({trees_.member(half, other), pieces_.bytes, half * pieces_.count + piece, 1, up});
      };
      const int up = step - tree.height[v], down = step - trees_.turn() - tree.depth[v];
      if (v != 0 && pieces_.has(up)) to(tree.parent[v], up, true);
      if (v != 0 && pieces_.has(down + 1)) ++receives;
      for (const int child : tree.children[v]) {
        if (pieces_.has(step - tree.height[child])) ++receives;
        if (pieces_.has(down)) to(child, down, false);
      }
    }
    return receives;
  }

 private:
  TwoTrees trees_;
  Pieces pieces_;
};

}  // namespace

SchedulePtr binomial(const CollectiveShape& shape) { return std::make_unique<Binomial>(shape); }
SchedulePtr double_binary_tree(const CollectiveShape& shape) { return std::make_unique<DoubleBinaryTree>(shape); }

}  // namespace prism::simulate::schedules
