#include "simulate/message_stages.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace prism::simulate {

StagedNetwork::StagedNetwork(const Topology& topology, bool busy_endpoints)
    : topology_(topology),
      busy_endpoints_(busy_endpoints),
      uses_(topology.links().size() + (busy_endpoints ? 2 * static_cast<std::size_t>(topology.endpoints()) : 0)) {
  const auto& spec = topology.spec();
  if (spec.queue_bytes > 0) {
    ready_.assign(topology.links().size(), 0);
    passing_.assign(topology.links().size(), 0);
  }
  for (std::size_t host = 0; host < spec.host_message.size(); ++host)
    host_free_.emplace_back(spec.host_processors.empty() ? 1 : spec.host_processors[host], 0);
}

Result<void> StagedNetwork::send(Picoseconds at, const Message& message) {
  if (message.bytes < 0)
    return Error{ErrorCode::kInvalidInput, fmt::format("a message of {} bytes; accepted: 0 or more", message.bytes)};
  PRISM_ASSIGN_OR_RETURN(const auto route, topology_.route(message.from, message.to));
  const auto disturb = [&](const Use& use) {
    if (use.hold != kNobody) holder_->disturbed(use.hold, at);
  };
  if (holds_ > 0) for_each_use(message, route, disturb);
  for_each_use(message, route, [&](Use& use) { use.add(message); });
  count_ready(message, route, 1);
  if (!busy_endpoints_ && host_free_.empty())  // nobody can get in its way before its bytes pass
    stages_.post(later(at, latency(route)), {Stage::kPasses, message, route});
  else
    stages_.post(at, {Stage::kReady, message, route});
  return {};
}

Picoseconds StagedNetwork::begin_operation(std::int32_t endpoint, Picoseconds at) {
  return on_host(endpoint, at, topology_.spec().host_operation);
}

LinkId StagedNetwork::narrowest(std::span<const LinkId> route) const {
  const auto slower = [&](LinkId a, LinkId b) {
    return topology_.links()[a].bytes_per_second < topology_.links()[b].bytes_per_second;
  };
  return *std::min_element(route.begin(), route.end(), slower);
}

void StagedNetwork::count_ready(const Message& message, std::span<const LinkId> route, double sign) {
  if (has_queues() && !route.empty())
    ready_[narrowest(route)] += sign * static_cast<double>(std::min(message.bytes, topology_.spec().queue_bytes));
}

Picoseconds StagedNetwork::word_waits(Picoseconds at, std::int32_t from, std::int32_t to) const {
  Picoseconds sum = 0;
  if (!has_queues()) return sum;
  const auto route = topology_.route(from, to);
  if (!route) return sum;
  for (const auto link : *route)
    if (const auto bytes = ready_[link] + queued(link, at); bytes > 0)
      sum = later(sum, transfer_time(bytes, topology_.links()[link].bytes_per_second));
  return sum;
}

Picoseconds StagedNetwork::on_host(int endpoint, Picoseconds at, const std::vector<Picoseconds>& needs) {
  const auto& spec = topology_.spec();
  if (spec.host.empty() || needs.empty()) return at;
  return on_host(spec.host[endpoint], at, needs[spec.host[endpoint]]);
}

Picoseconds StagedNetwork::copy(std::int32_t endpoint, Picoseconds at, std::int64_t bytes) {
  const auto& spec = topology_.spec();
  if (spec.host.empty() || spec.host_bytes_per_second.empty()) return at;
  const auto host = spec.host[endpoint];
  return on_host(host, at, transfer_time(static_cast<double>(bytes), spec.host_bytes_per_second[host]));
}

Picoseconds StagedNetwork::on_host(std::int32_t host, Picoseconds at, Picoseconds needs) {
  if (needs == 0) return at;
  auto& free = *std::min_element(host_free_[host].begin(), host_free_[host].end());
  return free = later(std::max(free, at), needs);
}

void StagedNetwork::handle(Picoseconds at, const Event& event) {
  const auto& message = event.message;
  const auto route = event.route;
  switch (event.stage) {
    case Stage::kReady: {
      const auto begins =
          later(leaves(on_host(message.from, at, topology_.spec().host_message), message, route), latency(route));
      if (begins > at) return stages_.post(begins, {Stage::kPasses, message, route});
      [[fallthrough]];
    }
    case Stage::kPasses:
      count_ready(message, route, -1);
      if (route.empty() || message.bytes == 0) return received(at, message, route);
      if (message.connection >= 0) {
        const auto [waiting, first] = connections_.try_emplace({message.connection, message.from, message.to});
        if (!first) return waiting->second.push_back({message, route});
      }
      [[fallthrough]];
    case Stage::kNext:
      if (observer_) observer_->began(at, message, route);
      if (has_queues())
        for (const auto link : route) ++passing_[link];
      return pass(at, message, route);
    case Stage::kTaken:
      deliver(at, message, route);
  }
}

