#include "simulate/message_stages.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace prism::simulate {

Result<void> StagedNetwork::send(Picoseconds at, const Message& message) {
  if (message.bytes < 0)
    return Error{ErrorCode::kInvalidInput, fmt::format("a message of {} bytes; accepted: 0 or more", message.bytes)};
  PRISM_ASSIGN_OR_RETURN(const auto route, topology_.route(message.from, message.to));
  stages_.post(at, {Stage::kReady, message, route});
  return {};
}

Picoseconds StagedNetwork::on_host(int endpoint, Picoseconds at) {
  const auto& spec = topology_.spec();
  if (spec.host.empty()) return at;
  const auto host = spec.host[endpoint];
  auto& free = host_free_[host];
  return free = later(std::max(free, at), spec.host_message[host]);
}

void StagedNetwork::handle(Picoseconds at, const Event& event) {
  const auto& message = event.message;
  const auto route = event.route;
  switch (event.stage) {
    case Stage::kReady: {
      auto begins = leaves(on_host(message.from, at), message, route);
      for (const auto link : route) begins = later(begins, topology_.links()[link].latency);
      if (begins > at) return stages_.post(begins, {Stage::kPasses, message, route});
      [[fallthrough]];
    }
    case Stage::kPasses:
      if (route.empty() || message.bytes == 0) return arrived(at, message);
      if (observer_) observer_->began(at, message, route);
      return pass(at, message, route);
    case Stage::kTaken:
      done_.push_back({at, message.id});
  }
}

void StagedNetwork::arrived(Picoseconds at, const Message& message) {
  const auto taken = on_host(message.to, at);
  if (taken > at)
    stages_.post(taken, {Stage::kTaken, message, {}});
  else
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

}  // namespace prism::simulate
