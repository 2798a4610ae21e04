// SPDX-License-Identifier: GPL-2.0-only
#include "messages.hpp"

#include <ns3/core-module.h>

#include <algorithm>
#include <string>

#include "refused.hpp"

namespace prism_ns3 {
namespace {

constexpr std::uint32_t kSendBuffer = 1'000'000'000;  // bytes; limits nothing
constexpr std::uint32_t kReceiveBuffer = 1 << 28;     // bytes; TCP then tells windows in units of 8 KiB
constexpr std::uint32_t kCallsBetween = 4096;

std::string pair_of(std::uint32_t from, std::uint32_t to) {
  return "endpoint " + std::to_string(from) + " to " + std::to_string(to);
}

}  // namespace

Messages::Messages(Network& network, std::function<void()> alive)
    : network_(network), alive_(std::move(alive)), host_free_ps_(network.topology().host_message_ps.size()) {
  using ns3::Config::SetDefault;
  SetDefault("ns3::TcpL4Protocol::SocketType", ns3::TypeIdValue(ns3::TcpDctcp::GetTypeId()));
  SetDefault("ns3::TcpSocket::SegmentSize", ns3::UintegerValue(kData));
  SetDefault("ns3::TcpSocket::SndBufSize", ns3::UintegerValue(kSendBuffer));
  SetDefault("ns3::TcpSocket::RcvBufSize", ns3::UintegerValue(kReceiveBuffer));
  SetDefault("ns3::TcpSocket::DelAckCount", ns3::UintegerValue(1));  // each packet's marks come back at once
}

std::int64_t Messages::now_ps() { return ns3::Simulator::Now().GetPicoSeconds(); }

void Messages::connect(std::uint32_t from, std::uint32_t to, std::span<const LinkId> there,
                       std::span<const LinkId> back) {
  auto& made = connections_[{from, to}];
  if (made) throw Refused(pair_of(from, to) + " are connected already");
  made = std::make_unique<Connection>();
  auto& connection = *made;
  connection.from = from;
  connection.to = to;
  connection.local = there.empty() && back.empty();
  const auto window = connection.local ? 0 : network_.window(there, back);
  network_.lead(from, to, there, window);
  network_.lead(to, from, back, 0);
  if (connection.local) return;
  connection.window = window * kData;
  listen(to);
  const auto& node = network_.endpoint(from);
  connection.socket = ns3::Socket::CreateSocket(node, ns3::TcpSocketFactory::GetTypeId());
  connection.socket->SetAttribute("InitialCwnd", ns3::UintegerValue(window));
  connection.socket->SetSendCallback(
      ns3::Callback<void, ns3::Ptr<ns3::Socket>, std::uint32_t>([this, &connection](auto, auto) { pump(connection); }));
  const ns3::Callback<void, ns3::Ptr<ns3::Socket>> broke([this, &connection](auto) {
    broken_ = "the connection of " + pair_of(connection.from, connection.to) + " broke";
    ns3::Simulator::Stop();
  });
  connection.socket->SetCloseCallbacks(broke, broke);
  connection.socket->SetRecvCallback(ns3::Callback<void, ns3::Ptr<ns3::Socket>>([this, &connection](auto socket) {
    while (const auto packet = socket->Recv()) {
    }
    ns3::Simulator::ScheduleNow([this, &connection] { opened(connection); });  // once this has been acknowledged
  }));
  network_.directory().connecting = from;
  network_.directory().connecting_pairs.insert(Directory::pair(from, to));
  if (connection.socket->Bind(ns3::InetSocketAddress(Directory::address(from), 0)) != 0 ||
      connection.socket->Connect(ns3::InetSocketAddress(Directory::address(to), Directory::kPort)) != 0)
    throw Refused(pair_of(from, to) + ": no connection; accepted: up to 16,384 from one endpoint");
}

void Messages::listen(std::uint32_t endpoint) {
  auto& socket = listening_[endpoint];
  if (socket) return;
  socket = ns3::Socket::CreateSocket(network_.endpoint(endpoint), ns3::TcpSocketFactory::GetTypeId());
  socket->Bind(ns3::InetSocketAddress(Directory::address(endpoint), Directory::kPort));
  socket->Listen();
  socket->SetAcceptCallback(
      ns3::MakeNullCallback<bool, ns3::Ptr<ns3::Socket>, const ns3::Address&>(),
      ns3::Callback<void, ns3::Ptr<ns3::Socket>, const ns3::Address&>(
          [this, endpoint](auto accepted_socket, const auto& from) { accepted(endpoint, accepted_socket, from); }));
}

void Messages::accepted(std::uint32_t to, ns3::Ptr<ns3::Socket> socket, const ns3::Address& address) {
  const auto from = Directory::endpoint(ns3::InetSocketAddress::ConvertFrom(address).GetIpv4());
  auto& connection = *connections_.at({from, to});
  socket->SetRecvCallback(
      ns3::Callback<void, ns3::Ptr<ns3::Socket>>([this, &connection](auto one) { receive(connection, one); }));
  accepted_.push_back(socket);
  // No more is under way than its window, as with RDMA's transports. TCP tells it beyond 64 KiB with the first packet
  // after the handshake.
  socket->SetAttribute("RcvBufSize", ns3::UintegerValue(connection.window));
  socket->Send(ns3::Create<ns3::Packet>(1));
}

void Messages::opened(Connection& connection) {
  network_.directory().connecting_pairs.erase(Directory::pair(connection.from, connection.to));
  connection.open = true;
  pump(connection);
}

std::int64_t Messages::on_host(std::uint32_t endpoint) {
  const auto host = network_.topology().endpoints[endpoint].host;
  if (host < 0) return 0;
  auto& free = host_free_ps_[static_cast<std::size_t>(host)];
  free = std::min(kLastTime,
                  std::max(free, now_ps()) + network_.topology().host_message_ps[static_cast<std::size_t>(host)]);
  return free - now_ps();
}

void Messages::send(std::int64_t at_ps, std::uint64_t id, std::uint32_t from, std::uint32_t to, std::uint64_t bytes) {
  const auto found = connections_.find({from, to});
  if (found == connections_.end()) throw Refused(pair_of(from, to) + " are not connected");
  if (at_ps < now_ps())
    throw Refused("a message at " + std::to_string(at_ps) + " ps; accepted: from " + std::to_string(now_ps()) + " on");
  if (!ids_.insert(id).second) throw Refused("message " + std::to_string(id) + " is under way already");
  auto& connection = *found->second;
  ns3::Simulator::Schedule(ns3::PicoSeconds(at_ps - now_ps()), [this, &connection, id, bytes] {
    const auto wait = on_host(connection.from);
    if (wait == 0) return leave(connection, id, bytes);
    ns3::Simulator::Schedule(ns3::PicoSeconds(wait), [this, &connection, id, bytes] { leave(connection, id, bytes); });
  });
}

void Messages::leave(Connection& connection, std::uint64_t id, std::uint64_t bytes) {
  if (connection.local) return arrived(connection, id);
  bytes = std::max<std::uint64_t>(bytes, 1);  // a message without data is a packet all the same
  connection.written += bytes;
  connection.unsent += bytes;
  connection.under_way.emplace_back(connection.written, id);
  pump(connection);
}

void Messages::pump(Connection& connection) {
  while (connection.open && connection.unsent > 0) {
    const auto size =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(connection.unsent, connection.socket->GetTxAvailable()));
    if (size == 0) return;  // called again when there is room
    connection.unsent -= size;
    if (connection.socket->Send(ns3::Create<ns3::Packet>(size)) != static_cast<int>(size)) {
      broken_ = "the connection of " + pair_of(connection.from, connection.to) + " takes no data";
      return ns3::Simulator::Stop();
    }
  }
}

