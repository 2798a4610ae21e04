// Trees: binomial ones from and to a root, and all-reduce over two binary trees at once.
#include <algorithm>

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
  int part(int member, int step, std::vector<Send>& sends) const override {
    const std::int64_t size = shape_.members, v = (member - shape_.root + size) % size;
    const std::int64_t weight = std::int64_t{1} << (to_root_ ? steps_ - 1 - step : step);
    const std::int64_t child = v < weight ? v + weight : v;  // the one of the two that is further from the root
    if (child >= size || child >= 2 * weight) return 0;
    const std::int64_t below = (size - 1 - child) / (2 * weight) + 1;  // members that hang on it, itself among them
    const std::int64_t bytes = whole_ ? shape_.bytes : below * divided(shape_.bytes, size);
    const std::int64_t to = to_root_ ? child - weight : child;
    if (to == v) return 1;
    sends.push_back({static_cast<int>((to + shape_.root) % size), bytes});
    return 0;
  }

 private:
  CollectiveShape shape_;
  int steps_ = 0;
  bool to_root_ = false, whole_ = false;
};

// A binary tree over 0 to N - 1 in which inner members and leaves alternate, so that the same tree over members
// mirrored, or moved by one, has the leaves where this one has inner members (Sanders, Speck, Traeff 2009).
struct BinaryTree {
  explicit BinaryTree(std::int64_t size) : parent(size, -1), depth(size, 0), height(size, 0), children(size) {
    for (std::int64_t v = 1; v < size; ++v) {
      const std::int64_t bit = v & -v, up = (v ^ bit) | bit << 1;
      parent[v] = static_cast<int>(up < size ? up : v ^ bit);
      children[parent[v]].push_back(static_cast<int>(v));
    }
    std::vector<int> order{0};
    for (std::size_t i = 0; i < order.size(); ++i)
      for (const int child : children[order[i]]) {
        depth[child] = depth[order[i]] + 1;
        order.push_back(child);
      }
    for (auto v = order.rbegin(); v != order.rend(); ++v)
      if (*v != 0) height[parent[*v]] = std::max(height[parent[*v]], height[*v] + 1);
    deepest = depth[order.back()];
  }
  std::vector<int> parent, depth, height;
  std::vector<std::vector<int>> children;
  int deepest = 0;
};

// Pieces of each half go up its tree and come down again, one step behind the other.
class DoubleBinaryTree final : public Schedule {
 public:
  explicit DoubleBinaryTree(const CollectiveShape& shape) : size_(shape.members), tree_(shape.members) {
    constexpr std::int64_t kPiece = 64 << 10, kMostPieces = 128;
    const std::int64_t half = divided(shape.bytes, 2);
    pieces_ = static_cast<int>(std::clamp<std::int64_t>(divided(half, kPiece), 1, kMostPieces));
    bytes_ = divided(half, pieces_);
  }
  int members() const override { return size_; }
  int steps() const override { return size_ > 1 ? turn() + pieces_ + tree_.deepest - 1 : 0; }
  int part(int member, int step, std::vector<Send>& sends) const override {
    int receives = 0;
    for (const bool second : {false, true}) {
      const int v = second ? mapped(member) : member;
      const auto to = [&](int other) { sends.push_back({second ? unmapped(other) : other, bytes_}); };
      if (v != 0 && is_piece(step - tree_.height[v])) to(tree_.parent[v]);
      if (v != 0 && is_piece(step - turn() - tree_.depth[v] + 1)) ++receives;
      for (const int child : tree_.children[v]) {
        if (is_piece(step - tree_.height[child])) ++receives;
        if (is_piece(step - turn() - tree_.depth[v])) to(child);
      }
    }
    return receives;
  }

 private:
  int turn() const { return tree_.height[0]; }  // the step in which the first piece is whole at the root
  bool is_piece(int index) const { return index >= 0 && index < pieces_; }
  int mapped(int member) const { return size_ % 2 == 0 ? size_ - 1 - member : (member + size_ - 1) % size_; }
  int unmapped(int v) const { return size_ % 2 == 0 ? size_ - 1 - v : (v + 1) % size_; }

  int size_;
  BinaryTree tree_;
  int pieces_ = 1;
  std::int64_t bytes_ = 0;
};

}  // namespace

SchedulePtr binomial(const CollectiveShape& shape) { return std::make_unique<Binomial>(shape); }
SchedulePtr double_binary_tree(const CollectiveShape& shape) { return std::make_unique<DoubleBinaryTree>(shape); }

}  // namespace prism::simulate::schedules
