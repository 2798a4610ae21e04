// Whole collectives of whole numbers, and any sandbox of theirs.
#pragma once
#include <algorithm>
#include <string>

#include "collective_inputs.hpp"
#include "literal.hpp"
#include "replay/pruned.hpp"

namespace prism::test {

using Set = std::vector<std::int32_t>;

struct Sums {
  std::vector<std::uint64_t> virtual_part;  // by chunk
  std::uint64_t identity() const { return 0; }
  void reduce(std::uint64_t& own, std::uint64_t came) const { own += came; }
  std::uint64_t combine(bool with_virtual_part, int chunk, const std::vector<const std::uint64_t*>& sources) const {
    std::uint64_t sum = with_virtual_part ? virtual_part[chunk] : 0;
    for (const auto* source : sources) sum += *source;
    return sum;
  }
};

// A collective and what the unpruned algorithm, executed literally, makes of random inputs.
struct Whole {
  Whole(Op op, const char* algorithm, int members, int root = 0, std::int64_t bytes = 0)
      : collective{{.op = op, .members = members, .bytes = bytes, .root = root}, algorithm} {
    const auto schedule = simulate::make_schedule(collective.shape, algorithm).value();
    chunks = schedule->chunks();
    inputs = random_numbers(members, chunks, 7 * static_cast<std::uint64_t>(members) + 1);
    outputs = execute_literally(*schedule, inputs, [](auto& own, auto came) { own += came; });
    sums = results(collective, inputs);
  }
  PrunedCollective pruned(const Set& sandbox) const {
    return prune(collective.shape, collective.algorithm, sandbox).value();
  }
  Sums virtual_part(const Set& sandbox) const {
    Sums part{sums};
    if (collective.reduces())
      for (const int member : sandbox)
        for (int chunk = 0; chunk < chunks; ++chunk) part.virtual_part[chunk] -= inputs[member][chunk];
    return part;
  }
  Numbers own(const Set& sandbox) const {
    Numbers own;
    for (const int member : sandbox) own.push_back(inputs[member]);
    return own;
  }
  void check(const Set& sandbox, const Numbers& own) const {
    for (std::size_t i = 0; i < sandbox.size(); ++i)
      for (int chunk = 0; chunk < chunks; ++chunk)
        if (collective.gets(sandbox[i], chunk, chunks) && own[i][chunk] != outputs[sandbox[i]][chunk])
          FAIL(name(collective.shape.op) << " by " << collective.algorithm << " of " << collective.shape.members
                                         << ", root " << collective.shape.root << ", sandbox " << text(sandbox)
                                         << ": member " << sandbox[i] << " has a wrong chunk " << chunk);
  }
  void check(const Set& sandbox) const {
    auto own = this->own(sandbox);
    auto arithmetic = virtual_part(sandbox);
    execute_in_steps(pruned(sandbox), own, arithmetic);
    check(sandbox, own);
  }
  static std::string text(const Set& sandbox) {
    std::string all;
    for (const int member : sandbox) all += (all.empty() ? "" : " ") + std::to_string(member);
    return all;
  }
  Collective collective;
  int chunks;
  Numbers inputs, outputs;
  std::vector<std::uint64_t> sums;
};

// Every set of up to `most` of the members, each with those before it.
template <typename Each>
int for_every_set(int members, std::size_t most, Each&& each) {
  Set set;
  int count = 0;
  const auto add = [&](const auto& self, int from) -> void {
    for (int member = from; member < members; ++member) {
      set.push_back(member);
      ++count;
      each(set);
      if (set.size() < most) self(self, member + 1);
      set.pop_back();
    }
  };
  add(add, 0);
  return count;
}

// `count` different members, ascending.
inline Set random_set(Random& random, int members, int count) {
  Set set;
  while (static_cast<int>(set.size()) < count) {
    const int member = random.below(members);
    if (std::find(set.begin(), set.end(), member) == set.end()) set.push_back(member);
  }
  std::sort(set.begin(), set.end());
  return set;
}

// All that can be pruned.
struct Algorithm {
  Op op;
  const char* name;
};
inline const std::vector<Algorithm> kAlgorithms = {{Op::kAllReduce, "ring"},
                                                   {Op::kReduceScatter, "ring"},
                                                   {Op::kAllGather, "ring"},
                                                   {Op::kBroadcast, "ring"},
                                                   {Op::kReduce, "ring"},
                                                   {Op::kAllReduce, "segmented_ring"},
                                                   {Op::kAllGather, "segmented_ring"},
                                                   {Op::kAllReduce, "tree"},
                                                   {Op::kBroadcast, "tree"},
                                                   {Op::kReduce, "tree"},
                                                   {Op::kAllReduce, "halving_doubling"},
                                                   {Op::kAllReduce, "recursive_doubling"}};

}  // namespace prism::test
