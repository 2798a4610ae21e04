// The flow-level network: what a change costs while 8,192 flows share 2,048 links, and a ring all-reduce without and
// with its steps folded.
#include <fmt/format.h>

#include <chrono>

#include "simulate/collectives.hpp"

using namespace prism;
using namespace prism::simulate;

namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void line(const std::string& name, double value, const char* unit, double limit, const char* peer) {
  fmt::print("{{\"name\": \"{}\", \"value\": {:.4g}, \"unit\": \"{}\", \"limit\": {:.4g}{}}}\n", name, value, unit,
             limit, *peer ? fmt::format(", \"peer\": \"{}\"", peer) : "");
  std::fflush(stdout);
}

struct Random {
  std::uint64_t state = 1;
  std::uint32_t below(std::uint32_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>((state >> 33) % limit);
  }
};

// As many flows as `hosts` x 8 at any time; each that ends is followed by another.
double microseconds_per_change(int hosts, int changes) {
  const auto topology = Topology::one_switch(hosts, 1e9, 0);
  const auto network = flow_level(topology);
  Random random;
  std::uint64_t sent = 0;
  const auto send = [&](Picoseconds at) {
    const auto from = random.below(hosts), to = (from + 1 + random.below(hosts - 1)) % hosts;
    static_cast<void>(
        network->send(at, {sent++, static_cast<int>(from), static_cast<int>(to), 1'000'000 + random.below(9'000'000)}));
  };
  for (int i = 0; i < 8 * hosts; ++i) send(0);
  std::vector<Delivery> delivered;
  static_cast<void>(network->advance(0, delivered));
  const auto begin = std::chrono::steady_clock::now();
  int done = 0;
  while (done < changes) {
    delivered.clear();
    static_cast<void>(network->advance(kNever, delivered));
    for (const auto& one : delivered) send(one.at);
    done += 2 * static_cast<int>(delivered.size());  // each ends, and one begins
  }
  return seconds_since(begin) / done * 1e6;
}

// As many flows again, in 1,024 ring all-reduces of 8 members at once, eight on each host, of different sizes.
double microseconds_per_change_in_rings(int hosts) {
  const auto topology = Topology::one_switch(hosts, 1e9, 0);
  const auto network = flow_level(topology);
  Collectives collectives(*network);
  Random random;
  std::vector<Collectives::Done> done;
  const auto begin = std::chrono::steady_clock::now();
  for (int ring = 0; ring < hosts; ++ring) {
    const int stride = 1 << ring % 8;  // tensor parallel groups are near, data parallel ones far
    std::vector<std::int32_t> members;
    for (int i = 0; i < 8; ++i) members.push_back((ring + i * stride) % hosts);
    const CollectiveShape shape{Op::kAllReduce, 8, 1'000'000 + random.below(9'000'000)};
    const auto run = collectives.begin(make_schedule(shape, "ring").value(), std::move(members));
    for (int member = 0; member < 8; ++member) static_cast<void>(collectives.enter(run, member, 0, done));
  }
  std::vector<Delivery> delivered;
  while (network->next() != kNever) {
    delivered.clear();
    static_cast<void>(network->advance(kNever, delivered));
    for (const auto& one : delivered) static_cast<void>(collectives.delivered(one, done));
  }
  return seconds_since(begin) / (2.0 * static_cast<double>(collectives.messages())) * 1e6;
}

double ring_seconds(int ranks, bool folded) {
  auto spec = Topology::one_switch(ranks, 50e9, 1'000'000).spec();
  if (!folded)  // a burst that never ends keeps steps from being taken for equal
    for (auto& link : spec.links) link.burst_bytes = std::int64_t{1} << 60, link.bytes_per_second = 1;
  const auto topology = Topology::make(std::move(spec)).value();
  const auto network = flow_level(topology);
  const auto begin = std::chrono::steady_clock::now();
  static_cast<void>(
      time_of_collective(topology, *network, make_schedule({Op::kAllReduce, ranks, 1 << 20}, "ring").value()));
  return seconds_since(begin);
}

}  // namespace

int main() {
  line("flows: a change while 8,192 of random ends share 1,024 hosts' links", microseconds_per_change(1024, 10'000),
       "us", 10, "");
  line("flows: a change in 1,024 rings of 8 on these hosts", microseconds_per_change_in_rings(1024), "us", 10, "");
  line("flows: ring all-reduce of 1 MiB over 1,024 ranks", ring_seconds(1024, true), "s", 0.1, "");
  line("flows: the same, every step simulated", ring_seconds(1024, false), "s", 7.4, "SimGrid, as measured before");
}
