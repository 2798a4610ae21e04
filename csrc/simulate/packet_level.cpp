// The network of packets: ns-3 in a process of its own (the program prism-ns3, ns3/README.md), which is asked in lines.
// It says at least once a second that it is at work.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <unordered_map>
#include <utility>

#include "simulate/cables.hpp"
#include "simulate/child_process.hpp"
#include "simulate/event_queue.hpp"
#include "simulate/flow_observer.hpp"

namespace prism::simulate {
namespace {

constexpr std::string_view kGreeting = "prism-ns3 1";

// "name number number ...", no more and no less.
template <std::size_t N>
bool parsed(std::string_view line, std::string_view name, std::array<std::uint64_t, N>& numbers) {
  if (line.substr(0, name.size()) != name) return false;
  const char *at = line.data() + name.size(), *const end = line.data() + line.size();
  for (auto& number : numbers) {
    if (at == end || *at++ != ' ') return false;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return false;
    at = next;
  }
  return at == end;
}

class PacketLevel final : public Network {
 public:
  PacketLevel(const Topology& topology, ChildProcess process)
      : topology_(topology), process_(std::move(process)), twin_(twins_of(topology.links())) {}

  Result<void> open();
  Result<void> send(Picoseconds at, const Message& message) override;
  Picoseconds next() const override { return under_way_.empty() ? kNever : now_; }
  Result<void> advance(Picoseconds until, std::vector<Delivery>& delivered) override;
  void observe(FlowObserver& observer) override { observer_ = &observer; }
  std::uint64_t events() const override { return events_; }
  std::uint64_t packets() const override { return packets_; }
  bool has_memory() const override { return true; }  // the windows of connections

 private:
  struct UnderWay {
    Message message;
    Picoseconds start;
    std::span<const LinkId> route;
  };
  Result<void> connect(const Message& message, std::span<const LinkId> route);
  Result<std::string> answer();
  Result<void> deliver(Picoseconds at, std::uint64_t number, std::vector<Delivery>& delivered);
  void tell_of_starts(Picoseconds until);

