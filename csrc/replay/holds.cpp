#include "replay/holds.hpp"

#include <algorithm>
#include <compare>
#include <utility>

namespace prism::engine {

Holds::Holds(const Job& job, const Execution& execution)
    : job_(job),
      execution_(execution),
      arrival_ns_(job.entries, INT64_MIN),
      freed_by_(job.entries, kNone),
      partner_(job.entries, kNone),
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
  pair_messages();
}

// Collectives of a group are taken up first in, first out, by as many workers as the progress model has.
void Holds::take_up(int rank) {
  const RankPlan& plan = job_.ranks[rank];
  const ClassView& view = job_.view(rank);
  const auto& timeline = execution_.timelines[rank];
  const auto& transfers = job_.plan(rank).transfer_of_comm;
  const auto issued = [&](std::uint32_t comm) { return timeline.start_ns[transfers[comm]]; };
  std::vector<std::uint32_t> order;
  for (std::uint32_t comm = 0; comm < transfers.size(); ++comm)
    if (transfers[comm] != kNone) order.push_back(comm);
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
    arrival_ns_[entry] = issued(comm);
    if (is_point_to_point(static_cast<Op>(view.comm_op[comm]))) continue;
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(view.comm_group[comm] * workers);
    const auto worker = std::min_element(first, first + static_cast<std::ptrdiff_t>(workers),
                                         [](const Worker& a, const Worker& b) { return a.free_ns < b.free_ns; });
    if (worker->free_ns > arrival_ns_[entry]) {
      arrival_ns_[entry] = worker->free_ns;
      freed_by_[entry] = worker->entry;
    }
    *worker = {issued(comm) + timeline.duration_ns[transfers[comm]], entry};
  }
}

// Both ends of a message start at once; several that do so in one mailbox met in the order of their posting.
void Holds::pair_messages() {
  struct Post {
    std::uint32_t mailbox;
    std::int64_t start_ns;
    bool receives, from_any;
    std::int64_t posted_ns;
    std::uint32_t entry;
    std::strong_ordering operator<=>(const Post&) const = default;
  };
  std::vector<Post> posts;
  for (std::uint32_t entry = 0; entry < job_.entries; ++entry)
    if (arrival_ns_[entry] != INT64_MIN && is_point_to_point(job_.op(entry)))
      posts.push_back({job_.meets[entry], execution_.transfer_start_ns[entry], job_.op(entry) == Op::kRecv,
                       job_.peer(entry) < 0, arrival_ns_[entry], entry});
  std::sort(posts.begin(), posts.end());
  for (std::size_t begin = 0, end = 0; begin < posts.size(); begin = end) {
    const auto together = [&](const Post& post) {
      return post.mailbox == posts[begin].mailbox && post.start_ns == posts[begin].start_ns;
    };
    while (end < posts.size() && together(posts[end])) ++end;
    for (auto r = begin; r < end; ++r) {  // receives stand behind all sends
      if (!posts[r].receives) continue;
      const auto receive = posts[r].entry;
      const int source = job_.peer(receive);
      for (auto s = begin; s < r && !posts[s].receives; ++s) {
        const auto send = posts[s].entry;
        if (partner_[send] != kNone || (source >= 0 && job_.entry_rank[send] != source)) continue;
        partner_[send] = receive;
        partner_[receive] = send;
        break;
      }
    }
  }
}

std::uint32_t Holds::holder(std::uint32_t entry) const {
  std::uint32_t best = entry;
  // What came after this part had started (by other algorithms than the rule's) did not hold it.
  const auto consider = [&](std::uint32_t other) {
    if (is_entry(other) && arrival_ns_[other] > arrival_ns_[best] &&
        arrival_ns_[other] <= execution_.transfer_start_ns[entry])
      best = other;
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
  for (auto v = own; v != 0;) consider(job_.entry_at(collective, v = tree.parent(v)));
  tree.children(own, [&](std::uint32_t child) { consider(job_.entry_at(collective, child)); });
  return best;
}

}  // namespace prism::engine
