// Which algorithms can be pruned.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "replay/pruning/ways.hpp"
#include "simulate/folded.hpp"

namespace prism::pruning {
namespace {

struct Prunable {
  const char* algorithm;
  std::vector<Op> ops;
  MakeWays* make;  // null: recursive doubling
};

const std::vector<Prunable>& all() {
  static const std::vector<Prunable> all = {
      {"ring", {Op::kAllReduce, Op::kReduceScatter, Op::kAllGather}, &ring_ways},
      {"ring", {Op::kBroadcast, Op::kReduce}, &chain_ways},
      {"segmented_ring", {Op::kAllReduce, Op::kAllGather}, &segmented_ring_ways},
      {"tree", {Op::kAllReduce}, &double_binary_tree_ways},
      {"tree", {Op::kBroadcast, Op::kReduce}, &binomial_ways},
      {"halving_doubling", {Op::kAllReduce}, &halving_doubling_ways},
      {"recursive_doubling", {Op::kAllReduce}, nullptr},
  };
  return all;
}

const Prunable* find(Op op, const std::string& algorithm) {
  for (const auto& one : all())
    if (one.algorithm == algorithm && std::find(one.ops.begin(), one.ops.end(), op) != one.ops.end()) return &one;
  return nullptr;
}

}  // namespace

std::unique_ptr<Ways> make_ways(const simulate::CollectiveShape& shape, const std::string& algorithm, int chunks) {
  const auto* found = find(shape.op, algorithm);
  return found != nullptr && found->make != nullptr ? found->make(shape, chunks) : nullptr;
}

bool is_recursive_doubling(Op op, const std::string& algorithm) {
  const auto* found = find(op, algorithm);
  return found != nullptr && found->make == nullptr;
}

std::string prunable(Op op) {
  std::vector<std::string> algorithms;
  for (const auto& one : all())
    if (std::find(one.ops.begin(), one.ops.end(), op) != one.ops.end()) algorithms.push_back(one.algorithm);
  return algorithms.empty() ? "no algorithm of it" : fmt::format("{}", fmt::join(algorithms, ", "));
}

bool partners(const simulate::CollectiveShape& shape, const std::string& algorithm, int chunks,
              std::span<const std::int32_t> sandbox, std::vector<std::int32_t>& found) {
  // Their trees are those of reduce and broadcast, their partners those of halving.
  const bool binomial = (shape.op == Op::kGather || shape.op == Op::kScatter) && algorithm == "tree";
  const auto ways = binomial                                     ? binomial_ways(shape, 1)
                    : is_recursive_doubling(shape.op, algorithm) ? halving_doubling_ways(shape, 1)
                                                                 : make_ways(shape, algorithm, chunks);
  const bool dissemination = algorithm == "dissemination";
  if (!ways && !dissemination) return false;
  for (const int member : sandbox)
    if (ways)
      ways->neighbours(member, found);
    else
      for (std::int64_t ahead = 1; ahead < shape.members; ahead *= 2)
        for (const std::int64_t by : {ahead, shape.members - ahead})
          found.push_back(static_cast<std::int32_t>((member + by) % shape.members));
  return true;
}

std::int64_t exchanges(int members) {
  const simulate::Folded folded(members);
  return std::int64_t{folded.power} * folded.log + folded.paired;
}

}  // namespace prism::pruning
