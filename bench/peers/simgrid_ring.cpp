// simgrid_ring RANKS BYTES: a ring all-reduce in SimGrid. Ranks around one switch, 50e9 B/s each way, 1 us per message;
// 2 (RANKS - 1) steps, in each a rank sends BYTES / RANKS to the next rank and receives as much from the one before.
#include "simgrid.hpp"

using namespace peer;

int main(int argc, char** argv) {
  s4u::Engine engine(&argc, argv);
  const int ranks = argc == 3 ? std::atoi(argv[1]) : 0;
  const std::uint64_t bytes = argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 0;
  if (ranks < 2 || bytes == 0 || bytes % static_cast<std::uint64_t>(ranks) != 0)
    fail("usage: simgrid_ring RANKS BYTES; at least 2 ranks, BYTES a multiple of RANKS above 0");
  const std::uint64_t chunk = bytes / static_cast<std::uint64_t>(ranks);

  use_plain_max_min();
  const Star star(ranks, 50e9, 1e-6);
  std::vector<Channel> chunks;
  for (int rank = 0; rank < ranks; ++rank) chunks.emplace_back("chunks for " + std::to_string(rank));
  double end_s = 0;
  std::int64_t messages = 0;
  for (int rank = 0; rank < ranks; ++rank)
    chunks[rank].received_by(s4u::Actor::create(std::to_string(rank), star.hosts[rank], [&, rank] {
      for (int step = 0; step < 2 * (ranks - 1); ++step) {
        const s4u::CommPtr sent = chunks[(rank + 1) % ranks].send(chunk);
        chunks[rank].receive();
        sent->wait();
        ++messages;
      }
      end_s = s4u::Engine::get_clock();
    }));
  const double wall_s = run(engine);

  const std::string name = "ring all-reduce of " + std::to_string(bytes) + " B, " + std::to_string(ranks) + " ranks";
  print_figure(stdout, name + ": simulated", end_s, "s");
  print_figure(stdout, name + ": messages", static_cast<double>(messages), "messages");
  print_figure(stdout, name + ": wall time", wall_s, "s");
}
