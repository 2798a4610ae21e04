// Numbers that depend on what they are for alone: draws need no state that threads or orders of events would share.
#pragma once
#include <cstddef>
#include <cstdint>

namespace prism::engine {

// The finalizer of splitmix64 (Steele, Lea, Flood 2014).
inline std::uint64_t mixed(std::uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// For one iteration of a rank in one sampled execution.
inline std::uint64_t drawn(std::uint64_t seed, int sample, int rank, std::size_t iteration) {
  const auto where = mixed(mixed(seed) ^ static_cast<std::uint64_t>(sample));
  return mixed(mixed(where ^ static_cast<std::uint64_t>(rank)) ^ iteration);
}

}  // namespace prism::engine
