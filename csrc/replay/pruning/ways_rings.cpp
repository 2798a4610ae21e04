// Rings of all kinds: the sum of a chunk goes once around to its root, the result once around from there.
#include "replay/pruning/ways.hpp"

namespace prism::pruning {
namespace {

class RingWays final : public Ways {
 public:
  struct Kind {
    int members, direction;  // 1: each sends to the next one, -1: to the one before
    int per_member;          // chunks that a member owns
    int root;                // of all chunks; -1: each its owner
    bool reduces, spreads;
  };
  RingWays(const Kind& kind, int chunks) : kind_(kind), chunks_(chunks) {}
  int chunks() const override { return chunks_; }
  int root(int chunk) const override {
    return kind_.root >= 0 ? kind_.root : kind_.per_member == 1 ? chunk : chunk / kind_.per_member;
  }
  bool has(Tree tree) const override { return tree == Tree::kReduce ? kind_.reduces : kind_.spreads; }

  Link above(Tree tree, int chunk, int member) const override {
    if (tree == Tree::kReduce) return {moved(member, 1), step(tree, chunk, hops_to_send(chunk, member))};
    return {moved(member, -1), step(tree, chunk, distance(root(chunk), member) - 1)};
  }
  void below(Tree tree, int chunk, int member, std::vector<Link>& links) const override {
    if (tree == Tree::kReduce) {
      if (const int hops = hops_to_send(chunk, member))
        links.push_back({moved(member, -1), step(tree, chunk, hops - 1)});
      return;
    }
    const int hops = distance(root(chunk), member);
    if (hops < kind_.members - 1) links.push_back({moved(member, 1), step(tree, chunk, hops)});
  }
  Nearest nearest(Tree tree, int chunk, int member, const Sandbox& sandbox) const override {
    const bool up = (tree == Tree::kReduce) == (kind_.direction > 0);
    const int next = up ? sandbox.after(member) : sandbox.before(member);
    const auto ahead = [&](int other) {
      return tree == Tree::kReduce ? distance(member, other) : distance(other, member);
    };
    const int to_next = next == member ? kind_.members : ahead(next);
    if (to_next > ahead(root(chunk))) return {};
    return {next, moved(next, tree == Tree::kReduce ? -1 : 1)};
  }
  void neighbours(int member, std::vector<std::int32_t>& found) const override {
    if (kind_.members == 1) return;
    found.push_back(moved(member, -1));
    found.push_back(moved(member, 1));
  }

 private:
  int distance(int from, int to) const {
    const int ahead = kind_.direction * (to - from);
    return ahead < 0 ? ahead + kind_.members : ahead;
  }
  // `by`: 1 or -1.
  int moved(int member, int by) const {
    const int at = member + by * kind_.direction;
    return at < 0 ? at + kind_.members : at >= kind_.members ? at - kind_.members : at;
  }
  // The sum comes to a member with so many hops, from the one behind the root on.
  int hops_to_send(int chunk, int member) const { return distance(moved(root(chunk), 1), member); }
  // Chunks of one owner follow each other, so that each has as many steps a hop.
  int step(Tree tree, int chunk, int hops) const {
    if (tree == Tree::kSpread && kind_.reduces) hops += kind_.members - 1;
    if (kind_.root >= 0) return hops + chunk;
    return kind_.per_member == 1 ? hops : hops * kind_.per_member + chunk % kind_.per_member;
  }

  Kind kind_;
  int chunks_;
};

}  // namespace

std::unique_ptr<Ways> ring_ways(const simulate::CollectiveShape& shape, int chunks) {
  const bool reduces = shape.op != Op::kAllGather, spreads = shape.op != Op::kReduceScatter;
  return std::make_unique<RingWays>(RingWays::Kind{shape.members, 1, 1, -1, reduces, spreads}, chunks);
}

std::unique_ptr<Ways> segmented_ring_ways(const simulate::CollectiveShape& shape, int chunks) {
  return std::make_unique<RingWays>(
      RingWays::Kind{shape.members, -1, chunks / shape.members, -1, shape.op != Op::kAllGather, true}, chunks);
}

std::unique_ptr<Ways> chain_ways(const simulate::CollectiveShape& shape, int chunks) {
  const bool reduces = shape.op == Op::kReduce;
  return std::make_unique<RingWays>(RingWays::Kind{shape.members, 1, 1, shape.root, reduces, !reduces}, chunks);
}

}  // namespace prism::pruning
