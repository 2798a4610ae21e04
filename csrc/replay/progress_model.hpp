// How communication progresses on a real backend: in which order one member's operations are taken up, and when each
// member's part can start. Pure functions.
#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary.hpp"

namespace prism::engine {

enum class StartRule {
  kLastMember,  // every member starts when the last one has come
  kStar,        // the root exchanges with every member: it needs all of them, they need the root
  kTree,        // binomial tree from the root: a member needs its ancestors and its children
};

struct ProgressModel {
  std::string name;
  // Collectives of one group on one member are taken up first in, first out by so many workers.
  int workers = 1;
  bool tags = true;  // whether messages are told apart by tag
  // A send of at most so many bytes ends as soon as its receiver is there: the rest is the system's.
  std::int64_t send_buffer_bytes = 0;
  bool copies_gathered = false;  // what an all_gather brings together, from a buffer of its own
  StartRule rule(Op op) const;
};

// The model of that name; unknown names get the conservative one (its `name` differs from what was asked for).
ProgressModel progress_model(std::string_view name);

// Members of a tree are numbered from the root (0). The parent of v > 0 is v without its highest bit; its children are
// v + 2^i for every 2^i > v.
struct Tree {
  StartRule rule;
  std::uint32_t size;
  std::uint32_t parent(std::uint32_t v) const { return rule == StartRule::kStar ? 0 : v ^ std::bit_floor(v); }
  template <typename Visit>
  void children(std::uint32_t v, Visit&& visit) const {
    if (rule == StartRule::kStar) {
      for (std::uint32_t child = 1; v == 0 && child < size; ++child) visit(child);
    } else {
      for (std::uint64_t bit = v == 0 ? 1 : 2 * std::uint64_t{std::bit_floor(v)}; v + bit < size; bit *= 2)
        visit(static_cast<std::uint32_t>(v + bit));
    }
  }
};

// When the part of each member v, counted from the root, can start, from when each was taken up (INT64_MIN: it is not
// recorded and comes in time).
std::vector<std::int64_t> start_times(StartRule rule, const std::vector<std::int64_t>& taken_up);

}  // namespace prism::engine
