#include "replay/service_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "replay/pairing.hpp"

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
  return end_ns(job.timing(job.entry_rank[entry]), job.transfer_node(entry));
}

constexpr std::int64_t kNotHeldUpNs = 50'000;  // a wait for what is there already takes up to this

class Recorded {
 public:
  explicit Recorded(const Job& job) : job_(job), same_clock_(job.provenance.one_clock), taken_(taken_up(job)) {
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

  void add_messages() {
    const auto partner = message_partners(job_, recorded_postings(job_));
    for (std::uint32_t entry = 0; entry < job_.entries; ++entry) {
      if (taken_[entry] == kUnknown || !is_point_to_point(job_.op(entry))) continue;
      const auto other = partner[entry];
      if (other == kNone) {  // its peer is not in the graph: what was recorded is all there is
        duration_[entry] = recorded_end(job_, entry) - taken_[entry];
        continue;
      }
      end_[entry] = message_end(entry, other);
      if (same_clock_)
        duration_[entry] = std::max<std::int64_t>(0, end_[entry] - std::max(taken_[entry], taken_[other]));
      else
        set_least({entry, other});
    }
  }

  // Gloo tells of a message's end only to who waits for it. Where a wait began after the other end was done and was not
  // held up, its own end says when it was looked at, and the other end's is closer to the truth. One that was held up
  // saw the end: a send may be done long before its receive.
  std::int64_t message_end(std::uint32_t entry, std::uint32_t other) const {
    if (!same_clock_ || job_.provenance.executed) return recorded_end(job_, entry);
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
                                  : end_ns(timing, source));
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
  const auto assumed =
      fmt::format("latency {} s, {} bytes/s", static_cast<double>(links.latency_ns) * 1e-9, links.bytes_per_second);
  if (!job.graph->timed() || job.provenance.slices) {
    auto times = closed_form_times(job, links);
    times.notes.push_back(
        job.provenance.slices
            ? fmt::format("slices do not time transfers: closed form, {} (--comm gives a network)", assumed)
            : fmt::format("untimed graph: transfers by closed form, {}; compute spans are indicative", assumed));
    return times;
  }
  ServiceTimes times;
  if (!job.provenance.one_clock)
    times.notes.push_back(
        "clocks of the ranks cannot be compared: all start at once, and a transfer takes its least time over its "
        "members");
  Recorded(job).run(times);
  times.wake_ups = WakeUps(job, times.recorded_end_ns);
  return times;
}

ServiceTimes closed_form_times(const Job& job, const ClosedFormLinks& links) {
  ServiceTimes times;
  times.duration_ns.resize(job.entries);
  times.recorded_end_ns.resize(job.entries);
  for (std::uint32_t entry = 0; entry < job.entries; ++entry)
    times.duration_ns[entry] = std::llround(std::min(closed_form_ns(job, entry, links), 9e18));
  if (job.graph->timed() && !job.provenance.slices) times.wake_ups = WakeUps(job, times.recorded_end_ns);
  return times;
}

}  // namespace prism::engine
