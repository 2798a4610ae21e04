#include "replay/service_times.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "replay/mailbox.hpp"

namespace prism::engine {
namespace {

constexpr std::int64_t kUnknown = INT64_MIN;

// When a worker took up each entry, by the record.
std::vector<std::int64_t> taken_up(const Job& job) {
  std::vector<std::int64_t> at(job.entries, kUnknown);
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const RankPlan& plan = job.ranks[rank];
    if (plan.cls < 0) continue;
    const ClassView& view = job.view(static_cast<int>(rank));
    TimingView timing = job.timing(static_cast<int>(rank));
    std::size_t workers = static_cast<std::size_t>(job.model.workers);
    std::vector<std::int64_t> free(job.plan(static_cast<int>(rank)).queues * workers, INT64_MIN);
    for (std::uint32_t c = 0; c < view.comm_op.size(); ++c) {
      std::uint32_t transfer = job.plan(static_cast<int>(rank)).transfer_of_comm[c];
      if (transfer == kNone) continue;
      std::int64_t issued = timing.start_ns[transfer];
      at[plan.entry_base + c] = issued;
      if (is_point_to_point(static_cast<Op>(view.comm_op[c]))) continue;
      auto first = free.begin() + static_cast<std::ptrdiff_t>(view.comm_group[c] * workers);
      auto worker = std::min_element(first, first + static_cast<std::ptrdiff_t>(workers));
      std::int64_t end = issued + timing.duration_ns[transfer];
      // Never after its own end: the record shows that it had been taken up by then.
      at[plan.entry_base + c] = std::max(issued, std::min(*worker, end));
      *worker = std::max(*worker, end);
    }
  }
  return at;
}

std::int64_t recorded_end(const Job& job, std::uint32_t entry) {
  TimingView timing = job.timing(job.entry_rank[entry]);
  std::uint32_t node = job.transfer_node(entry);
  return timing.start_ns[node] + timing.duration_ns[node];
}

constexpr std::int64_t kNotHeldUpNs = 50'000;  // a wait for what is there already takes up to this

class Recorded {
 public:
  Recorded(const Job& job, bool same_clock) : job_(job), same_clock_(same_clock), taken_(taken_up(job)) {
    duration_.assign(job.entries, 0);
    end_.assign(job.entries, 0);
    for (std::uint32_t entry = 0; entry < job.entries; ++entry)
      if (taken_[entry] != kUnknown) end_[entry] = recorded_end(job, entry);
  }
  void run(ServiceTimes& times) {
    for (const Collective& collective : job_.collectives) add(collective);
    add_messages();
    times.duration_ns = std::move(duration_);
    times.recorded_end_ns = std::move(end_);
  }

 private:
  void add(const Collective& c) {
    std::vector<std::int64_t> taken(c.size, kUnknown);
    for (std::uint32_t v = 0; v < c.size; ++v)
      if (is_entry(job_.entry_at(c, v))) taken[v] = taken_[job_.entry_at(c, v)];
    std::vector<std::int64_t> start = start_times(job_.model.rule(c.op), taken);
    std::vector<std::uint32_t> entries;
    for (std::uint32_t v = 0; v < c.size; ++v) {
      std::uint32_t entry = job_.entry_at(c, v);
      if (!is_entry(entry) || taken[v] == kUnknown) continue;
      entries.push_back(entry);
      duration_[entry] = std::max<std::int64_t>(0, recorded_end(job_, entry) - start[v]);
    }
    if (!same_clock_) set_least(entries);
  }

  void set_least(const std::vector<std::uint32_t>& entries) {
    std::int64_t least = INT64_MAX;
    for (std::uint32_t entry : entries) least = std::min(least, recorded_end(job_, entry) - taken_[entry]);
    for (std::uint32_t entry : entries) duration_[entry] = std::max<std::int64_t>(0, least);
  }

