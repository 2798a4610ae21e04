// simgrid_iteration RANKS [DP [JITTER [SEED]]]: one training iteration in SimGrid, as README.md describes it: pipelines
// of 16 stages under 1F1B, then a ring all-reduce of the gradients in each data-parallel group.
#include <algorithm>
#include <cmath>

#include "simgrid.hpp"

using namespace peer;

namespace {

constexpr int kStages = 16, kMicrobatches = 32;
constexpr double kForward_ns = 1e6, kBackward_ns = 2e6;
constexpr std::uint64_t kActivationBytes = 8 << 20, kGradientBytes = 256 << 20;

// Output number `index` (from 0) of SplitMix64 started at `seed`, as a fraction in [0, 1) of 53 bits.
double random_fraction(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t x = seed + (index + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  x ^= x >> 31;
  return static_cast<double>(x >> 11) * 0x1p-53;
}

struct Jitter {
  double amount = 0;
  std::uint64_t seed = 1;

  // A whole number of nanoseconds: base_ns (1 - amount + 2 amount u), u drawn per rank, microbatch and direction.
  double duration_s(double base_ns, int rank, int microbatch, bool backward) const {
    const auto index = (static_cast<std::uint64_t>(rank) * kMicrobatches + microbatch) * 2 + (backward ? 1 : 0);
    return std::round(base_ns * (1 - amount + 2 * amount * random_fraction(seed, index))) * 1e-9;
  }
};

struct Job {
  int group;  // replicas that share gradients
  Jitter jitter;
  std::vector<Channel> activations, gradients, chunks;  // by the receiving rank
  std::int64_t messages = 0;
  double end_s = 0;

  Job(int ranks, int group, Jitter jitter) : group(group), jitter(jitter) {
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string name = std::to_string(rank);
      activations.emplace_back("activations for " + name);
      gradients.emplace_back("gradients for " + name);
      chunks.emplace_back("chunks for " + name);
    }
  }

  void pipeline(int rank) {
    const int stage = rank % kStages;
    const bool first = stage == 0, last = stage == kStages - 1;
    std::vector<s4u::CommPtr> sent;
    auto forward = [&](int microbatch) {
      if (!first) activations[rank].receive();
      s4u::this_actor::sleep_for(jitter.duration_s(kForward_ns, rank, microbatch, false));
      if (!last) sent.push_back(activations[rank + 1].send(kActivationBytes));
    };
    auto backward = [&](int microbatch) {
      if (!last) gradients[rank].receive();
      s4u::this_actor::sleep_for(jitter.duration_s(kBackward_ns, rank, microbatch, true));
      if (!first) sent.push_back(gradients[rank - 1].send(kActivationBytes));
    };
    const int ahead = std::min(kStages - 1 - stage, kMicrobatches);
    for (int i = 0; i < ahead; ++i) forward(i);
    for (int i = ahead; i < kMicrobatches; ++i) forward(i), backward(i - ahead);
    for (int i = kMicrobatches - ahead; i < kMicrobatches; ++i) backward(i);
    for (const s4u::CommPtr& send : sent) send->wait();
    messages += static_cast<std::int64_t>(sent.size());
  }

  void all_reduce(int rank) {
    const int block = group * kStages, in_block = rank % block;
    const int next = rank - in_block + (in_block + kStages) % block;
    for (int step = 0; step < 2 * (group - 1); ++step) {
      const s4u::CommPtr sent = chunks[next].send(kGradientBytes / group);
      chunks[rank].receive();
      sent->wait();
      ++messages;
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  s4u::Engine engine(&argc, argv);
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 0;
  const int group = argc > 2 ? std::atoi(argv[2]) : ranks / kStages;
  Jitter jitter;
  if (argc > 3) jitter.amount = std::atof(argv[3]);
  if (argc > 4) jitter.seed = std::strtoull(argv[4], nullptr, 10);
  if (argc > 5 || group < 1 || ranks < 1 || ranks % (kStages * group) != 0 || kGradientBytes % group != 0 ||
      !(jitter.amount >= 0 && jitter.amount < 1))
    fail(
        "usage: simgrid_iteration RANKS [DP [JITTER [SEED]]]; DP a power of two (RANKS / 16 unless given), RANKS a "
        "multiple of 16 DP, JITTER in [0, 1)");

  use_plain_max_min();
  const Star star(ranks, 50e9, 1e-6);
  Job job(ranks, group, jitter);
  for (int rank = 0; rank < ranks; ++rank) {
    const s4u::ActorPtr actor = s4u::Actor::create(std::to_string(rank), star.hosts[rank], [&job, rank] {
      job.pipeline(rank);
      job.all_reduce(rank);
      job.end_s = s4u::Engine::get_clock();
    });
    for (auto* channels : {&job.activations, &job.gradients, &job.chunks}) (*channels)[rank].received_by(actor);
  }
  const double wall_s = run(engine);

  std::string name = "iteration of " + std::to_string(ranks) + " ranks, DP " + std::to_string(group);
  if (jitter.amount > 0) name += ", jitter " + std::string(argv[3]) + " seed " + std::to_string(jitter.seed);
  print_figure(stdout, name + ": simulated", job.end_s, "s");
  print_figure(stdout, name + ": messages", static_cast<double>(job.messages), "messages");
  print_figure(stdout, name + ": wall time", wall_s, "s");
}