Picoseconds StagedNetwork::latency(std::span<const LinkId> route) const {
  Picoseconds sum = 0;
  for (const auto link : route) sum = later(sum, topology_.links()[link].latency);
  return sum;
}

void StagedNetwork::arrived(Picoseconds at, const Message& message, std::span<const LinkId> route) {
  if (has_queues())
    for (const auto link : route) --passing_[link];
  if (message.connection >= 0) next_of_connection(at, message);
  received(at, message, route);
}

void StagedNetwork::next_of_connection(Picoseconds at, const Message& message) {
  const auto waiting = connections_.find({message.connection, message.from, message.to});
  if (waiting->second.empty()) {
    connections_.erase(waiting);
    return;
  }
  const auto next = waiting->second.front();
  waiting->second.pop_front();
  stages_.post(at, {Stage::kNext, next.message, next.route});
}

void StagedNetwork::received(Picoseconds at, const Message& message, std::span<const LinkId> route) {
  const auto taken = on_host(message.to, at, topology_.spec().host_message);
  if (taken > at) return stages_.post(taken, {Stage::kTaken, message, route});
  deliver(at, message, route);
}

void StagedNetwork::deliver(Picoseconds at, const Message& message, std::span<const LinkId> route) {
  for_each_use(message, route, [&](Use& use) { use.remove(message); });
  done_.push_back({at, message.id});
}

Result<void> StagedNetwork::advance(Picoseconds until, std::vector<Delivery>& delivered) {
  for (auto at = next(); done_.empty() && at <= until && at != kNever; at = next()) {
    ++events_;
    // Ends before beginnings: what has passed makes room at once.
    while (next_arrival() <= at) arrive(at);
    while (stages_.next() <= at) handle(at, stages_.pop());
    settle(at);
  }
  std::sort(done_.begin(), done_.end(), [](const Delivery& a, const Delivery& b) { return a.id < b.id; });
  delivered.insert(delivered.end(), done_.begin(), done_.end());
  done_.clear();
  return {};
}

std::optional<Network::Way> StagedNetwork::way(const Message& message) const {
  if (!topology_.spec().host.empty() || has_queues()) return std::nullopt;  // shared by all messages of a host
  const auto route = topology_.route(message.from, message.to);
  if (!route) return std::nullopt;
  Way way{message, *route, latency(*route), 0};
  if (!route->empty() && message.bytes > 0) way.passing = passing_time(message, *route);
  if (way.latency == kNever || way.passing == kNever) return std::nullopt;
  return way;
}

bool StagedNetwork::hold(std::uint32_t hold, std::span<const Way> ways, Holder& holder) {
  bool free = true;
  std::size_t taken = 0;
  for (const auto& way : ways)
    for_each_use(way.message, way.route, [&](Use& use) {
      free = free && use.hold == kNobody && use.messages == way.own.has_value() && use.ids == way.own.value_or(0);
      if (free) use.hold = hold, ++taken;
    });
  ++holds_;
  holder_ = &holder;
  if (free) return true;
  for (const auto& way : ways)  // gives back those before the first that was not free
    for_each_use(way.message, way.route, [&](Use& use) {
      if (taken > 0) use.hold = kNobody, --taken;
    });
  --holds_;
  return false;
}

void StagedNetwork::release(std::uint32_t hold, std::span<const Way> ways) {
  for (const auto& way : ways)
    for_each_use(way.message, way.route, [&](Use& use) {
      if (use.hold == hold) use.hold = kNobody;
    });
  --holds_;
}

void StagedNetwork::resume(Picoseconds left, Picoseconds now, const Way& way) {
  const auto& [message, route, latency, passing, own] = way;
  for_each_use(message, route, [&](Use& use) { use.add(message); });
  const auto begins = later(leaves(left, message, route), latency);
  if (begins >= now || route.empty() || message.bytes == 0)
    return stages_.post(begins, {Stage::kPasses, message, route});
  if (observer_) observer_->began(begins, message, route);
  pass(begins, message, route);
  settle(begins);
}

void StagedNetwork::arrived_alone(Picoseconds left, const Way& way) {
  const auto& [message, route, latency, passing, own] = way;
  if (!observer_ || route.empty() || message.bytes == 0) return;
  const auto begins = later(left, latency), ends = later(begins, passing);
  observer_->began(begins, message, route);
  observer_->passed(begins, ends, static_cast<double>(message.bytes), route);
  observer_->ended(ends, message, route);
}

}  // namespace prism::simulate
