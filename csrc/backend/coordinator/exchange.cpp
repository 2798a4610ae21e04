#include "backend/coordinator/exchange.hpp"

#include <fmt/format.h>

namespace prism {

std::string Exchange::describe() const {
  const Arrival& arrival = arrivals[static_cast<std::size_t>(first)];
  const Operation& op = arrival.operation;
  if (collective) return fmt::format("{} #{} of group '{}'", name(op.op), seq, group->key);
  const std::string peer =
      op.peer < 0 ? "any rank" : fmt::format("rank {}", group->members[static_cast<std::size_t>(op.peer)]);
  return fmt::format("{} {} {}, tag {}, of group '{}'", name(op.op), op.op == Op::kSend ? "to" : "from", peer, op.tag,
                     group->key);
}

std::vector<int> Exchange::missing() const {
  std::vector<int> ranks;
  if (!collective) {
    const Operation& op = operation();
    if (!complete() && op.peer >= 0) ranks.push_back(group->members[static_cast<std::size_t>(op.peer)]);
    return ranks;
  }
  for (std::size_t i = 0; i < arrivals.size(); ++i)
    if (arrivals[i].work == 0) ranks.push_back(group->members[i]);
  return ranks;
}

}  // namespace prism
