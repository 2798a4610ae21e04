#include "simulate/message_stages.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace prism::simulate {

StagedNetwork::StagedNetwork(const Topology& topology) : topology_(topology) {
  const auto& spec = topology.spec();
  for (std::size_t host = 0; host < spec.host_message.size(); ++host)
    host_free_.emplace_back(spec.host_processors.empty() ? 1 : spec.host_processors[host], 0);
}

Result<void> StagedNetwork::send(Picoseconds at, const Message& message) {
  if (message.bytes < 0)
    return Error{ErrorCode::kInvalidInput, fmt::format("a message of {} bytes; accepted: 0 or more", message.bytes)};
  PRISM_ASSIGN_OR_RETURN(const auto route, topology_.route(message.from, message.to));
  stages_.post(at, {Stage::kReady, message, route});
  return {};
}

Picoseconds StagedNetwork::begin_operation(std::int32_t endpoint, Picoseconds at) {
  return on_host(endpoint, at, topology_.spec().host_operation);
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
      auto begins = leaves(on_host(message.from, at, topology_.spec().host_message), message, route);
      for (const auto link : route) begins = later(begins, topology_.links()[link].latency);
      if (begins > at) return stages_.post(begins, {Stage::kPasses, message, route});
      [[fallthrough]];
    }
    case Stage::kPasses:
      if (route.empty() || message.bytes == 0) return received(at, message);
      if (message.connection >= 0) {
        const auto [waiting, first] = connections_.try_emplace({message.connection, message.from, message.to});
        if (!first) return waiting->second.push_back({message, route});
      }
      [[fallthrough]];
    case Stage::kNext:
      if (observer_) observer_->began(at, message, route);
      return pass(at, message, route);
    case Stage::kTaken:
      done_.push_back({at, message.id});
  }
}

void StagedNetwork::arrived(Picoseconds at, const Message& message) {
  if (message.connection >= 0) next_of_connection(at, message);
  received(at, message);
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

void StagedNetwork::received(Picoseconds at, const Message& message) {
  const auto taken = on_host(message.to, at, topology_.spec().host_message);
  if (taken > at)
    stages_.post(taken, {Stage::kTaken, message, {}});
  else
    done_.push_back({at, message.id});
}

void StagedNetwork::advance(Picoseconds until, std::vector<Delivery>& delivered) {
  for (auto at = next(); at <= until && at != kNever; at = next()) {
    // Ends before beginnings: what has passed makes room at once.
    while (next_arrival() <= at) arrive(at);
    while (stages_.next() <= at) handle(at, stages_.pop());
    settle(at);
    std::sort(done_.begin(), done_.end(), [](const Delivery& a, const Delivery& b) { return a.id < b.id; });
    delivered.insert(delivered.end(), done_.begin(), done_.end());
    done_.clear();
  }
}

}  // namespace prism::simulate
