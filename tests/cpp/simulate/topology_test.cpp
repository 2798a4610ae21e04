// Ways through networks: shortest, spread, and through the endpoints' own NICs.
#include <algorithm>

#include "catch2.hpp"
#include "simulate/topologies.hpp"

using namespace prism;
using namespace prism::simulate;
using namespace prism::simulate::testing;

namespace {

std::vector<LinkId> way(const Topology& topology, int from, int to) {
  const auto route = topology.route(from, to);
  REQUIRE(route);
  return {route->begin(), route->end()};
}

// Endpoints 0 to `sources` - 1 on one leaf, as many on another, `spines` switches between the leaves.
TopologySpec two_leaves(int sources, int spines) {
  TopologySpec spec;
  const int left = 2 * sources, right = left + 1, first_spine = right + 1;
  spec.vertices = first_spine + spines;
  const auto cable = [&](int a, int b) {
    spec.links.push_back({a, b, 1e9, 0, 1e9, 0});
    spec.links.push_back({b, a, 1e9, 0, 1e9, 0});
  };
  for (int i = 0; i < 2 * sources; ++i) {
    spec.endpoint.push_back(i);
    cable(i, i < sources ? left : right);
  }
  for (int spine = 0; spine < spines; ++spine) {
    cable(left, first_spine + spine);
    cable(first_spine + spine, right);
  }
  return spec;
}

// The spine that each source's way to its like on the other leaf takes.
std::vector<int> spines_taken(Spread spread, int sources, int spines) {
  auto spec = two_leaves(sources, spines);
  spec.spread = spread;
  const auto topology = Topology::make(std::move(spec)).value();
  std::vector<int> taken;
  for (int i = 0; i < sources; ++i)
    taken.push_back(topology.links()[way(topology, i, sources + i)[1]].to - (2 * sources + 2));
  return taken;
}

}  // namespace

TEST_CASE("the way with the fewest links, and of these the one with the least latency") {
  const auto topology =
      wired(2, 3, {{0, 2, 1e9, 5}, {2, 1, 1e9, 5}, {0, 3, 1e9, 1}, {3, 1, 1e9, 8}, {3, 4, 1e9, 0}, {4, 1, 1e9, 0}});
  CHECK(way(topology, 0, 1) == std::vector<LinkId>{2, 3});
  CHECK(way(topology, 0, 0).empty());
}

TEST_CASE("no way leads through another endpoint") {
  const auto topology = wired(3, 0, {{0, 1, 1e9, 0}, {1, 2, 1e9, 0}});
  CHECK(topology.route(0, 2).error().message == "no way leads from endpoint 0 to endpoint 2");
}

TEST_CASE("ways that are as good share the spines evenly, by the destination's number, or by a hash") {
  CHECK(spines_taken(Spread::kBalanced, 8, 4) == std::vector{0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(spines_taken(Spread::kDestination, 8, 4) == std::vector{0, 1, 2, 3, 0, 1, 2, 3});  // 8, 9, ... modulo 4
  const auto hashed = spines_taken(Spread::kHash, 256, 4);
  for (int spine = 0; spine < 4; ++spine) {
    const auto on_it = std::count(hashed.begin(), hashed.end(), spine);
    CHECK((on_it > 40 && on_it < 90));  // 64 of 256, give or take what chance does
  }
  CHECK(hashed == spines_taken(Spread::kHash, 256, 4));
}

TEST_CASE("eight flows over four spines take twice as long as one") {
  auto spec = two_leaves(8, 4);
  const auto topology = Topology::make(std::move(spec)).value();
  std::vector<Sent> sent;
  for (int i = 0; i < 8; ++i) sent.push_back({0, i, 8 + i, 1'000'000});
  for (const auto at : arrivals(*flow_level(topology), sent)) CHECK(at == 2 * kMillisecond);
}

TEST_CASE("between hosts through the endpoints' own NICs, within one without them") {
  // Two hosts with two devices, a hub and a NIC for each device; NIC i of both on rail i; no other way between rails.
  TopologySpec spec;
  enum { kDevices = 4, kHub = 4, kNic = 6, kRail = 10, kVertices = 12 };
  spec.vertices = kVertices;
  spec.vertex_host = {0, 0, 1, 1, 0, 1, 0, 0, 1, 1, -1, -1};
  const auto cable = [&](int a, int b) {
    spec.links.push_back({a, b, 1e9, 0, 1e9, 0});
    spec.links.push_back({b, a, 1e9, 0, 1e9, 0});
  };
  for (int device = 0; device < kDevices; ++device) {
    spec.endpoint.push_back(device);
    spec.nic.push_back(kNic + device);
    cable(device, kHub + device / 2);
    cable(kHub + device / 2, kNic + device);
    cable(kNic + device, kRail + device % 2);
  }
  const auto vertices = [](const Topology& topology, int from, int to) {
    std::vector<int> passed;
    for (const auto link : way(topology, from, to)) passed.push_back(topology.links()[link].to);
    return passed;
  };
  const auto topology = Topology::make(spec).value();
  CHECK(vertices(topology, 0, 1) == std::vector<int>{kHub, 1});
  CHECK(vertices(topology, 1, 3) == std::vector<int>{kHub, kNic + 1, kRail + 1, kNic + 3, kHub + 1, 3});
  // Another rail cannot be reached without changing NICs inside a host, which nobody's traffic does by itself.
  CHECK(topology.route(0, 3).error().message == "no way leads from endpoint 0 to endpoint 3");
  cable(kRail, kRail + 1);
  CHECK(vertices(Topology::make(spec).value(), 0, 3) ==
        std::vector<int>{kHub, kNic, kRail, kRail + 1, kNic + 3, kHub + 1, 3});
}

TEST_CASE("a topology that cannot be is an error that names the place") {
  const auto message = [](auto&& change) {
    auto spec = Topology::one_switch(2, 1e9, 0).spec();
    change(spec);
    return Topology::make(std::move(spec)).error().message;
  };
  CHECK(message([](auto& spec) { spec.links[1].to = 3; }) == "link 1 leads from vertex 2 to 3; accepted: 0 to 2");
  CHECK(message([](auto& spec) { spec.links[0].bytes_per_second = 0; }) ==
        "link 0 carries 0 B/s, its line 1e+09 B/s; accepted: above 0, up to 1e18, the line not below the rate");
  CHECK(message([](auto& spec) { spec.links[2].latency = -1; }) ==
        "link 2 has a latency of -1 ps and a burst of 0 B; accepted: 0 or more, a second at most");
  CHECK(message([](auto& spec) { spec.endpoint[1] = 9; }) == "endpoint 1 is vertex 9; accepted: 0 to 2");
  CHECK(message([](auto& spec) { spec.host = {0}; }) == "1 hosts of 2 endpoints; accepted: one for each");
  CHECK(message([](auto& spec) {
          spec.host = {0, 1}, spec.host_message = {5};
        }) == "endpoint 1 is on host 1; accepted: 0 to 0");
  CHECK(message([](auto& spec) {
          spec.nic = {2, 2};
        }) == "2 NICs of 2 endpoints; accepted: one for each, and the vertices' hosts");
  CHECK(message([](auto& spec) { spec.vertex_host = {0}; }) == "1 hosts of 3 vertices; accepted: one for each");
}
