#include "backend/coordinator/selection.hpp"

#include <algorithm>

#include "backend/coordinator/rules.hpp"

namespace prism {

using rules::Family;

Selection::Selection(int world_size, const std::optional<std::vector<std::int32_t>>& for_ranks)
    : everything_(!for_ranks), sandbox_(static_cast<std::size_t>(world_size)) {
  if (for_ranks)
    for (const auto rank : *for_ranks) sandbox_[static_cast<std::size_t>(rank)] = true;
}

bool Selection::is_mixed(const Exchange& exchange) const {
  std::size_t real = 0;
  for (const Arrival& arrival : exchange.arrivals) real += in_sandbox(arrival.rank) ? 1 : 0;
  return real > 0 && real < exchange.arrivals.size();
}

// Of a mixed operation that moves: whether the input number `index` of a virtual member goes to a sandbox rank.
bool Selection::reaches_sandbox(const Exchange& exchange, std::size_t index) const {
  const Operation& o = exchange.operation();
  switch (rules::family(o.op)) {
    case Family::kAllGather:
    case Family::kBroadcast:  // the one who has inputs is the root
      return true;
    case Family::kGather:
      return in_sandbox(exchange.arrivals[static_cast<std::size_t>(o.root)].rank);
    case Family::kScatter:
    case Family::kAllToAll:
      return in_sandbox(exchange.arrivals[index].rank);
    case Family::kNone:
      return !exchange.collective;  // from one of the two to the other
    default:
      return false;  // of reductions: the virtual part
  }
}

std::vector<Selection::Input> Selection::inputs(const Exchange& exchange) const {
  std::vector<Input> chosen;
  const bool mixed = !everything_ && is_mixed(exchange);
  for (std::size_t a = 0; a < exchange.arrivals.size(); ++a) {
    const Arrival& arrival = exchange.arrivals[a];
    const bool sends = everything_ || in_sandbox(arrival.rank);
    if (!sends && !mixed) continue;
    for (std::uint32_t i = 0; i < arrival.operation.inputs.size(); ++i)
      if (sends || reaches_sandbox(exchange, i)) chosen.push_back({a, i, everything_ || !sends});
  }
  return chosen;
}

std::vector<std::uint32_t> Selection::parts(const Exchange& exchange) const {
  std::vector<std::uint32_t> chosen;
  const Operation& o = exchange.operation();
  if (everything_ || !is_reduction(o.op) || !is_mixed(exchange)) return chosen;
  const Family family = rules::family(o.op);
  for (std::uint32_t i = 0; i < o.inputs.size(); ++i) {
    std::size_t receiver = i;
    if (family == Family::kReduce) receiver = static_cast<std::size_t>(o.root);
    if (family == Family::kReduceScatter) receiver = i / o.output_bytes.size();
    if (family == Family::kAllReduce || in_sandbox(exchange.arrivals[receiver].rank)) chosen.push_back(i);
  }
  return chosen;
}

std::vector<std::uint8_t> Selection::virtual_members(const Exchange& exchange) const {
  std::vector<std::uint8_t> members;
  for (const Arrival& arrival : exchange.arrivals) members.push_back(in_sandbox(arrival.rank) ? 0 : 1);
  return members;
}

}  // namespace prism
