#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "core/deadline.hpp"
#include "gpt3d.hpp"
#include "replay/components.hpp"
#include "replay/engine.hpp"
#include "replay/on_network.hpp"

using namespace prism;

#include <time.h>
namespace {
std::int64_t cpu_ns() { timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return t.tv_sec * 1000000000ll + t.tv_nsec; }

std::int64_t peak_mib() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_maxrss / 1024;
}

class Outside {
 public:
  Outside(const engine::Job& job, int rank)
      : view_(job.view(rank)), plan_(job.plan(rank)), timing_(job.timing(rank)), rank_(rank) {
    node_ = plan_.lane_first[0];
    released_.assign(view_.comm_op.size(), -1);
    go_on();
  }
  int rank() const { return rank_; }
  bool issues() const { return node_ != engine::kNone && !waits_; }
  std::int64_t next_ns() const { return now_; }
  bool issue(engine::Engine& engine) {
    for (const auto target : plan_.out[node_])
      if (view_.node_comm[target] >= 0 && !engine.arrived(rank_, static_cast<std::uint32_t>(view_.node_comm[target]), now_)) return false;
    node_ = plan_.next_on_lane[node_];
    go_on();
    return true;
  }
  void released(std::uint32_t comm, std::int64_t at) {
    released_[comm] = at;
    if (waits_) go_on();
  }

 private:
  void go_on() {
    waits_ = false;
    for (; node_ != engine::kNone; node_ = plan_.next_on_lane[node_]) {
      const auto kind = static_cast<NodeKind>(view_.node_kind[node_]);
      if (kind == NodeKind::kWait) {
        for (const auto source : plan_.in[node_]) {
          const auto at = released_[static_cast<std::size_t>(view_.node_comm[source])];
          waits_ = waits_ || at < 0;
          now_ = std::max(now_, at);
        }
        if (waits_) return;
      } else {
        now_ += timing_.duration_ns[node_];
        if (kind == NodeKind::kIssue) return;
      }
    }
  }
  const ClassView& view_;
  const engine::ClassPlan& plan_;
  const TimingView timing_;
  int rank_;
  std::uint32_t node_;
  std::int64_t now_ = 0;
  bool waits_ = false;
  std::vector<std::int64_t> released_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "fixed";
  bench::Gpt3d gpt{.iterations = 1};
  if (argc > 2) gpt.dp = std::stoi(argv[2]);
  std::size_t operations = 0;
  const auto graph = bench::graph_of(gpt, operations);
  if (!graph) return 1;
  auto job = engine::prepare(*graph);
  if (!job) return fmt::print("{}\n", job.error().message), 1;
  const auto before = peak_mib();
  auto durations = engine::Durations::make(*job, {});
  engine::ServiceTimes service;
  std::unique_ptr<engine::Carrier> carrier;
  const auto topology = simulate::Topology::one_switch(gpt.ranks(), 50e9, 1'000'000);
  if (how == "fixed") {
    service = engine::service_times(*job, {.latency_ns = 1'000, .bytes_per_second = 50e9});
    carrier = std::make_unique<engine::FixedTimes>(service);
  } else {
    NetworkOptions options{.topology = &topology,
                           .kind = how == "nic" ? simulate::NetworkKind::kOccupancy : simulate::NetworkKind::kFlowLevel};
    carrier = std::move(engine::OnNetwork::make(*job, options)).value();
  }
  std::size_t nodes = 0;
  std::vector<int> ranks;
  for (int rank = 0; rank < gpt.ranks(); ++rank) nodes += job->plan(rank).next_on_lane.size(), ranks.push_back(rank);
  const std::int64_t start = cpu_ns();
  engine::Engine engine(*job, *durations, service, *carrier, {.timelines = argc > 3});
  engine.begin(ranks, {0, 1, 2, 3});
  std::vector<Outside> programs;
  for (const int rank : {0, 1, 2, 3}) programs.emplace_back(*job, rank);
  std::vector<engine::Engine::Released> released;
  std::int64_t last = 0;
  for (;;) {
    Outside* first = nullptr;
    for (auto& program : programs)
      if (program.issues() && (!first || program.next_ns() < first->next_ns())) first = &program;
    released.clear();
    if (!engine.advance(first ? first->next_ns() : INT64_MAX, released)) return 1;
    for (const auto& [rank, comm, at] : released)
      for (auto& program : programs)
        if (program.rank() == rank) program.released(comm, at), last = at;
    if (!released.empty()) continue;
    if (!first) break;
    if (!first->issue(engine)) return 1;
  }
  const double seconds = static_cast<double>(cpu_ns() - start) * 1e-9;
  if (!engine.finished()) return fmt::print("{}\n", engine.finished().error().message), 1;
  fmt::print("{} {} ranks: {:.2f} M operations, {:.2f} M nodes, {:.2f} M entries; iteration {:.3f} ms in {:.3f} s: {:.2f} M operations/s, {:.0f} ns each; {} MiB before, +{}\n",
             how, gpt.ranks(), operations * 1e-6, nodes * 1e-6, job->entries * 1e-6, last * 1e-6, seconds, operations * 1e-6 / seconds, seconds * 1e9 / operations, before, peak_mib() - before);
}
