// What holds of every network, whatever it knows of sharing.
#include <functional>

#include "catch2.hpp"
#include "simulate/topologies.hpp"

using namespace prism;
using namespace prism::simulate;
using namespace prism::simulate::testing;

namespace {

struct Kind {
  const char* name;
  std::function<std::unique_ptr<Network>(const Topology&)> make;
};
const std::vector<Kind> kKinds = {{"closed form", closed_form}, {"flow level", flow_level}, {"occupancy", occupancy}};

}  // namespace

TEST_CASE("a message alone takes its latency and its size over the narrowest link") {
  for (const auto& kind : kKinds) {
    INFO(kind.name);
    // 1 MB over 100 GB/s, 10 GB/s and 50 GB/s with 1, 2 and 3 us: 100 us and 6 us.
    const auto topology =
        wired(2, 2, {{0, 2, 100e9, 1 * kMicrosecond}, {2, 3, 10e9, 2 * kMicrosecond}, {3, 1, 50e9, 3 * kMicrosecond}});
    auto network = kind.make(topology);
    CHECK(arrivals(*network, {{5 * kMicrosecond, 0, 1, 1'000'000}}) == std::vector{111 * kMicrosecond});
  }
}

TEST_CASE("a message without bytes takes the latency, one to oneself no time") {
  for (const auto& kind : kKinds) {
    INFO(kind.name);
    const auto topology = Topology::one_switch(2, 50e9, kMicrosecond);
    auto network = kind.make(topology);
    CHECK(arrivals(*network, {{7, 0, 1, 0}, {9, 1, 1, 1 << 20}}) == std::vector<Picoseconds>{kMicrosecond + 7, 9});
  }
}

TEST_CASE("messages that share nothing do not know of each other") {
  for (const auto& kind : kKinds) {
    INFO(kind.name);
    const auto topology = Topology::one_switch(4, 1e9, 2 * kMicrosecond);
    auto network = kind.make(topology);
    // 1 and 2 MB at 1 GB/s.
    const auto at = arrivals(*network, {{0, 0, 1, 1'000'000}, {0, 1, 0, 2'000'000}, {kMicrosecond, 2, 3, 1'000'000}});
    CHECK(at == std::vector{kMillisecond + 2 * kMicrosecond, 2 * kMillisecond + 2 * kMicrosecond,
                            kMillisecond + 3 * kMicrosecond});
  }
}

TEST_CASE("a message's time on a host's processors is taken one after the other, at both ends") {
  for (const auto& kind : kKinds) {
    INFO(kind.name);
    TopologySpec spec = Topology::one_switch(3, 1e9, 0).spec();
    spec.host = {0, 0, 1};
    spec.host_message = {100 * kMicrosecond, 30 * kMicrosecond};
    const auto topology = Topology::make(std::move(spec)).value();
    auto network = kind.make(topology);
    // Both senders are on host 0: they leave at 100 and 200 us, and 1,000 bytes take 1 us.
    CHECK(arrivals(*network, {{0, 0, 2, 1000}, {0, 1, 2, 1000}}) ==
          std::vector{131 * kMicrosecond, 231 * kMicrosecond});
  }
}

TEST_CASE("processors of a host take as many messages and operations at a time as there are") {
  for (const auto& kind : kKinds) {
    INFO(kind.name);
    TopologySpec spec = Topology::one_switch(4, 1e9, 0).spec();
    spec.host = {0, 0, 0, 0};
    spec.host_message = {100 * kMicrosecond};
    spec.host_operation = {50 * kMicrosecond};
    spec.host_processors = {2};
    const auto topology = Topology::make(spec).value();
    auto network = kind.make(topology);
    CHECK(network->begin_operation(0, 0) == 50 * kMicrosecond);
    CHECK(network->begin_operation(1, 0) == 50 * kMicrosecond);
    CHECK(network->begin_operation(2, 0) == 100 * kMicrosecond);  // behind one of the first two
    // One processor is free at 50, one at 100 us: messages leave at 150 and 200, and are taken on the same two.
    CHECK(arrivals(*network, {{50 * kMicrosecond, 0, 2, 1000}, {50 * kMicrosecond, 1, 3, 1000}}) ==
          std::vector{251 * kMicrosecond, 301 * kMicrosecond});
    spec.host_processors = {0};
    CHECK(Topology::make(spec).error().message == "host 0 has 0 processors; accepted: 1 to 4096");
    spec.host_processors = {1}, spec.host_operation = {-1};
    CHECK(Topology::make(spec).error().message == "host 0 takes -1 ps for an operation; accepted: 0 or more");
    spec.host_operation = {1, 1};
    CHECK(Topology::make(spec).error().message == "times of an operation on 2 of 1 hosts; accepted: on each");
  }
}

