// Rates that are kept up to date are those of progressive filling over everything.
#include "simulate/max_min.hpp"

#include <algorithm>
#include <map>

#include "catch2.hpp"

using namespace prism::simulate;

namespace {

using Routes = std::map<MaxMin::Slot, std::vector<LinkId>>;

// By the definition: all rates rise together; those on a link that is full stay.
std::map<MaxMin::Slot, double> filled(const std::vector<double>& capacities, const Routes& routes) {
  std::map<MaxMin::Slot, double> rates;
  auto left = capacities;
  while (rates.size() < routes.size()) {
    std::vector<int> open(capacities.size(), 0);
    for (const auto& [slot, route] : routes)
      if (!rates.count(slot))
        for (const auto link : route) ++open[link];
    double level = 1e300;
    LinkId bottleneck = -1;
    for (std::size_t i = 0; i < left.size(); ++i)
      if (open[i] > 0 && left[i] / open[i] < level) level = left[i] / open[i], bottleneck = static_cast<LinkId>(i);
    for (const auto& [slot, route] : routes) {
      if (rates.count(slot) || std::find(route.begin(), route.end(), bottleneck) == route.end()) continue;
      rates[slot] = level;
      for (const auto link : route) left[link] -= level;
    }
  }
  return rates;
}

struct Random {
  std::uint32_t state;
  std::uint32_t operator()(std::uint32_t below) {
    return state = state * 1664525u + 1013904223u, (state >> 8u) % below;
  }
};

}  // namespace

TEST_CASE("every change leaves the rates of progressive filling") {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    Random random{seed};
    const auto links = 2 + random(30);
    std::vector<double> capacities;
    for (std::uint32_t i = 0; i < links; ++i) capacities.push_back(1 + random(seed % 2 ? 3 : 100));
    MaxMin shares(capacities);
    Routes routes;
    for (int change = 0; change < 120; ++change) {
      for (auto batch = 1 + random(4); batch > 0; --batch) {
        if (!routes.empty() && random(5) < 2) {
          auto gone = std::next(routes.begin(), random(static_cast<std::uint32_t>(routes.size())));
          shares.remove(gone->first);
          routes.erase(gone);
        } else if (random(6) == 0) {
          const auto link = random(links);
          shares.set_capacity(static_cast<LinkId>(link), capacities[link] = 1 + random(50));
        } else {
          std::vector<LinkId> route;
          for (std::uint32_t i = 0; i < links; ++i)
            if (random(links) < 3) route.push_back(static_cast<LinkId>(i));
          if (route.empty()) route.push_back(static_cast<LinkId>(random(links)));
          // The span must outlive the flow: what the map holds stays where it is.
          static std::vector<std::unique_ptr<std::vector<LinkId>>> kept;
          kept.push_back(std::make_unique<std::vector<LinkId>>(route));
          routes[shares.add(*kept.back())] = route;
        }
      }
      shares.solve();
      const auto expected = filled(capacities, routes);
      for (const auto& [slot, rate] : expected) {
        INFO("seed " << seed << ", change " << change);
        REQUIRE(shares.rate(slot) == Approx(rate).epsilon(1e-9));
      }
      for (std::uint32_t i = 0; i < links; ++i)
        REQUIRE(shares.used(static_cast<LinkId>(i)) <= capacities[i] * (1 + 1e-9));
    }
  }
}

TEST_CASE("a change tells of the flows whose rates it changed, with what they were before") {
  MaxMin shares({10, 10});
  const std::vector<LinkId> first{0}, second{1};
  const auto a = shares.add(first), b = shares.add(second);
  CHECK(shares.solve().size() == 2);
  const auto c = shares.add(first);
  const auto changed = shares.solve();
  REQUIRE(changed.size() == 2);
  for (const auto& [slot, before] : changed) {
    CHECK((slot == a || slot == c));
    CHECK(before == (slot == a ? 10 : 0));
    CHECK(shares.rate(slot) == 5);
  }
  CHECK(shares.rate(b) == 10);
}
