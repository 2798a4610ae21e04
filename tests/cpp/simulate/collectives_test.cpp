// Collectives on networks: the figures that other simulators and the closed forms give.
#include "simulate/collectives.hpp"

#include "catch2.hpp"
#include "simulate/topologies.hpp"

using namespace prism;
using namespace prism::simulate;
using namespace prism::simulate::testing;

namespace {

double microseconds(Op op, const char* algorithm, int members, std::int64_t bytes, const Topology& topology,
                    bool shared = true, int per_node = 1) {
  auto network = shared ? flow_level(topology) : closed_form(topology);
  auto schedule = make_schedule({op, members, bytes, 0, per_node}, algorithm).value();
  const auto time = time_of_collective(topology, *network, std::move(schedule));
  REQUIRE(time);
  return static_cast<double>(time->time) / kMicrosecond;
}

}  // namespace

TEST_CASE("ring all-reduce over one switch of 50 GB/s and 1 us: SimGrid's figures") {
  struct Oracle {
    std::int64_t bytes;
    int members;
    double time_us;
  };
  for (const auto& [bytes, members, time_us] : std::initializer_list<Oracle>{{1 << 20, 8, 50.70016},
                                                                             {1 << 20, 64, 167.28768},
                                                                             {1 << 20, 512, 1063.86112},
                                                                             {1 << 20, 1024, 2087.90208},
                                                                             {1 << 20, 4096, 8231.9328},
                                                                             {1 << 22, 8, 160.80064},
                                                                             {1 << 22, 64, 291.15072},
                                                                             {1 << 22, 512, 1189.44448},
                                                                             {1 << 22, 1024, 2213.60832}}) {
    const auto topology = Topology::one_switch(members, 50e9, kMicrosecond);
    for (const bool shared : {false, true}) {
      INFO(members << " members, " << bytes << " bytes, shared " << shared);
      CHECK(microseconds(Op::kAllReduce, "ring", members, bytes, topology, shared) == Approx(time_us).epsilon(1e-9));
    }
  }
}

TEST_CASE("steps that are simulated once give what all of them give") {
  // A burst makes steps differ, so nothing is folded there; one that never ends is the line's rate.
  const auto plain = Topology::one_switch(9, 50e9, kMicrosecond);
  TopologySpec spec = plain.spec();
  for (auto& link : spec.links) link.burst_bytes = std::int64_t{1} << 60, link.bytes_per_second = 1e9;
  const auto unfolded = Topology::make(std::move(spec)).value();
  for (const char* algorithm : {"ring", "halving_doubling", "tree", "direct"})
    CHECK(microseconds(Op::kAllReduce, algorithm, 9, 9 << 16, plain) ==
          microseconds(Op::kAllReduce, algorithm, 9, 9 << 16, unfolded));
}

