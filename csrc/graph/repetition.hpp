// The heaviest repetition in a sequence: where x[i] == x[i + period] holds over at least two periods.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

namespace prism {

struct Repetition {
  std::size_t begin = 0, end = 0, period = 0;  // maximal [begin, end), end - begin >= 2 * period
  std::int64_t weight = 0;                     // of its tokens
};

// Of all maximal repetitions the one whose tokens weigh most; the shortest period among equals. Nothing if no part of
// the sequence repeats. Divide and conquer after Main and Lorentz (1984): O(n log n), O(n) where one repetition
// outweighs both halves.
std::optional<Repetition> heaviest_repetition(std::span<const std::uint32_t> tokens,
                                              std::span<const std::int64_t> weights);

}  // namespace prism
