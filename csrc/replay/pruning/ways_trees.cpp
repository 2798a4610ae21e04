// Trees: double binary trees, binomial ones, and the binomial tree that halving and doubling makes for each chunk.
#include <bit>

#include "replay/pruning/ways.hpp"
#include "simulate/binary_tree.hpp"
#include "simulate/folded.hpp"

namespace prism::pruning {
namespace {

class DoubleBinaryTreeWays final : public Ways {
 public:
  DoubleBinaryTreeWays(int members, int chunks) : trees_(members), pieces_(chunks / 2) {}
  int chunks() const override { return 2 * pieces_; }
  int root(int chunk) const override { return trees_.member(half(chunk), 0); }
  bool has(Tree) const override { return true; }
  Link above(Tree tree, int chunk, int member) const override {
    const int v = trees_.vertex(half(chunk), member);
    return {trees_.member(half(chunk), trees_.tree.parent[v]), step(tree, chunk, v)};
  }
  void below(Tree tree, int chunk, int member, std::vector<Link>& links) const override {
    for (const int child : trees_.tree.children[trees_.vertex(half(chunk), member)])
      links.push_back({trees_.member(half(chunk), child), step(tree, chunk, child)});
  }
  void neighbours(int member, std::vector<std::int32_t>& found) const override {
    for (const int half : {0, 1}) {
      const int v = trees_.vertex(half, member);
      if (v != 0) found.push_back(trees_.member(half, trees_.tree.parent[v]));
      for (const int child : trees_.tree.children[v]) found.push_back(trees_.member(half, child));
    }
  }

 private:
  int half(int chunk) const { return chunk / pieces_; }
  // Of the message between v and its parent.
  int step(Tree tree, int chunk, int v) const {
    const int piece = chunk % pieces_;
    return piece + (tree == Tree::kReduce ? trees_.tree.height[v] : trees_.turn() + trees_.tree.depth[v] - 1);
  }
  simulate::TwoTrees trees_;
  int pieces_;
};

// A tree over labels from 0, the root, in which the one above is a label without its highest bit. The messages of the
// highest bit pass first when reduced, last when spread.
struct BinomialTree {
  explicit BinomialTree(int size) : size(size) {
    while ((std::int64_t{1} << steps) < size) ++steps;
  }
  static int highest_bit(int label) { return std::bit_width(static_cast<unsigned>(label)) - 1; }
  int above(int label) const { return label ^ (1 << highest_bit(label)); }
  // Of the message between a label and the one above.
  int step(Tree tree, int label) const {
    return tree == Tree::kReduce ? steps - 1 - highest_bit(label) : highest_bit(label);
  }
  template <typename Each>
  void below(int label, Each&& each) const {
    for (int bit = highest_bit(label) + 1; bit < steps; ++bit)
      if ((label | 1 << bit) < size) each(label | 1 << bit);
  }
  int size, steps = 0;
};

class BinomialWays final : public Ways {
 public:
  explicit BinomialWays(const simulate::CollectiveShape& shape)
      : tree_(shape.members), root_(shape.root), reduces_(shape.op == Op::kReduce || shape.op == Op::kGather) {}
  int chunks() const override { return 1; }
  int root(int) const override { return root_; }
  bool has(Tree tree) const override { return reduces_ == (tree == Tree::kReduce); }
  Link above(Tree tree, int, int member) const override {
    return {this->member(tree_.above(label(member))), tree_.step(tree, label(member))};
  }
  void below(Tree tree, int, int member, std::vector<Link>& links) const override {
    tree_.below(label(member), [&](int below) { links.push_back({this->member(below), tree_.step(tree, below)}); });
  }
  void neighbours(int member, std::vector<std::int32_t>& found) const override {
    if (member != root_) found.push_back(this->member(tree_.above(label(member))));
    tree_.below(label(member), [&](int below) { found.push_back(this->member(below)); });
  }

 private:
  int label(int member) const { return (member - root_ + tree_.size) % tree_.size; }
  int member(int label) const { return static_cast<int>((std::int64_t{label} + root_) % tree_.size); }
  BinomialTree tree_;
  int root_;
  bool reduces_;
};

// The tree of chunk c has the labels number ^ c. Members that hand over hang on their mates.
class HalvingDoublingWays final : public Ways {
 public:
  explicit HalvingDoublingWays(int members) : folded_(members), tree_(folded_.power) {}
  int chunks() const override { return folded_.power; }
  int root(int chunk) const override { return folded_.member(chunk); }
  bool has(Tree) const override { return true; }
  Link above(Tree tree, int chunk, int member) const override {
    if (folded_.hands_over(member)) return {folded_.mate(member), handed_over(tree)};
    const int label = folded_.number(member) ^ chunk;
    return {folded_.member(tree_.above(label) ^ chunk), step(tree, label)};
  }
  void below(Tree tree, int chunk, int member, std::vector<Link>& links) const override {
    if (folded_.hands_over(member)) return;
    if (folded_.is_paired(member)) links.push_back({folded_.mate(member), handed_over(tree)});
    tree_.below(folded_.number(member) ^ chunk, [&](int label) {
      links.push_back({folded_.member(label ^ chunk), step(tree, label)});
    });
  }
  void neighbours(int member, std::vector<std::int32_t>& found) const override {
    if (folded_.is_paired(member)) found.push_back(folded_.mate(member));
    if (folded_.hands_over(member)) return;
    for (int bit = 0; bit < folded_.log; ++bit) found.push_back(folded_.member(folded_.number(member) ^ (1 << bit)));
  }

 private:
  int first() const { return folded_.paired > 0 ? 1 : 0; }
  int step(Tree tree, int label) const {
    return first() + tree_.step(tree, label) + (tree == Tree::kReduce ? 0 : folded_.log);
  }
  int handed_over(Tree tree) const { return tree == Tree::kReduce ? 0 : 2 * folded_.log + 1; }
  simulate::Folded folded_;
  BinomialTree tree_;
};

}  // namespace

Nearest Ways::nearest(Tree tree, int chunk, int member, const Sandbox& sandbox) const {
  while (member != root(chunk)) {
    const int peer = above(tree, chunk, member).peer;
    if (sandbox.has(peer)) return {peer, member};
    member = peer;
  }
  return {};
}

std::unique_ptr<Ways> double_binary_tree_ways(const simulate::CollectiveShape& shape, int chunks) {
  return std::make_unique<DoubleBinaryTreeWays>(shape.members, chunks);
}
std::unique_ptr<Ways> binomial_ways(const simulate::CollectiveShape& shape, int) {
  return std::make_unique<BinomialWays>(shape);
}
std::unique_ptr<Ways> halving_doubling_ways(const simulate::CollectiveShape& shape, int) {
  return std::make_unique<HalvingDoublingWays>(shape.members);
}

}  // namespace prism::pruning
