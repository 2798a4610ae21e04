// Sharing, in the words of arithmetic.
#include "catch2.hpp"
#include "simulate/topologies.hpp"

using namespace prism::simulate;
using namespace prism::simulate::testing;

namespace {

constexpr std::int64_t kGB = 1'000'000'000;
// Two endpoints behind one link of 1 GB/s.
Topology one_link() { return wired(2, 0, {{0, 1, 1e9, 0}}); }

}  // namespace

TEST_CASE("two transfers of T seconds on one link end at 2 T") {
  const auto topology = one_link();
  CHECK(arrivals(*flow_level(topology), {{0, 0, 1, kGB}, {0, 0, 1, kGB}}) == std::vector{2 * kSecond, 2 * kSecond});
}

TEST_CASE("a third that comes half way") {
  const auto topology = one_link();
  // Two have half of theirs after 1 s. With the third each gets a third: the two need 1.5 s for their other halves, in
  // which the third gets 0.5 GB; the rest of it takes 0.5 s alone.
  CHECK(arrivals(*flow_level(topology), {{0, 0, 1, kGB}, {0, 0, 1, kGB}, {kSecond, 0, 1, kGB}}) ==
        std::vector{kSecond * 5 / 2, kSecond * 5 / 2, 3 * kSecond});
}

TEST_CASE("one that is held up elsewhere leaves its share to the others") {
  // 0 and 1 send over a link of 1 GB/s; the way of 1 goes on over one of 0.25 GB/s.
  const auto topology =
      wired(4, 2, {{0, 4, 10e9, 0}, {1, 4, 10e9, 0}, {4, 5, 1e9, 0}, {5, 2, 10e9, 0}, {5, 3, 0.25e9, 0}});
  CHECK(arrivals(*flow_level(topology), {{0, 0, 2, kGB * 3 / 4}, {0, 1, 3, kGB / 4}}) == std::vector{kSecond, kSecond});
}

TEST_CASE("a burst passes at the line's rate, and again after idling") {
  // 1 GB/s sustained, 10 GB/s for a burst of 0.9 GB: tokens go by 9 GB/s, so the line's rate lasts 0.1 s and 1 GB.
  const auto topology = wired(2, 0, {{0, 1, 1e9, 0, 10e9, kGB * 9 / 10}});
  auto network = flow_level(topology);
  CHECK(arrivals(*network, {{0, 0, 1, kGB}, {kSecond / 10, 0, 1, kGB}}) ==
        std::vector{kSecond / 10, kSecond / 10 + kSecond});
  // Idle from 1.1 s to 1.55 s: half of the burst is back, which lasts 0.05 s; 0.5 GB pass in it.
  CHECK(arrivals(*network, {{kSecond * 155 / 100, 0, 1, kGB}}) == std::vector{kSecond * 160 / 100 + kSecond / 2});
}

TEST_CASE("a burst is over earlier where two use it, later where less than the line's rate does") {
  const auto topology = wired(3, 1, {{0, 3, 4e9, 0}, {1, 3, 10e9, 0}, {3, 2, 1e9, 0, 10e9, kGB * 3}});
  // Held to 4 GB/s by its own link, it empties the burst by 3 GB/s: 1 s and 4 GB; 1 GB is left for a second.
  CHECK(arrivals(*flow_level(topology), {{0, 0, 2, 5 * kGB}}) == std::vector{2 * kSecond});
  // Both: 4 and 6 GB/s, 9 GB/s more than what is sustained: a third of a second, in which 0 gets 4/3 GB and 1 2 GB;
  // then half a GB/s each.
  const auto both = arrivals(*flow_level(topology), {{0, 0, 2, kGB * 4 / 3 + kGB / 2}, {0, 1, 2, 3 * kGB}});
  CHECK(std::abs(both[0] - (kSecond / 3 + kSecond)) <= 10'000);
  CHECK(std::abs(both[1] - (kSecond / 3 + kSecond + kSecond / 2)) <= 10'000);
}

TEST_CASE("never faster with others, and what leaves arrives") {
  std::uint32_t state = 3;
  const auto random = [&](std::uint32_t below) {
    return (state = state * 1664525u + 1013904223u, (state >> 8u) % below);
  };
  for (int round = 0; round < 20; ++round) {
    const int hosts = 4 + static_cast<int>(random(12));
    const auto topology = Topology::one_switch(hosts, 1e9, kMicrosecond);
    std::vector<Sent> sent;
    for (int i = 0; i < 40; ++i)
      sent.push_back({random(3000) * kMicrosecond, static_cast<int>(random(hosts)), static_cast<int>(random(hosts)),
                      1 + random(1'000'000)});
    const auto alone = arrivals(*closed_form(topology), sent), shared = arrivals(*flow_level(topology), sent);
    Picoseconds first = kNever, last = 0;
    std::vector<std::int64_t> bytes(hosts, 0);
    for (std::size_t i = 0; i < sent.size(); ++i) {
      REQUIRE(shared[i] != kNever);
      CHECK(shared[i] >= alone[i]);
      if (sent[i].from != sent[i].to) bytes[sent[i].from] += sent[i].bytes;
      first = std::min(first, sent[i].at);
      last = std::max(last, shared[i]);
    }
    // No link has carried more than its rate: one host's bytes need their time.
    for (const auto of_host : bytes) CHECK(last - first >= transfer_time(static_cast<double>(of_host), 1e9) - 100);
  }
}
