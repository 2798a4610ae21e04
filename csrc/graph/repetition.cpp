#include "graph/repetition.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace prism {
namespace {

using Tokens = std::vector<std::uint32_t>;

// z[i] = length of the longest common prefix of x and x[i..).
std::vector<std::size_t> z_function(const Tokens& x) {
  std::vector<std::size_t> z(x.size(), 0);
  for (std::size_t i = 1, left = 0, right = 0; i < x.size(); ++i) {
    if (i < right) z[i] = std::min(right - i, z[i - left]);
    while (i + z[i] < x.size() && x[z[i]] == x[i + z[i]]) ++z[i];
    if (i + z[i] > right) left = i, right = i + z[i];
  }
  return z;
}

class Search {
 public:
  Search(std::span<const std::uint32_t> tokens, std::span<const std::int64_t> weights)
      : tokens_(tokens), before_(tokens.size() + 1, 0) {
    std::partial_sum(weights.begin(), weights.end(), before_.begin() + 1);
  }

  void search(std::size_t begin, std::size_t end) {
    if (end - begin < 2) return;
    const auto middle = begin + (end - begin) / 2;
    // A repetition over the middle holds a whole period on its right or on its left side.
    crossing(begin, middle, end, false);
    crossing(begin, middle, end, true);
    for (const auto& [from, to] : {std::pair(begin, middle), std::pair(middle, end)})
      if (!best || weight(from, to) > best->weight) search(from, to);
  }

  std::optional<Repetition> best;

 private:
  std::int64_t weight(std::size_t begin, std::size_t end) const { return before_[end] - before_[begin]; }

  // Repetitions within [begin, end) that contain [middle, middle + period); mirrored: [middle - period, middle).
  void crossing(std::size_t begin, std::size_t middle, std::size_t end, bool mirrored) {
    Tokens before(tokens_.begin() + begin, tokens_.begin() + middle);
    Tokens after(tokens_.begin() + middle, tokens_.begin() + end);
    if (mirrored) {
      std::swap(before, after);
      std::ranges::reverse(before);
      std::ranges::reverse(after);
    }
    const auto right = z_function(after);
    // left[period] = how far x[middle - 1 - j] == x[middle + period - 1 - j] holds: prefixes of the reversed `before`
    // found in the reversed whole. A token that occurs nowhere parts the two.
    Tokens joined(before.rbegin(), before.rend());
    joined.push_back(0xffffffffu);
    joined.insert(joined.end(), after.rbegin(), after.rend());
    joined.insert(joined.end(), before.rbegin(), before.rend());
    const auto left = z_function(joined);
    for (std::size_t period = 1; period <= after.size(); ++period) {
      const auto to_right = period < after.size() ? right[period] : 0;
      const auto to_left = left[before.size() + 1 + after.size() - period];
      if (to_left + to_right < period) continue;
      Repetition found{middle - to_left, middle + period + to_right, period, 0};
      if (mirrored) found = {middle - period - to_right, middle + to_left, period, 0};
      found.weight = weight(found.begin, found.end);
      if (!best || found.weight > best->weight || (found.weight == best->weight && period < best->period)) best = found;
    }
  }

  std::span<const std::uint32_t> tokens_;
  std::vector<std::int64_t> before_;
};

}  // namespace

std::optional<Repetition> heaviest_repetition(std::span<const std::uint32_t> tokens,
                                              std::span<const std::int64_t> weights) {
  Search search(tokens, weights);
  search.search(0, tokens.size());
  return search.best;
}

}  // namespace prism
