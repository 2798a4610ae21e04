#include "replay/edit_transfers.hpp"

#include <fmt/format.h>

#include <cmath>

#include "replay/matching.hpp"
#include "replay/pairing.hpp"

namespace prism::engine {
namespace {

// Entries of the communications in which somebody that matches takes part: all of a collective, both ends of a message.
std::vector<std::uint32_t> matched(const Job& job, const std::vector<std::uint32_t>& partner,
                                   const CommunicationEdit& edit) {
  const ExecutionGraph& graph = *job.graph;
  std::vector<bool> chosen(job.entries), whole(job.collectives.size());
  for (std::uint32_t entry = 0; entry < job.entries; ++entry) {
    const int rank = job.entry_rank[entry];
    const auto node = job.transfer_node(entry);
    if (node == kNone || !matches_communication(edit, graph, rank, job.comm_of(entry))) continue;
    if (edit.iteration && iteration_of(job.view(rank), job.timing(rank), node) != *edit.iteration) continue;
    const bool message = is_point_to_point(job.op(entry));
    const auto other = message ? partner[entry] : kNone;
    const int peer = !message ? -1 : other != kNone ? job.entry_rank[other] : job.peer(entry);
    if (!matches(edit.ranks, edit.cls, graph, rank) && (peer < 0 || !matches(edit.ranks, edit.cls, graph, peer)))
      continue;
    if (!message) {
      whole[job.meets[entry]] = true;
      continue;
    }
    chosen[entry] = true;
    if (other != kNone) chosen[other] = true;
  }
  for (std::size_t c = 0; c < whole.size(); ++c) {
    const Collective& collective = job.collectives[c];
    for (std::uint32_t m = 0; whole[c] && m < collective.size; ++m)
      if (const auto entry = job.member_entry[collective.member_base + m]; is_entry(entry)) chosen[entry] = true;
  }
  std::vector<std::uint32_t> entries;
  for (std::uint32_t entry = 0; entry < job.entries; ++entry)
    if (chosen[entry]) entries.push_back(entry);
  return entries;
}

}  // namespace

Result<void> edit_transfers(const Job& job, const std::vector<CommunicationEdit>& edits, ServiceTimes& service) {
  if (edits.empty()) return {};
  const auto partner = message_partners(job, recorded_postings(job));
  for (std::size_t e = 0; e < edits.size(); ++e) {
    const CommunicationEdit& edit = edits[e];
    const auto bad = [&](std::string_view what) {
      return Error{ErrorCode::kInvalidInput,
                   fmt::format("communication {} ({}): {}", e, describe_communication(edit), what)};
    };
    if (!std::isfinite(edit.scale) || edit.scale < 0) return bad("scale must be a number >= 0");
    const auto entries = matched(job, partner, edit);
    if (entries.empty()) return bad("matches no communication of the graph");
    for (const auto entry : entries) {
      auto& duration = service.duration_ns[entry];
      duration = edited(duration, edit.scale, edit.add_ns, edit.set_ns);
      if (duration < 0) return bad("the edited transfer is longer than 2^63 ns");
    }
  }
  return {};
}

}  // namespace prism::engine
