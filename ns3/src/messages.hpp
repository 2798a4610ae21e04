// SPDX-License-Identifier: GPL-2.0-only
// Messages between endpoints, one after the other over a TCP connection for each pair that is kept.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "network.hpp"

namespace prism_ns3 {

inline constexpr std::int64_t kLastTime = 9'000'000'000'000'000'000;  // picoseconds, 104 days

class Messages {
 public:
  struct Delivery {
    std::int64_t at_ps;
    std::uint64_t id;
  };
  // `alive` is called every some thousand packets.
  Messages(Network& network, std::function<void()> alive);

  // The ways of the data and of what acknowledges them; none: both ends are one vertex.
  void connect(std::uint32_t from, std::uint32_t to, std::span<const LinkId> there, std::span<const LinkId> back);
  // Refused: a pair that is not connected, a time that has passed, an id that is under way.
  void send(std::int64_t at_ps, std::uint64_t id, std::uint32_t from, std::uint32_t to, std::uint64_t bytes);
  // Until the first moment at which anything is delivered, but not beyond `until_ps`. Failed: a connection broke.
  std::vector<Delivery> advance(std::int64_t until_ps);
  static std::int64_t now_ps();

 private:
  struct Connection {
    std::uint32_t from = 0, to = 0;
    bool local = false, open = false;
    std::uint32_t window = 0;      // bytes
    ns3::Ptr<ns3::Socket> socket;  // the sender's
    std::uint64_t unsent = 0;      // bytes that the socket has not taken yet
    std::uint64_t written = 0, received = 0;
    std::deque<std::pair<std::uint64_t, std::uint64_t>> under_way;  // (its last byte, id)
  };
  void listen(std::uint32_t endpoint);
  void accepted(std::uint32_t to, ns3::Ptr<ns3::Socket> socket, const ns3::Address& from);
  void opened(Connection& connection);
  void leave(Connection& connection, std::uint64_t id, std::uint64_t bytes);
  void pump(Connection& connection);
  void receive(Connection& connection, ns3::Ptr<ns3::Socket> socket);
  void arrived(const Connection& connection, std::uint64_t id);
  void deliver(std::uint64_t id);
  std::int64_t on_host(std::uint32_t endpoint);  // picoseconds until its turn on the host's processors is over

  Network& network_;
  std::function<void()> alive_;
  std::uint32_t calls_ = 0;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<Connection>> connections_;
  std::map<std::uint32_t, ns3::Ptr<ns3::Socket>> listening_;  // by endpoint
  std::vector<ns3::Ptr<ns3::Socket>> accepted_;
  std::vector<std::int64_t> host_free_ps_;
  std::set<std::uint64_t> ids_;
  std::vector<Delivery> delivered_;
  std::string broken_;
};

}  // namespace prism_ns3