void Messages::receive(Connection& connection, ns3::Ptr<ns3::Socket> socket) {
  if (++calls_ % kCallsBetween == 0) alive_();
  while (const auto packet = socket->Recv()) {
    if (packet->GetSize() == 0) break;  // the other side has closed
    connection.received += packet->GetSize();
  }
  auto& under_way = connection.under_way;
  for (; !under_way.empty() && under_way.front().first <= connection.received; under_way.pop_front())
    arrived(connection, under_way.front().second);
}

void Messages::arrived(const Connection& connection, std::uint64_t id) {
  const auto wait = on_host(connection.to);
  if (wait == 0) return deliver(id);
  ns3::Simulator::Schedule(ns3::PicoSeconds(wait), [this, id] { deliver(id); });
}

void Messages::deliver(std::uint64_t id) {
  // What else happens at this time comes first.
  if (delivered_.empty()) ns3::Simulator::ScheduleNow([] { ns3::Simulator::Stop(); });
  ids_.erase(id);
  delivered_.push_back({now_ps(), id});
}

std::vector<Messages::Delivery> Messages::advance(std::int64_t until_ps) {
  delivered_.clear();
  const auto left = std::max<std::int64_t>(std::min(until_ps, kLastTime) - now_ps(), 0);
  auto end = ns3::Simulator::Schedule(ns3::PicoSeconds(left),
                                      [] { ns3::Simulator::ScheduleNow([] { ns3::Simulator::Stop(); }); });
  ns3::Simulator::Run();
  end.Cancel();
  if (!broken_.empty()) throw Failed(broken_);
  if (now_ps() >= kLastTime) throw Failed("nothing was delivered up to 9,000,000 s; time goes no further");
  std::sort(delivered_.begin(), delivered_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return delivered_;
}

}  // namespace prism_ns3
