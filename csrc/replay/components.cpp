#include "replay/components.hpp"

#include <algorithm>
#include <unordered_map>

#include "replay/joined.hpp"

namespace prism::engine {
namespace {

constexpr std::size_t kEnoughRanks = 512;  // in a part

void join_by_communication(const Job& job, Joined& joined) {
  std::vector<bool> whole(job.graph->group_count());
  for (const auto& collective : job.collectives) whole[collective.group] = true;
  for (std::uint32_t entry = 0; entry < job.entries; ++entry) {
    if (!is_point_to_point(job.op(entry))) continue;
    const int rank = job.entry_rank[entry], peer = job.peer(entry);
    if (peer >= 0)
      joined.join(rank, peer);
    else
      whole[job.graph->group_of_slot(rank, job.view(rank).comm_group[job.comm_of(entry)])] = true;
  }
  for (std::uint32_t group = 0; group < whole.size(); ++group)
    if (whole[group]) joined.join_all(job.graph->group_members(group));
}

void join_by_network(const NetworkOptions& options, Joined& joined, int world_size) {
  const auto& spec = options.topology->spec();
  std::vector<bool> is_endpoint(static_cast<std::size_t>(spec.vertices));
  for (const auto vertex : spec.endpoint) is_endpoint[vertex] = true;
  // No way leads through another's endpoint, so that a link of an endpoint is its own. Links between switches may be
  // anybody's: their use is counted in the order of time.
  const bool common_links = std::any_of(spec.links.begin(), spec.links.end(), [&](const auto& link) {
    return !is_endpoint[link.from] && !is_endpoint[link.to];
  });
  std::unordered_map<int, int> at_vertex, on_host;
  for (int rank = 0; rank < world_size; ++rank) {
    const int endpoint = options.placement.empty() ? rank : options.placement[rank];
    joined.join(rank, at_vertex.try_emplace(spec.endpoint[endpoint], rank).first->second);
    if (!spec.host.empty()) joined.join(rank, on_host.try_emplace(spec.host[endpoint], rank).first->second);
    if (common_links) joined.join(rank, 0);
  }
}

}  // namespace

std::vector<std::vector<int>> independent_parts(const Job& job, const NetworkOptions* network) {
  const int world_size = job.graph->world_size();
  Joined joined(static_cast<std::size_t>(world_size));
  join_by_communication(job, joined);
  if (network) join_by_network(*network, joined, world_size);
  // Flows are listed in the order in which they leave; packets of all ranks are in one process.
  if (network && (network->flows || network->kind == simulate::NetworkKind::kPacketLevel)) {
    for (int rank = 1; rank < world_size; ++rank) joined.join(rank, 0);
  }
  std::vector<std::vector<int>> component(static_cast<std::size_t>(world_size)), parts;
  for (int rank = 0; rank < world_size; ++rank)
    if (job.ranks[rank].cls >= 0) component[joined.first(rank)].push_back(rank);
  for (auto& ranks : component) {
    if (ranks.empty()) continue;
    if (parts.empty() || parts.back().size() >= kEnoughRanks) parts.emplace_back();
    parts.back().insert(parts.back().end(), ranks.begin(), ranks.end());
  }
  for (auto& ranks : parts) std::sort(ranks.begin(), ranks.end());
  return parts;
}

}  // namespace prism::engine