  // Messages in the order in which the record has them, or, where clocks cannot be compared, in program order.
  void add_messages() {
    struct Post {
      std::int64_t at;
      std::uint32_t entry;
    };
    std::vector<Post> posts;
    for (std::uint32_t entry = 0; entry < job_.entries; ++entry)
      if (is_point_to_point(job_.op(entry)) && taken_[entry] != kUnknown)
        posts.push_back(
            {same_clock_ ? taken_[entry] : job_.view(job_.entry_rank[entry]).comm_seq[job_.comm_of(entry)], entry});
    std::sort(posts.begin(), posts.end(),
              [](const Post& a, const Post& b) { return a.at != b.at ? a.at < b.at : a.entry < b.entry; });
    std::vector<Mailbox> mailboxes(job_.mailboxes);
    for (const Post& post : posts) {
      Mailbox& box = mailboxes[job_.meets[post.entry]];
      bool sends = job_.op(post.entry) == Op::kSend;
      Message message{post.entry, sends ? job_.entry_rank[post.entry] : job_.peer(post.entry)};
      if (auto other = sends ? box.post_send(message) : box.post_receive(message)) {
        std::int64_t start = std::max(taken_[post.entry], taken_[other->entry]);
        std::int64_t end = message_end(post.entry, other->entry);
        end_[other->entry] = message_end(other->entry, post.entry);
        end_[post.entry] = end;
        for (std::uint32_t entry : {post.entry, other->entry})
          duration_[entry] = std::max<std::int64_t>(0, end_[entry] - start);
        if (!same_clock_) set_least({post.entry, other->entry});
      }
    }
    for (const Mailbox& box : mailboxes)  // their peers are not in the graph: what was recorded is all there is
      for (const auto* side : {&box.sends(), &box.receives()})
        for (const Message& m : *side) duration_[m.entry] = recorded_end(job_, m.entry) - taken_[m.entry];
  }

  // Gloo tells of a message's end only to who waits for it. Where a wait began after the other end was done and was not
  // held up, its own end says when it was looked at, and the other end's is closer to the truth. One that was held up
  // saw the end: a send may be done long before its receive.
  std::int64_t message_end(std::uint32_t entry, std::uint32_t other) const {
    if (!same_clock_) return recorded_end(job_, entry);
    std::int64_t end = recorded_end(job_, entry), other_end = recorded_end(job_, other);
    int rank = job_.entry_rank[entry];
    for (std::uint32_t target : job_.plan(rank).out[job_.transfer_node(entry)]) {
      std::int64_t looked = job_.timing(rank).start_ns[target];
      if (static_cast<NodeKind>(job_.view(rank).node_kind[target]) == NodeKind::kWait && looked <= end &&
          looked > other_end && end - looked <= kNotHeldUpNs)
        return other_end;
    }
    return end;
  }

  const Job& job_;
  const bool same_clock_;
  const std::vector<std::int64_t> taken_;
  std::vector<std::int64_t> duration_, end_;  // [entries]
};

// k members, c bytes in or out of one member (the larger), latency a, rate B; rings for what all members share:
//   all_reduce 2 (k-1) (a + c/(kB));  reduce_scatter, all_gather, all_to_all (k-1) (a + c/(kB))
//   broadcast ceil(log2 k) (a + c/B);  reduce (k-1) (a + c/(kB)) twice;  gather, scatter a + (k-1)/k c/B
//   barrier 2 ceil(log2 k) a;  a message a + c/B
// On Gloo a reduce_scatter_tensor moves what an all_reduce moves.
double closed_form_ns(const Job& job, std::uint32_t entry, const ClosedFormLinks& links) {
  const ClassView& view = job.view(job.entry_rank[entry]);
  std::uint32_t c = job.comm_of(entry);
  double k = static_cast<double>(
      job.graph->group_members(job.graph->group_of_slot(job.entry_rank[entry], view.comm_group[c])).size());
  double bytes = static_cast<double>(std::max(view.comm_input_bytes[c], view.comm_output_bytes[c]));
  double a = static_cast<double>(links.latency_ns), per_byte = 1e9 / links.bytes_per_second;
  double ring = (k - 1) * (a + bytes / k * per_byte), depth = std::ceil(std::log2(k));
  switch (static_cast<Op>(view.comm_op[c])) {
    case Op::kAllReduce:
    case Op::kAllReduceCoalesced:
    case Op::kReduce:
      return 2 * ring;
    case Op::kReduceScatter:
    case Op::kReduceScatterTensor:
    case Op::kReduceScatterTensorCoalesced:
      return job.model.name == "gloo" ? 2 * ring : ring;
    case Op::kBroadcast:
      return depth * (a + bytes * per_byte);
    case Op::kGather:
    case Op::kScatter:
      return a + (k - 1) / k * bytes * per_byte;
    case Op::kBarrier:
      return 2 * depth * a;
    case Op::kSend:
    case Op::kRecv:
      return a + bytes * per_byte;
    default:
      return ring;
  }
}

}  // namespace

