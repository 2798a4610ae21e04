// SPDX-License-Identifier: GPL-2.0-only
// prism-ns3: carries messages over a network of packets, told by lines on standard input; README.md has the protocol.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <optional>
#include <string>

#include "messages.hpp"
#include "refused.hpp"
#include "words.hpp"

namespace prism_ns3 {
namespace {

constexpr std::int64_t kLongest = 1 << 20;  // characters of a line
constexpr std::int64_t kMostVertices = 1 << 20, kMostLinks = 1 << 22;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLongestDelay = 100'000'000'000'000'000;  // picoseconds, 28 hours
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
constexpr auto kSaysItLives = std::chrono::seconds(1);

// Ends where nobody listens any more.
void tell(const std::string& line) {
  if (!(std::cout << line << std::flush)) std::_Exit(1);
}

std::optional<std::string> read_line() {
  static std::string line(kLongest, '\0');
  if (std::cin.getline(line.data(), kLongest)) return std::string(line.data());
  if (std::cin.eof()) return std::nullopt;
  throw Refused("a line of " + std::to_string(kLongest) + " characters or more");
}

std::string required_line(std::string_view what) {
  if (auto line = read_line()) return *std::move(line);
  throw Refused("the input ends where " + std::string(what) + " was to come");
}

void expect(Words& words, std::string_view name) {
  const auto word = words.next();
  if (word != name) throw Refused("'" + std::string(word.substr(0, 40)) + "'; accepted: " + std::string(name));
}

Topology read_topology(const std::string& first) {
  Topology topology;
  Words counts(first);
  expect(counts, "topology");
  topology.vertices = static_cast<std::uint32_t>(counts.integer("vertices", 1, kMostVertices));
  const auto last_vertex = static_cast<std::int64_t>(topology.vertices) - 1;
  const auto links = counts.integer("links", 0, kMostLinks);
  const auto endpoints = counts.integer("endpoints", 1, kMostVertices);
  const auto hosts = counts.integer("hosts", 0, kMostVertices);
  counts.end();
  const auto each = [](std::int64_t count, std::string_view name, auto&& take) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto line = required_line(std::string("'") + std::string(name) + "'");
      Words words(line);
      expect(words, name);
      take(words);
      words.end();
    }
  };
  each(links, "link", [&](Words& words) {
    Link link;
    link.from = static_cast<std::uint32_t>(words.integer("vertex", 0, last_vertex));
    link.to = static_cast<std::uint32_t>(words.integer("vertex", 0, last_vertex));
    link.bytes_per_second = words.real("bytes per second", 1, 1e18);
    link.latency_ps = words.integer("latency in ps", 0, kLongestDelay);
    topology.links.push_back(link);
  });
  each(endpoints, "endpoint", [&](Words& words) {
    Endpoint endpoint;
    endpoint.vertex = static_cast<std::uint32_t>(words.integer("vertex", 0, last_vertex));
    endpoint.host = static_cast<std::int32_t>(words.integer("host", -1, hosts - 1));
    topology.endpoints.push_back(endpoint);
  });
  each(hosts, "host",
       [&](Words& words) { topology.host_message_ps.push_back(words.integer("time in ps", 0, kLongestDelay)); });
  return topology;
}

class Requests {
 public:
  explicit Requests(Topology topology) : network_(std::move(topology)), messages_(network_, [this] { alive(); }) {}

  void handle(const std::string& line) {
    alive();
    Words words(line);
    const auto name = words.next();
    if (name == "connect")
      connect(words);
    else if (name == "send")
      send(words);
    else if (name == "advance")
      advance(words);
    else
      throw Refused("'" + std::string(name.substr(0, 40)) + "'; accepted: connect, send, advance");
  }

 private:
  std::uint32_t endpoint(Words& words) const {
    const auto last = static_cast<std::int64_t>(network_.topology().endpoints.size()) - 1;
    return static_cast<std::uint32_t>(words.integer("endpoint", 0, last));
  }
  std::vector<LinkId> way(Words& words) const {
    const auto links = static_cast<std::int64_t>(network_.topology().links.size());
    std::vector<LinkId> way(static_cast<std::size_t>(words.integer("links on the way", 0, std::min(links, kMostHops))));
    for (auto& link : way) link = static_cast<LinkId>(words.integer("link", 0, links - 1));
    return way;
  }
  void connect(Words& words) {
    const auto from = endpoint(words), to = endpoint(words);
    const auto there = way(words), back = way(words);
    words.end();
    messages_.connect(from, to, there, back);
  }
  void send(Words& words) {
    const auto at = words.integer("time in ps", 0, kLastTime);
    const auto id = words.integer("message", 0, kNever);
    const auto from = endpoint(words), to = endpoint(words);
    const auto bytes = words.integer("bytes", 0, kMostBytes);
    words.end();
    messages_.send(at, static_cast<std::uint64_t>(id), from, to, static_cast<std::uint64_t>(bytes));
  }
  void advance(Words& words) {
    const auto until = words.integer("time in ps", 0, kNever);
    words.end();
    std::string answer;
    for (const auto& [at, id] : messages_.advance(until))
      answer += "delivered " + std::to_string(at) + " " + std::to_string(id) + "\n";
    tell(answer + "now " + std::to_string(Messages::now_ps()) + " " + std::to_string(ns3::Simulator::GetEventCount()) +
         " " + std::to_string(network_.directory().packets) + "\n");
  }
  void alive() {
    const auto now = std::chrono::steady_clock::now();
    if (now - told_ < kSaysItLives) return;
    told_ = now;
    tell("running\n");
  }

  static constexpr std::int64_t kMostHops = 60;  // packets live for 64
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
  Network network_;
  Messages messages_;
};

int run() try {
  std::ios::sync_with_stdio(false);
  ns3::Time::SetResolution(ns3::Time::PS);
  tell("prism-ns3 1\n");
  const auto first = read_line();
  if (!first) return 0;
  Requests requests(read_topology(*first));
  while (const auto line = read_line()) requests.handle(*line);
  return 0;
} catch (const Refused& reason) {
  tell(std::string("error ") + reason.what() + "\n");
  return 2;
} catch (const std::exception& reason) {
  tell(std::string("failed ") + reason.what() + "\n");
  return 4;
}

}  // namespace
}  // namespace prism_ns3

// Without taking the simulation apart, which takes longer than the run of a small one.
int main() { std::_Exit(prism_ns3::run()); }