  const Topology& topology_;
  ChildProcess process_;
  const std::vector<LinkId> twin_;
  FlowObserver* observer_ = nullptr;
  std::string requests_;  // not written yet: sending has no answer
  std::set<std::pair<std::int32_t, std::int32_t>> connected_;
  std::unordered_map<std::uint64_t, UnderWay> under_way_;  // by number
  EventQueue<std::uint64_t> starts_;                       // numbers that the observer has not been told of
  Picoseconds now_ = 0;
  std::uint64_t sent_ = 0, events_ = 0, packets_ = 0;
};

Result<void> PacketLevel::open() {
  const auto& spec = topology_.spec();
  requests_ = fmt::format("topology {} {} {} {}\n", spec.vertices, spec.links.size(), spec.endpoint.size(),
                          spec.host_message.size());
  for (std::size_t i = 0; i < spec.links.size(); ++i) {
    const auto& link = spec.links[i];
    if (link.has_burst())
      return Error{ErrorCode::kInvalidInput,
                   fmt::format("link {} has a burst; accepted by the network ns3: links without", i)};
    requests_ += fmt::format("link {} {} {} {}\n", link.from, link.to, link.bytes_per_second, link.latency);
  }
  for (std::size_t i = 0; i < spec.endpoint.size(); ++i)
    requests_ += fmt::format("endpoint {} {}\n", spec.endpoint[i], spec.host.empty() ? -1 : spec.host[i]);
  for (const auto time : spec.host_message) requests_ += fmt::format("host {}\n", time);
  PRISM_ASSIGN_OR_RETURN(const auto greeting, answer());
  if (greeting == kGreeting) return {};
  return Error{ErrorCode::kPeerFailed,
               fmt::format("prism-ns3 began with '{:.40}'; accepted: '{}'", greeting, kGreeting)};
}

Result<void> PacketLevel::send(Picoseconds at, const Message& message) {
  if (message.bytes < 0)
    return Error{ErrorCode::kInvalidInput, fmt::format("a message of {} bytes; accepted: 0 or more", message.bytes)};
  PRISM_ASSIGN_OR_RETURN(const auto route, topology_.route(message.from, message.to));
  if (connected_.insert({message.from, message.to}).second) PRISM_RETURN_IF_ERROR(connect(message, route));
  const auto number = sent_++;
  requests_ += fmt::format("send {} {} {} {} {}\n", at, number, message.from, message.to, message.bytes);
  under_way_.emplace(number, UnderWay{message, at, route});
  if (observer_ && !route.empty() && message.bytes > 0) starts_.post(at, number);
  return {};
}

// Acknowledgements go back over the same cables where these have two directions.
Result<void> PacketLevel::connect(const Message& message, std::span<const LinkId> route) {
  std::vector<LinkId> back;
  for (auto link = route.rbegin(); link != route.rend(); ++link) back.push_back(twin_[*link]);
  if (std::find(back.begin(), back.end(), -1) != back.end()) {
    PRISM_ASSIGN_OR_RETURN(const auto other, topology_.route(message.to, message.from));
    back.assign(other.begin(), other.end());
  }
  requests_ += fmt::format("connect {} {} {}", message.from, message.to, route.size());
  for (const auto link : route) requests_ += fmt::format(" {}", link);
  requests_ += fmt::format(" {}", back.size());
  for (const auto link : back) requests_ += fmt::format(" {}", link);
  requests_ += '\n';
  return {};
}

Result<std::string> PacketLevel::answer() {
  for (;;) {
    PRISM_ASSIGN_OR_RETURN(auto line, process_.read_line());
    if (line.rfind("error ", 0) == 0) return Error{ErrorCode::kInvalidInput, "prism-ns3: " + line.substr(6)};
    if (line.rfind("failed ", 0) == 0) return Error{ErrorCode::kPeerFailed, "prism-ns3: " + line.substr(7)};
    if (line != "running") return line;
  }
}

Result<void> PacketLevel::deliver(Picoseconds at, std::uint64_t number, std::vector<Delivery>& delivered) {
  const auto found = under_way_.find(number);
  if (found == under_way_.end() || at < std::max(now_, found->second.start))
    return Error{ErrorCode::kPeerFailed,
                 fmt::format("prism-ns3 delivered message {} at {} ps; it was not under way then", number, at)};
  const auto [message, start, route] = found->second;
  tell_of_starts(at);
  if (observer_ && !route.empty() && message.bytes > 0) {
    observer_->passed(start, at, static_cast<double>(message.bytes), route);
    observer_->ended(at, message, route);
  }
  under_way_.erase(found);
  delivered.push_back({at, message.id});
  return {};
}

void PacketLevel::tell_of_starts(Picoseconds until) {
  while (starts_.next() <= until) {
    const auto at = starts_.next();
    const auto& one = under_way_.at(starts_.pop());
    observer_->began(at, one.message, one.route);
  }
}

Result<void> PacketLevel::advance(Picoseconds until, std::vector<Delivery>& delivered) {
  if (under_way_.empty()) {
    if (until != kNever) now_ = std::max(now_, until);
    return {};
  }
  requests_ += fmt::format("advance {}\n", until);
  PRISM_RETURN_IF_ERROR(process_.write(std::exchange(requests_, {})));
  const auto known = static_cast<std::ptrdiff_t>(delivered.size());
  for (std::array<std::uint64_t, 2> one{};;) {
    PRISM_ASSIGN_OR_RETURN(const auto line, answer());
    if (parsed(line, "delivered", one)) {
      PRISM_RETURN_IF_ERROR(deliver(static_cast<Picoseconds>(one[0]), one[1], delivered));
      continue;
    }
    std::array<std::uint64_t, 3> now{};
    if (!parsed(line, "now", now) || now[0] < static_cast<std::uint64_t>(now_) ||
        now[0] > static_cast<std::uint64_t>(until))
      return Error{ErrorCode::kPeerFailed,
                   fmt::format("prism-ns3 answered '{:.40}'; accepted: 'delivered' or 'now' with numbers", line)};
    now_ = static_cast<Picoseconds>(now[0]);
    events_ = now[1];
    packets_ = now[2];
    break;
  }
  std::sort(delivered.begin() + known, delivered.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  if (until == kNever && static_cast<std::ptrdiff_t>(delivered.size()) == known)
    return Error{ErrorCode::kPeerFailed, "prism-ns3 has nothing more to do, and messages are still under way"};
  return {};
}

}  // namespace

Result<std::unique_ptr<Network>> packet_level(const Topology& topology, const std::string& program,
                                              std::chrono::nanoseconds silence) {
  PRISM_ASSIGN_OR_RETURN(auto process, ChildProcess::start(program, silence));
  auto network = std::make_unique<PacketLevel>(topology, std::move(process));
  PRISM_RETURN_IF_ERROR(network->open());
  return std::unique_ptr<Network>(std::move(network));
}

}  // namespace prism::simulate
