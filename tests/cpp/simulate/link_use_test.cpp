// What is told of the use of links, beside arithmetic.
#include "simulate/link_use.hpp"

#include <numeric>

#include "catch2.hpp"
#include "simulate/collectives.hpp"
#include "simulate/flow_log.hpp"
#include "simulate/topologies.hpp"

using namespace prism;
using namespace prism::simulate;
using namespace prism::simulate::testing;

namespace {

constexpr std::int64_t kMB = 1'000'000;
double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

}  // namespace

TEST_CASE("a link is busy while anything passes, and carries what passes when it passes") {
  const auto topology = wired(3, 1, {{0, 3, 1e9, kMillisecond}, {1, 3, 1e9, 0}, {3, 2, 1e9, 0}});
  const auto network = flow_level(topology);
  LinkUse use(topology.links().size(), 100);
  network->observe(use);
  // 0's 2 MB pass from 1 ms on, with 1's 1 MB from 2 to 4 ms: 1 MB alone, 1 MB each in 2 ms together. Then a pause.
  CHECK(arrivals(*network, {{0, 0, 2, 2 * kMB}, {2 * kMillisecond, 1, 2, kMB}, {7 * kMillisecond, 1, 2, kMB}}) ==
        std::vector{4 * kMillisecond, 4 * kMillisecond, 8 * kMillisecond});
  CHECK(use.bytes(0) == 2 * kMB);
  CHECK(use.bytes(2) == 4 * kMB);
  CHECK(use.busy(0) == 3 * kMillisecond);
  CHECK(use.busy(1) == 3 * kMillisecond);
  CHECK(use.busy(2) == 4 * kMillisecond);
  const auto width = use.bin_width();
  const auto& bins = use.bytes_by_bin(2);
  CHECK(bins.size() >= 100);
  CHECK(bins.size() <= 200);
  CHECK(sum(bins) == Approx(4 * kMB));
  const auto at = [&](const std::vector<double>& of, Picoseconds time) {
    return of[static_cast<std::size_t>(time / width)] / (static_cast<double>(width) / kSecond);  // bytes per second
  };
  CHECK(at(bins, kMillisecond * 3 / 2) == Approx(1e9));
  CHECK(at(use.bytes_by_bin(1), 3 * kMillisecond) == Approx(0.5e9));
  CHECK(at(bins, 3 * kMillisecond) == Approx(1e9));
  CHECK(at(bins, 5 * kMillisecond) == 0);
}

TEST_CASE("links carry the bytes of the schedule, however they are shared") {
  const auto topology = Topology::one_switch(6, 1e9, kMicrosecond);
  for (const bool shared : {false, true})
    for (const char* algorithm : {"ring", "tree", "halving_doubling", "direct"}) {
      const auto schedule = make_schedule({Op::kAllReduce, 6, 6 << 16}, algorithm).value();
      std::vector<std::int64_t> up(6), down(6);
      std::uint64_t messages = 0;
      std::vector<Send> sends;
      for (int member = 0; member < 6; ++member)
        for (int step = 0; step < schedule->steps(); ++step, sends.clear()) {
          schedule->part(member, step, sends);
          for (const auto& one : sends) up[member] += one.bytes, down[one.to] += one.bytes, ++messages;
        }
      const auto network = shared ? flow_level(topology) : closed_form(topology);
      LinkUse use(topology.links().size(), 50);
      std::uint64_t left = 0;
      FlowLog log(*network, [&](const Message&) { ++left; });
      log.observe(use);
      Collectives collectives(log);
      std::vector<Collectives::Done> done;
      const auto run =
          collectives.begin(make_schedule({Op::kAllReduce, 6, 6 << 16}, algorithm).value(), {0, 1, 2, 3, 4, 5});
      for (int member = 0; member < 6; ++member) REQUIRE(collectives.enter(run, member, 0, done));
      std::vector<Delivery> delivered;
      for (; log.next() != kNever; delivered.clear()) {
        REQUIRE(log.advance(kNever, delivered));
        for (const auto& one : delivered) REQUIRE(collectives.delivered(one, done));
      }
      REQUIRE(done.size() == 6);
      INFO(algorithm << ", shared " << shared);
      for (int member = 0; member < 6; ++member) {
        CHECK(use.bytes(2 * member) == up[member]);
        CHECK(use.bytes(2 * member + 1) == down[member]);
        CHECK(sum(use.bytes_by_bin(2 * member)) == Approx(up[member]));
      }
      CHECK(left == messages);
      REQUIRE(log.flows().size() == messages);
      for (const auto& flow : log.flows())
        CHECK(flow.end - flow.start >= kMicrosecond + transfer_time(static_cast<double>(flow.bytes), 1e9));
    }
}

TEST_CASE("where both ends are needed, a late leaf of a tree holds its parent, not its sister") {
  const auto topology = Topology::one_switch(4, 1e9, 0);
  const auto network = closed_form(topology);
  Collectives collectives(*network);
  std::vector<Collectives::Done> done;
  const auto run =
      collectives.begin(make_schedule({Op::kBroadcast, 4, kMB}, "tree").value(), {0, 1, 2, 3}, Manner::kBothEnds);
  for (const int member : {0, 1, 3}) REQUIRE(collectives.enter(run, member, 0, done));
  const auto go_on = [&](Picoseconds until) {
    std::vector<Delivery> delivered;
    for (; network->next() <= until && network->next() != kNever; delivered.clear()) {
      REQUIRE(network->advance(until, delivered));
      for (const auto& one : delivered) REQUIRE(collectives.delivered(one, done));
    }
    REQUIRE(network->advance(std::min(until, kSecond), delivered));
  };
  go_on(10 * kMillisecond);
  REQUIRE(done.size() == 2);  // 0 -> 1 -> 3; 0 still owes 2
  REQUIRE(collectives.enter(run, 2, 10 * kMillisecond, done));
  go_on(kNever);
  std::vector<Picoseconds> at(4);
  for (const auto& one : done) at[one.member] = one.at;
  CHECK(at == std::vector{11 * kMillisecond, 2 * kMillisecond, 11 * kMillisecond, 2 * kMillisecond});
}
