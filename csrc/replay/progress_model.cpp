#include "replay/progress_model.hpp"

#include <algorithm>

namespace prism::engine {

// Gloo as measured with four ranks of which one came 0.2 s late: all-to-all, all-reduce, all-gather, reduce-scatter,
// barrier and (its algorithm is a ring) reduce held everybody; gather and scatter held the late rank and the root;
// broadcast held the late rank, its parent and what lies behind it in the tree. NCCL's other kernels may let members
// leave early within a buffer credit that nobody has measured here, so that they follow the last member. A send of 1 MB
// over 400 Mb/s ended 0.2 ms after the receive was posted, which took 20.8 ms; one of 4 MB 15.2 ms before its receive.
StartRule ProgressModel::rule(Op op) const {
  if (name != "gloo") return StartRule::kLastMember;
  switch (op) {
    case Op::kBroadcast:
      return StartRule::kTree;
    case Op::kGather:
    case Op::kScatter:
      return StartRule::kStar;
    default:
      return StartRule::kLastMember;
  }
}

ProgressModel progress_model(std::string_view name) {
  if (name == "gloo")
    return {.name = "gloo", .workers = 2, .tags = true, .send_buffer_bytes = 1 << 20, .copies_gathered = true};
  if (name == "nccl") return {.name = "nccl", .workers = 1, .tags = false};
  return {.name = "conservative", .workers = 1, .tags = true};
}

std::vector<std::int64_t> start_times(StartRule rule, const std::vector<std::int64_t>& taken) {
  const auto size = static_cast<std::uint32_t>(taken.size());
  std::vector<std::int64_t> start = taken;
  if (rule == StartRule::kLastMember) {
    std::fill(start.begin(), start.end(), *std::max_element(taken.begin(), taken.end()));
    return start;
  }
  const Tree tree{rule, size};
  std::vector<std::int64_t> has_data = taken;  // parents come before their children
  for (std::uint32_t v = 1; v < size; ++v) has_data[v] = std::max(has_data[v], has_data[tree.parent(v)]);
  for (std::uint32_t v = 0; v < size; ++v) {
    start[v] = has_data[v];
    tree.children(v, [&](std::uint32_t child) { start[v] = std::max(start[v], taken[child]); });
  }
  return start;
}

}  // namespace prism::engine