TEST_CASE("messages of a connection pass one after the other, beside those of another") {
  const auto topology = Topology::one_switch(2, 1e9, 0);
  const auto ends = [&](std::int32_t second) {
    auto network = flow_level(topology);
    REQUIRE(network->send(0, {0, 0, 1, 1'000'000, 7}));
    REQUIRE(network->send(0, {1, 0, 1, 1'000'000, second}));
    std::vector<Delivery> delivered;
    while (network->next() != kNever) REQUIRE(network->advance(kSecond, delivered));
    return std::vector{delivered.at(0).at, delivered.at(1).at};
  };
  CHECK(ends(7) == std::vector{kMillisecond, 2 * kMillisecond});
  CHECK(ends(8) == std::vector{2 * kMillisecond, 2 * kMillisecond});
  CHECK(ends(-1) == std::vector{2 * kMillisecond, 2 * kMillisecond});
}

TEST_CASE("what is delivered at one time comes by number") {
  for (const auto& kind : kKinds) {
    INFO(kind.name);
    const auto topology = Topology::one_switch(8, 1e9, kMicrosecond);
    auto network = kind.make(topology);
    for (const int i : {3, 1, 2, 0}) REQUIRE(network->send(0, {static_cast<std::uint64_t>(i), i, 7 - i, 1000}));
    std::vector<Delivery> delivered;
    REQUIRE(network->advance(kSecond, delivered));
    REQUIRE(delivered.size() == 4);
    for (std::uint64_t i = 0; i < 4; ++i) CHECK(delivered[i].id == i);
    CHECK(network->next() == kNever);
  }
}

TEST_CASE("driven in small steps from outside, a network does what it does in one run") {
  for (const auto& kind : kKinds) {
    INFO(kind.name);
    const auto topology = Topology::one_switch(6, 3e9, kMicrosecond);
    std::vector<Sent> sent;
    std::uint32_t state = 7;
    const auto random = [&](std::uint32_t below) {
      state = state * 1664525u + 1013904223u;
      return (state >> 8u) % below;
    };
    for (int i = 0; i < 60; ++i)
      sent.push_back({random(1000) * kMicrosecond, static_cast<int>(random(6)), static_cast<int>(random(6)),
                      1 + random(1'000'000)});
    auto whole = kind.make(topology);
    const auto expected = arrivals(*whole, sent);
    // The same messages, each sent only when time has come to it, and time going on by odd pieces.
    auto stepped = kind.make(topology);
    std::vector<Picoseconds> at(sent.size(), kNever);
    std::vector<Delivery> delivered;
    for (Picoseconds now = 0; now < 5 * kMillisecond; now += kMicrosecond / 2) {
      for (std::size_t i = 0; i < sent.size(); ++i)
        if (sent[i].at == now) REQUIRE(stepped->send(now, {i, sent[i].from, sent[i].to, sent[i].bytes}));
      while (stepped->next() <= now) REQUIRE(stepped->advance(now, delivered));
    }
    for (const auto& one : delivered) at[one.id] = one.at;
    // Rates are remembered when they change, so that stopping in between rounds nothing.
    CHECK(at == expected);
  }
}

TEST_CASE("what cannot be sent is an error that says what is accepted") {
  for (const auto& kind : kKinds) {
    INFO(kind.name);
    const auto topology = wired(3, 0, {{0, 1, 1e9, 0}});
    auto network = kind.make(topology);
    CHECK(network->send(0, {0, 0, 3, 1}).error().message == "a message from endpoint 0 to 3; accepted: 0 to 2");
    CHECK(network->send(0, {0, 1, 0, 1}).error().message == "no way leads from endpoint 1 to endpoint 0");
    CHECK(network->send(0, {0, 0, 1, -1}).error().message == "a message of -1 bytes; accepted: 0 or more");
  }
}

TEST_CASE("an endpoint sends and receives one after the other, and does both at once") {
  const auto topology = Topology::one_switch(4, 1e9, 2 * kMicrosecond);
  const auto ms = [](int count) { return count * kMillisecond + 2 * kMicrosecond; };
  // 1 MB takes 1 ms. Two from 0 follow each other; one back to it is not in their way.
  CHECK(arrivals(*occupancy(topology), {{0, 0, 1, 1'000'000}, {0, 0, 2, 1'000'000}, {0, 1, 0, 1'000'000}}) ==
        std::vector{ms(1), ms(2), ms(1)});
  // Two to 3: the second is received behind the first, though its sender has long been through.
  CHECK(arrivals(*occupancy(topology), {{0, 0, 3, 2'000'000}, {1, 1, 3, 1'000'000}, {1, 1, 2, 1'000'000}}) ==
        std::vector{ms(2), ms(3), ms(2) + 1});
  // Late in the line of its sender, not of its receiver.
  CHECK(arrivals(*occupancy(topology), {{0, 0, 1, 3'000'000}, {0, 0, 2, 1'000'000}, {kMillisecond, 3, 2, 1'000'000}}) ==
        std::vector{ms(3), ms(4), ms(2)});
}

TEST_CASE("networks have names") {
  const auto topology = Topology::one_switch(2, 1e9, 0);
  for (const char* name : {"closed", "flow", "nic"})
    CHECK(arrivals(**make_network(network_kind(name).value(), topology, ""), {{0, 0, 1, 1'000'000}}) ==
          std::vector{kMillisecond});
  CHECK(network_kind("packets").error().message == "network 'packets'; accepted: closed, flow, nic, ns3");
}
