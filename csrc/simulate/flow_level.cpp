// The network whose links are shared max-min fairly.
#include <algorithm>
#include <utility>

#include "simulate/finish_heap.hpp"
#include "simulate/max_min.hpp"
#include "simulate/message_stages.hpp"

namespace prism::simulate {
namespace {

std::vector<double> rates_of(const Topology& topology) {
  std::vector<double> rates;
  for (const auto& link : topology.links())
    rates.push_back(link.has_burst() ? link.line_bytes_per_second : link.bytes_per_second);
  return rates;
}

class FlowLevel final : public StagedNetwork {
 public:
  explicit FlowLevel(const Topology& topology) : StagedNetwork(topology, false), shares_(rates_of(topology)) {
    const auto& links = topology.links();
    for (std::size_t i = 0; i < links.size(); ++i) {
      if (!links[i].has_burst()) continue;
      buckets_.resize(links.size());
      buckets_[i].tokens = static_cast<double>(links[i].burst_bytes);
    }
  }
  bool has_memory() const override { return !buckets_.empty(); }

 private:
  struct Flow {
    Message message;
    double left = 0;  // bytes at `since`
    Picoseconds since = 0;
  };
  // Of a link with a burst: filled at the sustained rate, emptied by what passes.
  struct Bucket {
    double tokens = 0;  // at `since`
    double used = 0;    // bytes per second that pass
    Picoseconds since = 0;
    std::uint64_t version = 0;  // of the event that says when it is empty
  };
  struct Empty {
    LinkId link;
    std::uint64_t version;
  };

  Picoseconds passing_time(const Message& message, std::span<const LinkId> route) const override {
    if (!buckets_.empty()) return kNever;
    double rate = shares_.capacity(route[0]);
    for (const auto link : route) rate = std::min(rate, shares_.capacity(link));
    return transfer_time(static_cast<double>(message.bytes), rate);
  }
  void pass(Picoseconds at, const Message& message, std::span<const LinkId> route) override {
    const auto slot = shares_.add(route);
    if (slot >= flows_.size()) flows_.resize(slot + 1);
    flows_[slot] = {message, static_cast<double>(message.bytes), at};
    changed_ = true;
  }
  Picoseconds next_arrival() const override { return std::min(ends_.next(), emptied_.next()); }
  void arrive(Picoseconds at) override;
  void settle(Picoseconds at) override;
  double queued(LinkId link, Picoseconds at) const override;
  LinkId waits_at(MaxMin::Slot slot) const;
  void refill(LinkId link, Picoseconds at);

  MaxMin shares_;
  std::vector<Flow> flows_;  // by slot
  FinishHeap ends_;
  std::vector<Bucket> buckets_;  // by link; empty where no link has a burst
  EventQueue<Empty> emptied_;
  bool changed_ = false;
};

double seconds(Picoseconds time) { return static_cast<double>(time) / kPicosecondsPerSecond; }

void FlowLevel::arrive(Picoseconds at) {
  if (ends_.next() <= at) {
    const auto slot = ends_.top();
    ends_.remove(slot);
    if (observer()) {
      const auto& flow = flows_[slot];
      observer()->passed(flow.since, at, flow.left, shares_.route(slot));
      observer()->ended(at, flow.message, shares_.route(slot));
    }
    const auto route = shares_.route(slot);
    shares_.remove(slot);
    changed_ = true;
    return arrived(at, flows_[slot].message, route);
  }
  const auto [link, version] = emptied_.pop();
  auto& bucket = buckets_[link];
  if (version != bucket.version) return;
  bucket.tokens = 0;
  bucket.since = at;
  shares_.set_capacity(link, topology().links()[link].bytes_per_second);
  changed_ = true;
}

void FlowLevel::settle(Picoseconds at) {
  while (std::exchange(changed_, false)) {
    for (const auto& [slot, before] : shares_.solve()) {
      auto& flow = flows_[slot];
      if (before > 0) {
        const double passed = std::min(before * seconds(at - flow.since), flow.left);
        if (observer() && at > flow.since) observer()->passed(flow.since, at, passed, shares_.route(slot));
        flow.left -= passed;
        flow.since = at;
      }
      ends_.put(slot, later(flow.since, transfer_time(flow.left, shares_.rate(slot))));
    }
    if (buckets_.empty()) return;
    for (const auto link : shares_.touched())
      if (topology().links()[link].has_burst()) refill(link, at);
  }
}

// A flow lies before the first link that is full and on which none is faster.
LinkId FlowLevel::waits_at(MaxMin::Slot slot) const {
  constexpr double kEqual = 1 - 1e-9;
  const auto route = shares_.route(slot);
  for (const auto link : route) {
    double fastest = 0;
    shares_.for_each_on(link, [&](auto other) { fastest = std::max(fastest, shares_.rate(other)); });
    if (shares_.rate(slot) > 0 && shares_.rate(slot) >= fastest * kEqual &&
        shares_.used(link) >= shares_.capacity(link) * kEqual)
      return link;
  }
  return narrowest(route);
}

double FlowLevel::queued(LinkId link, Picoseconds at) const {
  double sum = 0;
  shares_.for_each_on(link, [&](auto slot) {
    if (waits_at(slot) != link) return;
    const auto& flow = flows_[slot];
    const double left = flow.left - shares_.rate(slot) * seconds(at - flow.since);
    sum += std::clamp(left, 0.0, static_cast<double>(topology().spec().queue_bytes));
  });
  return sum;
}

// The use of a link has changed: counts what has passed, and says when its burst will be over.
void FlowLevel::refill(LinkId id, Picoseconds at) {
  const auto& link = topology().links()[id];
  auto& bucket = buckets_[id];
  bucket.tokens += (link.bytes_per_second - bucket.used) * seconds(at - bucket.since);
  bucket.tokens = std::clamp(bucket.tokens, 0.0, static_cast<double>(link.burst_bytes));
  bucket.since = at;
  bucket.used = shares_.used(id);
  ++bucket.version;
  const double emptied_by = bucket.used - link.bytes_per_second;
  if (shares_.capacity(id) == link.bytes_per_second) {
    if (emptied_by >= -1e-9 * link.bytes_per_second) return;  // still as much as it sustains
    shares_.set_capacity(id, link.line_bytes_per_second);
    changed_ = true;
  }
  if (emptied_by > 0) emptied_.post(later(at, transfer_time(bucket.tokens, emptied_by)), {id, bucket.version});
}

}  // namespace

std::unique_ptr<Network> flow_level(const Topology& topology) { return std::make_unique<FlowLevel>(topology); }

}  // namespace prism::simulate
