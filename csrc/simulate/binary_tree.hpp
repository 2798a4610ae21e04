// The two trees of an all-reduce over a double binary tree (Sanders, Speck, Traeff 2009), each for half of the tensor.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace prism::simulate {

// A binary tree over 0 to size - 1 with the root 0, in which inner vertices and leaves alternate, so that the same tree
// over members mirrored, or moved by one, has the leaves where this one has inner vertices.
struct BinaryTree {
  struct Children {  // v - bit / 2, and of v + bit / 2, v + bit / 4, ... the first that there is
    void push_back(int child) { of[count++] = child; }
    const int* begin() const { return of; }
    const int* end() const { return of + count; }
    int of[2] = {-1, -1}, count = 0;
  };
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
  std::vector<Children> children;
  int deepest = 0;
};

// A piece leaves v for its parent `height[v]` steps after its number, so that it is whole at the root in step turn();
// it comes to v again turn() + depth[v] - 1 steps after its number.
struct TwoTrees {
  explicit TwoTrees(int members) : tree(members) {}
  int size() const { return static_cast<int>(tree.parent.size()); }
  int turn() const { return tree.height[0]; }
  int vertex(int half, int member) const {
    if (half == 0) return member;
    return size() % 2 == 0 ? size() - 1 - member : (member + size() - 1) % size();
  }
  int member(int half, int vertex) const {
    if (half == 0) return vertex;
    return size() % 2 == 0 ? size() - 1 - vertex : (vertex + 1) % size();
  }
  BinaryTree tree;
};

}  // namespace prism::simulate
