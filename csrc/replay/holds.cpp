#include "replay/holds.hpp"

#include <algorithm>
#include <utility>

#include "replay/pairing.hpp"

namespace prism::engine {

Holds::Holds(const Job& job, const Execution& execution)
    : job_(job),
      execution_(execution),
      arrival_ns_(job.entries, INT64_MIN),
      freed_by_(job.entries, kNone),
      last_(job.collectives.size(), kNone) {
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank)
    if (job.ranks[rank].cls >= 0) take_up(static_cast<int>(rank));
  for (std::size_t c = 0; c < job.collectives.size(); ++c) {
    const Collective& collective = job.collectives[c];
    for (std::uint32_t m = 0; m < collective.size; ++m) {
      const auto entry = job.member_entry[collective.member_base + m];
      if (!is_entry(entry)) continue;
      const auto later = [&](std::uint32_t other) {
        return std::pair(arrival_ns_[entry], -job.entry_rank[entry]) >
               std::pair(arrival_ns_[other], -job.entry_rank[other]);
      };
      if (last_[c] == kNone || later(last_[c])) last_[c] = entry;
    }
  }
  // Messages meet in the order in which they were posted.
  partner_ = message_partners(job, arrival_ns_);
}

// Collectives of a group are taken up first in, first out, by as many workers as the progress model has. One that
// somebody never joins keeps its worker for ever.
void Holds::take_up(int rank) {
  const RankPlan& plan = job_.ranks[rank];
  const ClassView& view = job_.view(rank);
  const auto& timeline = execution_.timelines[rank];
  const auto& transfers = job_.plan(rank).transfer_of_comm;
  const auto issued = [&](std::uint32_t comm) { return timeline.start_ns[transfers[comm]]; };
  std::vector<std::uint32_t> order;
  for (std::uint32_t comm = 0; comm < transfers.size(); ++comm)
    if (transfers[comm] != kNone && issued(comm) != INT64_MIN) order.push_back(comm);
  const auto earlier = [&](std::uint32_t a, std::uint32_t b) { return issued(a) < issued(b); };
  if (!std::is_sorted(order.begin(), order.end(), earlier)) std::stable_sort(order.begin(), order.end(), earlier);
  struct Worker {
    std::int64_t free_ns = INT64_MIN;
    std::uint32_t entry = kNone;
  };
  const auto workers = static_cast<std::size_t>(job_.model.workers);
  std::vector<Worker> all(job_.plan(rank).queues * workers);
  for (const auto comm : order) {
    const auto entry = plan.entry_base + comm;
    if (is_point_to_point(static_cast<Op>(view.comm_op[comm]))) {
      arrival_ns_[entry] = issued(comm);
      continue;
    }
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(view.comm_group[comm] * workers);
    const auto worker = std::min_element(first, first + static_cast<std::ptrdiff_t>(workers),
                                         [](const Worker& a, const Worker& b) { return a.free_ns < b.free_ns; });
    if (worker->free_ns == INT64_MAX) continue;
    arrival_ns_[entry] = std::max(issued(comm), worker->free_ns);
    if (worker->free_ns > issued(comm)) freed_by_[entry] = worker->entry;
    const bool ends = timeline.duration_ns[transfers[comm]] >= 0;
    *worker = {ends ? timeline.end_ns(transfers[comm]) : INT64_MAX, entry};
  }
}

std::uint32_t Holds::holder(std::uint32_t entry) const {
  std::uint32_t best = entry;
  const auto consider = [&](std::uint32_t other) {
    if (is_entry(other) && arrival_ns_[other] > arrival_ns_[best]) best = other;
  };
  if (is_point_to_point(job_.op(entry))) {
    consider(partner_[entry]);
    return best;
  }
  const Collective& collective = job_.collectives[job_.meets[entry]];
  const StartRule rule = job_.model.rule(collective.op);
  if (rule == StartRule::kLastMember) {
    consider(last_[job_.meets[entry]]);
    return best;
  }
  const Tree tree{rule, collective.size};
  const auto own =
      (job_.entry_member[entry] + collective.size - static_cast<std::uint32_t>(collective.root)) % collective.size;
  // By another algorithm than the rule's tree a part may have ended before somebody came.
  const auto end_ns = execution_.timelines[job_.entry_rank[entry]].end_ns(job_.transfer_node(entry));
  const auto consider_in_time = [&](std::uint32_t v) {
    const auto other = job_.entry_at(collective, v);
    if (is_entry(other) && arrival_ns_[other] <= end_ns) consider(other);
  };
  for (auto v = own; v != 0;) consider_in_time(v = tree.parent(v));
  tree.children(own, consider_in_time);
  return best;
}

}  // namespace prism::engine
