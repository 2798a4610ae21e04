// What members put into a collective, and what they have to get: one whole number a chunk, sums modulo 2^64.
#pragma once
#include <cstdint>
#include <vector>

#include "simulate/schedule.hpp"

namespace prism::test {

using Numbers = std::vector<std::vector<std::uint64_t>>;  // [member][chunk]

// splitmix64
struct Random {
  std::uint64_t state;
  std::uint64_t operator()() {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  int below(int limit) { return static_cast<int>((*this)() % static_cast<std::uint64_t>(limit)); }
};

struct Collective {
  simulate::CollectiveShape shape;
  const char* algorithm;
  bool reduces() const { return is_reduction(shape.op); }
  // Whether the member has a right to the chunk in the end. Chunks of a reduce_scatter are as many for each member.
  bool gets(int member, int chunk, int chunks) const {
    if (shape.op == Op::kReduce) return member == shape.root;
    if (shape.op == Op::kReduceScatter) return member == chunk / (chunks / shape.members);
    return true;
  }
  // Whose the chunk is where nothing is reduced.
  int owner(int chunk, int chunks) const {
    return shape.op == Op::kBroadcast ? shape.root : chunk / (chunks / shape.members);
  }
};

// What nobody put in is numbers, too, that must not be seen again.
inline Numbers random_numbers(int members, int chunks, std::uint64_t seed) {
  Random random{seed};
  Numbers numbers(static_cast<std::size_t>(members), std::vector<std::uint64_t>(static_cast<std::size_t>(chunks)));
  for (auto& of_member : numbers)
    for (auto& number : of_member) number = random();
  return numbers;
}

// By chunk.
inline std::vector<std::uint64_t> results(const Collective& collective, const Numbers& inputs) {
  std::vector<std::uint64_t> all(inputs.front().size(), 0);
  const int chunks = static_cast<int>(all.size());
  for (int chunk = 0; chunk < chunks; ++chunk)
    if (!collective.reduces())
      all[chunk] = inputs[collective.owner(chunk, chunks)][chunk];
    else
      for (const auto& of_member : inputs) all[chunk] += of_member[chunk];
  return all;
}

}  // namespace prism::test