bool one_clock(const ExecutionGraph& graph) {
  auto metadata = nlohmann::json::parse(graph.metadata_json(), nullptr, /*allow_exceptions=*/false);
  if (!metadata.is_object() || !metadata.contains("clock_domain")) return false;
  const auto& domain = metadata["clock_domain"];
  if (!domain.is_array()) return domain.is_string();
  return std::all_of(domain.begin(), domain.end(), [&](const auto& d) { return d == domain.front(); });
}

WakeUps::WakeUps(const Job& job, const std::vector<std::int64_t>& recorded_end_ns) : first_(job.ranks.size(), kNone) {
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const auto& own = job.ranks[rank];
    if (own.cls < 0) continue;
    const auto& view = job.views[own.cls];
    const auto timing = job.timings[rank];
    const auto first = ns_.size();
    bool any = false;
    for (std::uint32_t node = 0; node < view.node_kind.size(); ++node) {
      if (static_cast<NodeKind>(view.node_kind[node]) != NodeKind::kWait) continue;
      std::int64_t last = timing.start_ns[node];
      for (const auto source : job.classes[own.cls].in[node]) {
        const bool transfer = static_cast<NodeKind>(view.node_kind[source]) == NodeKind::kTransfer;
        last = std::max(last, transfer
                                  ? recorded_end_ns[own.entry_base + static_cast<std::uint32_t>(view.node_comm[source])]
                                  : timing.start_ns[source] + timing.duration_ns[source]);
      }
      ns_.push_back(std::max<std::int64_t>(0, timing.start_ns[node] + timing.duration_ns[node] - last));
      any = any || ns_.back() > 0;
    }
    if (any)
      first_[rank] = static_cast<std::uint32_t>(first);
    else
      ns_.resize(first);
  }
  ns_.shrink_to_fit();
}

ServiceTimes service_times(const Job& job, const ClosedFormLinks& links) {
  if (!job.graph->timed()) {
    auto times = closed_form_times(job, links);
    times.notes.push_back(
        fmt::format("untimed graph: transfers by closed form, latency {} s, {} bytes/s; compute spans are indicative",
                    static_cast<double>(links.latency_ns) * 1e-9, links.bytes_per_second));
    return times;
  }
  ServiceTimes times;
  bool same_clock = one_clock(*job.graph);
  if (!same_clock)
    times.notes.push_back(
        "clocks of the ranks cannot be compared: all start at once, and a transfer takes its least time over its "
        "members");
  Recorded(job, same_clock).run(times);
  times.wake_ups = WakeUps(job, times.recorded_end_ns);
  return times;
}

ServiceTimes closed_form_times(const Job& job, const ClosedFormLinks& links) {
  ServiceTimes times;
  times.duration_ns.resize(job.entries);
  times.recorded_end_ns.resize(job.entries);
  for (std::uint32_t entry = 0; entry < job.entries; ++entry)
    times.duration_ns[entry] = std::llround(std::min(closed_form_ns(job, entry, links), 9e18));
  if (job.graph->timed()) times.wake_ups = WakeUps(job, times.recorded_end_ns);
  return times;
}

}  // namespace prism::engine