TEST_CASE("all to all at once: each link carries all but a member's own part") {
  const auto topology = Topology::one_switch(16, 1e9, kMicrosecond);
  // 15 parts of 1 MB over a link of 1 GB/s, and one latency; closed form: as if each had the link for itself.
  CHECK(microseconds(Op::kAllToAll, "direct", 16, 16'000'000, topology) == Approx(15'001).epsilon(1e-9));
  CHECK(microseconds(Op::kAllToAll, "direct", 16, 16'000'000, topology, false) == Approx(1'001).epsilon(1e-9));
  CHECK(microseconds(Op::kAllToAll, "pairwise", 16, 16'000'000, topology) == Approx(15 * 1'001).epsilon(1e-9));
}

TEST_CASE("everybody sends to one: the one's link is shared") {
  const auto topology = Topology::one_switch(11, 1e9, 0);
  CHECK(microseconds(Op::kGather, "direct", 11, 11'000'000, topology) == Approx(10'000).epsilon(1e-9));
}

TEST_CASE("halving and doubling: log2 N steps of halves, quarters, eighths, and back") {
  const auto topology = Topology::one_switch(8, 1e9, kMicrosecond);
  CHECK(microseconds(Op::kAllReduce, "halving_doubling", 8, 8'000'000, topology) ==
        Approx(2 * (4'000 + 2'000 + 1'000) + 6).epsilon(1e-9));
}

TEST_CASE("rings within nodes do not wait for the network between them") {
  // 2 nodes of 2: 10 GB/s within, 1 GB/s and 5 us between, each member with its own way out.
  TopologySpec spec;
  spec.vertices = 4 + 2 + 1;
  spec.endpoint = {0, 1, 2, 3};
  for (int member = 0; member < 4; ++member)
    for (const auto& [hub, rate, latency] :
         {std::tuple{4 + member / 2, 10e9, Picoseconds{0}}, std::tuple{6, 1e9, 5 * kMicrosecond / 2}}) {
      spec.links.push_back({member, hub, rate, latency, rate, 0});
      spec.links.push_back({hub, member, rate, latency, rate, 0});
    }
  // Both ways from a member to its neighbour in the node are two hops; a node's own has to be the shorter one.
  spec.links.push_back({0, 1, 10e9, 0, 10e9, 0});
  spec.links.push_back({1, 0, 10e9, 0, 10e9, 0});
  spec.links.push_back({2, 3, 10e9, 0, 10e9, 0});
  spec.links.push_back({3, 2, 10e9, 0, 10e9, 0});
  const auto topology = Topology::make(std::move(spec)).value();
  // 4 MB: 2 MB within (200 us), twice 1 MB between (1,005 us each), 2 MB within.
  CHECK(microseconds(Op::kAllReduce, "hierarchical", 4, 4'000'000, topology, true, 2) ==
        Approx(200 + 2 * 1'005 + 200).epsilon(1e-9));
}

TEST_CASE("members that come late hold up the others, and what came early is not lost") {
  const auto topology = Topology::one_switch(4, 1e9, 0);
  const auto network = flow_level(topology);
  Collectives collectives(*network);
  const auto run = collectives.begin(make_schedule({Op::kAllReduce, 4, 4'000'000}, "ring").value(), {0, 1, 2, 3});
  std::vector<Collectives::Done> done;
  for (const int member : {0, 1, 3}) REQUIRE(collectives.enter(run, member, 0, done));
  std::vector<Delivery> delivered;
  while (network->next() <= 10 * kMillisecond) {
    delivered.clear();
    REQUIRE(network->advance(network->next(), delivered));
    for (const auto& one : delivered) REQUIRE(collectives.delivered(one, done));
  }
  CHECK(done.empty());
  REQUIRE(network->advance(10 * kMillisecond, delivered));
  REQUIRE(collectives.enter(run, 2, 10 * kMillisecond, done));
  const auto next = [&] { return std::min(network->next(), collectives.next()); };
  for (auto at = next(); at != kNever; at = next()) {
    collectives.advance(at, done);
    delivered.clear();
    REQUIRE(network->advance(at, delivered));
    for (const auto& one : delivered) REQUIRE(collectives.delivered(one, done));
  }
  REQUIRE(done.size() == 4);
  // From then on all 6 steps of 1 ms are on the way from the late one around.
  for (const auto& one : done) CHECK(one.at <= 16 * kMillisecond);
  CHECK(done.back().at == 16 * kMillisecond);
  CHECK(collectives.messages() == 24);
}

TEST_CASE("more members than the network has is an error") {
  const auto topology = Topology::one_switch(2, 1e9, 0);
  const auto network = flow_level(topology);
  CHECK(time_of_collective(topology, *network, make_schedule({Op::kAllReduce, 3, 8}, "ring").value()).error().message ==
        "a collective of 3 members on a network of 2; accepted: not more members than endpoints");
}

namespace {

// The same without saying which steps have the same messages: everything is simulated, event by event.
class EachStep final : public Schedule {
 public:
  explicit EachStep(std::unique_ptr<Schedule> whole) : whole_(std::move(whole)) {}
  int members() const override { return whole_->members(); }
  int steps() const override { return whole_->steps(); }
  int lanes() const override { return whole_->lanes(); }
  int part(int member, int step, std::vector<Send>& sends) const override { return whole_->part(member, step, sends); }

 private:
  std::unique_ptr<Schedule> whole_;
};

}  // namespace

TEST_CASE("a ring whose members do not end their steps together follows by arithmetic, too") {
  // One link of eight is slower: no step is like the one before, but nothing disturbs the ring.
  TopologySpec spec = Topology::one_switch(8, 1e9, kMicrosecond).spec();
  spec.links[4].bytes_per_second = spec.links[4].line_bytes_per_second = 3e8;
  const auto topology = Topology::make(std::move(spec)).value();
  const auto time = [&](bool each_step) {
    const auto network = flow_level(topology);
    auto schedule = make_schedule({Op::kAllReduce, 8, 8'000'000}, "ring").value();
    if (each_step) schedule = std::make_unique<EachStep>(std::move(schedule));
    return time_of_collective(topology, *network, std::move(schedule)).value();
  };
  const auto folded = time(false), simulated = time(true);
  CHECK(folded.time == simulated.time);
  CHECK(folded.messages == simulated.messages);
  CHECK(folded.events < simulated.events / 4);
}

TEST_CASE("a time that the clock cannot show is an error") {
  const auto topology = Topology::one_switch(4, 1, 0);  // a byte a second
  const auto time = [&](std::int64_t bytes) {
    const auto network = flow_level(topology);
    return time_of_collective(topology, *network, make_schedule({Op::kAllReduce, 4, bytes}, "ring").value());
  };
  CHECK(time(4'000'000)->time == 6'000'000 * kSecond);        // 69 days
  for (const std::int64_t bytes : {12'000'000, 100'000'000})  // six steps together, one step alone
    CHECK(time(bytes).error().message ==
          "the collective takes longer than the 104 days that the clock of a network shows");
}
