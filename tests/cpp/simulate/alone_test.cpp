// Rings that are left alone take what they take message by message, whatever disturbs them and when.
#include <algorithm>
#include <random>
#include <tuple>

#include "catch2.hpp"
#include "simulate/collectives.hpp"
#include "simulate/flow_log.hpp"
#include "simulate/link_use.hpp"
#include "simulate/topologies.hpp"

using namespace prism;
using namespace prism::simulate;
using namespace prism::simulate::testing;

namespace {

struct Ring {
  Op op;
  std::int64_t bytes;
  std::vector<std::int32_t> endpoints;
  std::vector<Picoseconds> come;  // by member
};
struct Scene {
  std::vector<Ring> rings;
  std::vector<Sent> messages;
};
struct Seen {
  std::vector<std::tuple<Picoseconds, int, int>> done;  // (time, ring, member) and (time, -1, message)
  std::vector<std::int64_t> bytes, busy;                // by link
  std::vector<std::vector<double>> bins;
  std::uint64_t messages = 0, deliveries = 0;
};

// A log holds no ways: with it all messages are events.
Seen play(const Topology& topology, NetworkKind kind, const Scene& scene, bool as_events) {
  const auto network = make_network(kind, topology, {}).value();
  FlowLog log(*network, [](const Message&) {});
  Network& sends = as_events ? static_cast<Network&>(log) : *network;
  LinkUse use(topology.links().size(), 16);
  network->observe(use);
  Collectives collectives(sends);
  struct Action {
    Picoseconds at;
    int ring, number;  // member, or message where ring is -1
  };
  std::vector<Action> actions;
  for (int r = 0; r < static_cast<int>(scene.rings.size()); ++r)
    for (int m = 0; m < static_cast<int>(scene.rings[r].come.size()); ++m)
      actions.push_back({scene.rings[r].come[m], r, m});
  for (int i = 0; i < static_cast<int>(scene.messages.size()); ++i) actions.push_back({scene.messages[i].at, -1, i});
  std::stable_sort(actions.begin(), actions.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  std::vector<std::uint32_t> runs;
  for (const auto& ring : scene.rings) {
    const int members = static_cast<int>(ring.endpoints.size());
    runs.push_back(collectives.begin(make_schedule({ring.op, members, ring.bytes}, "ring").value(), ring.endpoints));
  }
  Seen seen;
  std::vector<Collectives::Done> done;
  std::vector<Delivery> delivered;
  const auto next = [&] { return std::min(sends.next(), collectives.next()); };
  const auto go_on = [&](Picoseconds until) {
    for (auto at = next(); at < until; at = next()) {
      collectives.advance(at, done);
      delivered.clear();
      REQUIRE(sends.advance(at, delivered));
      seen.deliveries += delivered.size();
      for (const auto& one : delivered) {
        if ((one.id & Collectives::kMark) != 0)
          REQUIRE(collectives.delivered(one, done));
        else
          seen.done.emplace_back(one.at, -1, static_cast<int>(one.id));
      }
    }
  };
  for (const auto& [at, ring, number] : actions) {
    go_on(at);
    const auto id = static_cast<std::uint64_t>(number);
    if (ring >= 0)
      REQUIRE(collectives.enter(runs[ring], number, at, done));
    else
      REQUIRE(sends.send(at, {id, scene.messages[id].from, scene.messages[id].to, scene.messages[id].bytes}));
  }
  go_on(kNever);
  CHECK(!collectives.under_way());
  for (const auto& one : done)
    seen.done.emplace_back(one.at, static_cast<int>(std::find(runs.begin(), runs.end(), one.run) - runs.begin()),
                           one.member);
  std::sort(seen.done.begin(), seen.done.end());
  seen.messages = collectives.messages();
  for (LinkId link = 0; link < static_cast<LinkId>(topology.links().size()); ++link) {
    seen.bytes.push_back(use.bytes(link));
    seen.busy.push_back(use.busy(link));
    seen.bins.push_back(use.bytes_by_bin(link));
  }
  return seen;
}

// Returns how many deliveries the ring that is left alone has saved.
std::uint64_t compare(const Topology& topology, NetworkKind kind, const Scene& scene) {
  const auto alone = play(topology, kind, scene, false), events = play(topology, kind, scene, true);
  CHECK(alone.done == events.done);
  CHECK(alone.bytes == events.bytes);
  CHECK(alone.busy == events.busy);
  CHECK(alone.messages == events.messages);
  for (std::size_t link = 0; link < alone.bins.size(); ++link) {
    REQUIRE(alone.bins[link].size() == events.bins[link].size());
    for (std::size_t bin = 0; bin < alone.bins[link].size(); ++bin)
      CHECK(alone.bins[link][bin] == Approx(events.bins[link][bin]).margin(1));
  }
  return events.deliveries - alone.deliveries;
}

constexpr NetworkKind kKinds[] = {NetworkKind::kClosedForm, NetworkKind::kFlowLevel, NetworkKind::kOccupancy};

}  // namespace

TEST_CASE("a ring alone is not sent message by message") {
  const auto topology = Topology::one_switch(8, 50e9, kMicrosecond);
  Ring ring{Op::kAllReduce, 8 << 20, {0, 1, 2, 3, 4, 5, 6, 7}, std::vector<Picoseconds>(8, 0)};
  for (int m = 0; m < 8; ++m) ring.come[m] = m * m * 7 * kMicrosecond;
  // 8 members x 14 steps; those that left before the last member came are deliveries.
  for (const auto kind : kKinds) CHECK(compare(topology, kind, {{ring}, {}}) > 60);
}

TEST_CASE("a message into the middle of a ring turns it back into messages, and it is left alone again") {
  const auto topology = Topology::one_switch(4, 1e9, 2 * kMicrosecond);
  // Each of 2 x 3 steps takes 1,002 us; 100 kB come into member 2 at all kinds of moments, among them the very
  // beginning and end of a step.
  const Ring ring{Op::kAllReduce, 4'000'000, {0, 1, 2, 3}, {0, 0, 0, 0}};
  for (const auto kind : kKinds)
    for (const Picoseconds at : {0, 1, 2, 500, 1'001, 1'002, 1'003, 2'500, 6'011, 6'012, 6'013}) {
      INFO("at " << at);
      compare(topology, kind, {{ring}, {{at * kMicrosecond, 0, 2, 100'000}}});
      compare(topology, kind, {{ring}, {{at * kMicrosecond, 3, 0, 0}}});  // without bytes, on the ring's own way
    }
  CHECK(compare(topology, NetworkKind::kFlowLevel, {{ring}, {{1'500 * kMicrosecond, 0, 2, 100'000}}}) > 10);
}

TEST_CASE("rings and messages at random on shared links") {
  std::minstd_rand random(20'241'130);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 300; ++round) {
    const int endpoints = 3 + below(6);
    // Every second network: two switches with a thin cable between them.
    std::vector<Link> links;
    const bool two = round % 2 == 1;
    for (int e = 0; e < endpoints; ++e) {
      const int hub = endpoints + (two && e % 2 == 1);
      links.push_back({e, hub, 1e9 * (1 + below(3)), below(3) * kMicrosecond});
      links.push_back({hub, e, 1e9 * (1 + below(3)), below(3) * kMicrosecond});
    }
    if (two) {
      links.push_back({endpoints, endpoints + 1, 2e9, kMicrosecond});
      links.push_back({endpoints + 1, endpoints, 2e9, kMicrosecond});
    }
    const auto topology = wired(endpoints, 1 + two, links);
    Scene scene;
    for (int r = 1 + below(2); r > 0; --r) {
      Ring ring{below(2) == 0 ? Op::kAllReduce : Op::kAllGather, 1 + below(2'000'000), {}, {}};
      std::vector<std::int32_t> all(endpoints);
      for (int e = 0; e < endpoints; ++e) all[e] = e;
      std::shuffle(all.begin(), all.end(), random);
      ring.endpoints.assign(all.begin(), all.begin() + 2 + below(endpoints - 1));
      const auto from = below(2'000) * kMicrosecond;
      for (std::size_t m = 0; m < ring.endpoints.size(); ++m)
        ring.come.push_back(from + below(3) * below(400) * kMicrosecond);
      scene.rings.push_back(std::move(ring));
    }
    for (int i = below(6); i > 0; --i)
      scene.messages.push_back(
          {below(4'000) * kMicrosecond, below(endpoints), below(endpoints), below(3) == 0 ? 0 : below(1'000'000)});
    INFO("round " << round);
    for (const auto kind : kKinds) compare(topology, kind, scene);
  }
}

TEST_CASE("rings and messages of which much happens at the same moment") {
  std::minstd_rand random(11);
  const auto below = [&](int n) { return static_cast<int>((random() >> 4) % static_cast<unsigned>(n)); };
  for (int round = 0; round < 3000; ++round) {
    const int endpoints = 3 + below(3);
    std::vector<Link> links;
    for (int e = 0; e < endpoints; ++e) {
      const double rate = below(3) == 0 ? 2e9 : 1e9;
      links.push_back({e, endpoints, rate, 0});
      links.push_back({endpoints, e, rate, 0});
    }
    const auto topology = wired(endpoints, 1, links);
    Scene scene;
    for (int r = 1 + below(2); r > 0; --r) {  // steps of 1 to 3 us
      const int members = 2 + below(endpoints - 1);
      Ring ring{Op::kAllReduce, 1000 * members * (1 + below(3)), {}, {}};
      for (int e = 0; e < endpoints; ++e) ring.endpoints.push_back(e);
      std::shuffle(ring.endpoints.begin(), ring.endpoints.end(), random);
      ring.endpoints.resize(members);
      for (int m = 0; m < members; ++m) ring.come.push_back(below(3) * kMicrosecond);
      scene.rings.push_back(std::move(ring));
    }
    for (int i = below(5); i > 0; --i)
      scene.messages.push_back({below(8) * kMicrosecond, below(endpoints), below(endpoints), 1000 * (1 + below(4))});
    INFO("round " << round);
    for (const auto kind : kKinds) compare(topology, kind, scene);
  }
}
