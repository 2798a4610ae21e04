#include "replay/pairing.hpp"

#include <algorithm>
#include <utility>

#include "replay/mailbox.hpp"

namespace prism::engine {

std::vector<std::uint32_t> message_partners(const Job& job, const std::vector<std::int64_t>& posted_at) {
  std::vector<std::pair<std::int64_t, std::uint32_t>> posts;  // when, entry
  for (std::uint32_t entry = 0; entry < job.entries; ++entry)
    if (posted_at[entry] != kNotPosted && is_point_to_point(job.op(entry))) posts.emplace_back(posted_at[entry], entry);
  std::sort(posts.begin(), posts.end());
  std::vector<std::uint32_t> partner(job.entries, kNone);
  std::vector<Mailbox> mailboxes(job.mailboxes);
  for (const auto& [at, entry] : posts) {
    const bool sends = job.op(entry) == Op::kSend;
    const Message message{entry, sends ? job.entry_rank[entry] : job.peer(entry)};
    auto& mailbox = mailboxes[job.meets[entry]];
    const auto other = sends ? mailbox.post_send(message) : mailbox.post_receive(message);
    if (!other) continue;
    partner[entry] = other->entry;
    partner[other->entry] = entry;
  }
  return partner;
}

std::vector<std::int64_t> recorded_postings(const Job& job) {
  const bool by_time = job.graph->timed() && job.provenance.one_clock;
  std::vector<std::int64_t> at(job.entries, kNotPosted);
  for (std::uint32_t entry = 0; entry < job.entries; ++entry) {
    const auto node = job.transfer_node(entry);
    const int rank = job.entry_rank[entry];
    if (node != kNone)
      at[entry] = by_time ? job.timing(rank).start_ns[node] : job.view(rank).comm_seq[job.comm_of(entry)];
  }
  return at;
}

}  // namespace prism::engine
