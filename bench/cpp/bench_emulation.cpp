// An emulation's engine: thousands of virtual ranks of a GPT job beside four that somebody outside drives, for as long
// as one likes. How much of one core an emulated second takes; what is allocated for a rank; and how far behind the
// engine is when time goes on as on a clock. Prints one JSON object a line. With an argument: the lines that have it in
// their names.
//
// The job has 438 operations a rank and iteration (gpt3d.hpp), which lasts some 1.06 s: 3.5 M operations at 8,192
// ranks, 15 M nodes in the two iterations of the record; then the second is repeated.
#include <fmt/format.h>
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>

#include "core/deadline.hpp"
#include "gpt3d.hpp"
#include "replay/engine.hpp"
#include "replay/on_network.hpp"

namespace {

std::int64_t live_bytes = 0;  // that have been allocated and not freed

void* counted(void* memory) {
  if (!memory) throw std::bad_alloc();
  live_bytes += static_cast<std::int64_t>(malloc_usable_size(memory));
  return memory;
}
void uncounted(void* memory) {
  live_bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) { return counted(std::malloc(size)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(unit, (size + unit - 1) / unit * unit));
}
void operator delete(void* memory) noexcept { uncounted(memory); }
void operator delete(void* memory, std::size_t) noexcept { uncounted(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { uncounted(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { uncounted(memory); }

using namespace prism;
using engine::Engine;

namespace {

constexpr std::int64_t kStepNs = 100'000;  // of the clock

// A rank that does what its class does, over and over, by a clock of its own. One lane; it waits for nothing of the
// round before.
class Outside {
 public:
  Outside(const engine::Job& job, const engine::Loop& loop, int rank)
      : job_(job), loop_(loop), program_(loop.programs()[job.ranks[rank].cls]), rank_(rank) {
    released_.assign(program_.comms.size(), {-1, 0});
    go_on();
  }
  int rank() const { return rank_; }
  bool issues() const { return !waits_; }
  std::int64_t next_ns() const { return now_; }
  std::int64_t iteration() const { return round_; }
  bool issue(Engine& engine) {
    for (const auto comm : program_.posts_of(program_.steps[step_]))
      if (!engine.arrived(rank_, loop_.number(job_.ranks[rank_].cls, comm, round_), now_)) return false;
    next();
    go_on();
    return true;
  }
  void released(std::uint32_t number, std::int64_t at) {
    const auto [comm, round] = loop_.place(job_.ranks[rank_].cls, number);
    released_[comm] = {at, round};
    if (waits_) go_on();
  }

 private:
  void next() {
    const bool again = program_.steps[step_].ends_round;
    step_ = again ? program_.lanes[0].period_first : step_ + 1;
    round_ += again;
  }
  void go_on() {
    for (waits_ = false;; next()) {
      const auto& step = program_.steps[step_];
      if (step.kind == engine::StepKind::kWait) {
        for (const auto source : job_.plan(rank_).in[step.node]) {
          const auto [at, round] = released_[static_cast<std::size_t>(job_.view(rank_).node_comm[source])];
          waits_ = waits_ || at < 0 || round < round_;
          now_ = std::max(now_, at);
        }
        if (waits_) return;
      } else {
        now_ += job_.timing(rank_).duration_ns[step.node];
        if (step.kind == engine::StepKind::kIssue) return;
      }
    }
  }
  const engine::Job& job_;
  const engine::Loop& loop_;
  const engine::ClassProgram& program_;
  const int rank_;
  std::uint32_t step_ = 0, round_ = 0;
  std::int64_t now_ = 0;
  bool waits_ = false;
  std::vector<std::pair<std::int64_t, std::uint32_t>> released_;  // [comms] when, in which round
};

struct Line {
  bench::Gpt3d gpt;
  const char* how;  // "fixed", "nic", "flow"
  double limit;     // of a core
  std::string name() const { return fmt::format("emulation of {} ranks, {}", gpt.ranks(), how); }
};

std::int64_t cpu_ns() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return used.tv_sec * 1'000'000'000 + used.tv_nsec;
}

template <typename T>
T or_exit(Result<T> result) {
  if (result) return std::move(result).value();
  fmt::print(stderr, "{}\n", result.error().message);
  std::exit(1);
}

// With the times that it has on one switch, as if it had been calibrated.
ExecutionGraph timed(const ExecutionGraph& graph) {
  const auto report = or_exit(replay(graph, {.links = {.latency_ns = 1'000, .bytes_per_second = 50e9}}));
  return or_exit(retimed(graph, report, R"({"clock_domain": "one"})"));
}

class Emulation {
 public:
  Emulation(const engine::Job& job, const engine::Loop& loop, Engine& engine) : engine_(engine) {
    std::vector<int> all;
    for (int rank = 0; rank < job.graph->world_size(); ++rank) all.push_back(rank);
    engine.begin(all, {0, 1, 2, 3});
    for (const int rank : {0, 1, 2, 3}) programs_.emplace_back(job, loop, rank);
  }
  // Until just before `until`.
  bool advance(std::int64_t until) {
    for (;;) {
      Outside* first = nullptr;
      for (auto& program : programs_)
        if (program.issues() && program.next_ns() < until && (!first || program.next_ns() < first->next_ns()))
          first = &program;
      released_.clear();
      if (!engine_.advance(first ? first->next_ns() : until, released_)) return false;
      for (const auto& [rank, comm, at] : released_) programs_[static_cast<std::size_t>(rank)].released(comm, at);
      if (!released_.empty()) continue;
      if (!first) return true;
      if (!first->issue(engine_)) return false;
    }
  }
  std::int64_t iteration() const { return programs_[0].iteration(); }

 private:
  Engine& engine_;
  std::vector<Outside> programs_;
  std::vector<Engine::Released> released_;
};

void print(const Line& line, const char* what, double value, const char* unit, double limit) {
  fmt::print("{{\"name\": \"{}: {}\", \"value\": {:.4g}, \"unit\": \"{}\", \"limit\": {}}}\n", line.name(), what, value,
             unit, limit);
}

// Time goes on as on a clock, in steps; in each the engine decides what has been until then.
void measure_lag(const Line& line, Emulation& emulation, std::int64_t from_ns) {
  std::vector<double> lag_ms;
  const auto start = now_ns(), used = cpu_ns();
  std::int64_t elapsed = 0;
  while (elapsed < 3'000'000'000) {
    const auto until = (now_ns() - start) / kStepNs * kStepNs;
    if (!emulation.advance(from_ns + until)) std::exit(1);
    elapsed = now_ns() - start;
    lag_ms.push_back(static_cast<double>(elapsed - until) * 1e-6);
    const auto next = until + kStepNs;
    if (elapsed < next) std::this_thread::sleep_for(std::chrono::nanoseconds(next - elapsed));
  }
  const double share = static_cast<double>(cpu_ns() - used) / static_cast<double>(elapsed);
  std::sort(lag_ms.begin(), lag_ms.end());
  const auto quantile = [&](double q) {
    return lag_ms[static_cast<std::size_t>(q * static_cast<double>(lag_ms.size() - 1))];
  };
  std::string histogram;
  std::size_t below = 0;
  for (const double bound : {0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 1e9}) {
    const auto end = static_cast<std::size_t>(std::lower_bound(lag_ms.begin(), lag_ms.end(), bound) - lag_ms.begin());
    histogram += fmt::format("  {} {:.2f}%", bound < 1e9 ? fmt::format("<{}", bound) : std::string("more"),
                             100.0 * static_cast<double>(end - below) / static_cast<double>(lag_ms.size()));
    below = end;
  }
  fmt::print("{}: lag in ms of {} steps:{}; max {:.3f}; {:.0f}% of a core\n", line.name(), lag_ms.size(), histogram,
             lag_ms.back(), 100 * share);
  print(line, "lag, median", quantile(0.5), "ms", 0.5);
  print(line, "lag, p99", quantile(0.99), "ms", 5);
}

void measure(const Line& line) {
  std::size_t operations = 0;
  auto graph = bench::graph_of(line.gpt, operations);
  if (!graph) std::exit(1);
  const std::string how = line.how;
  if (how == "fixed") graph = timed(*graph);
  auto job = or_exit(engine::prepare(*graph));
  const auto loop = or_exit(engine::Loop::make(job, {}));
  const auto durations = or_exit(engine::Durations::make(job, {}));
  const auto topology = simulate::Topology::one_switch(line.gpt.ranks(), 50e9, 1'000'000);
  engine::ServiceTimes service;
  if (how == "fixed") service = engine::service_times(job, {});
  engine::forget_entries(job);

  const auto before = live_bytes;
  std::unique_ptr<engine::Carrier> carrier;
  if (how == "fixed")
    carrier = std::make_unique<engine::FixedTimes>(service);
  else
    carrier = or_exit(engine::OnNetwork::make(
        job, {.topology = &topology,
              .kind = how == "nic" ? simulate::NetworkKind::kOccupancy : simulate::NetworkKind::kFlowLevel,
              .use = false}));
  Engine engine(job, durations, service, *carrier, {.loop = &loop, .timelines = false});
  Emulation emulation(job, loop, engine);

  std::int64_t at = 0, used = 0, from = 0;
  std::uint64_t events = 0;
  std::int64_t bytes = 0;
  const auto ranks = static_cast<double>(line.gpt.ranks());
  constexpr std::int64_t kFirst = 2, kLast = 5;  // iterations that are measured
  while (emulation.iteration() < kLast) {
    if (used == 0 && emulation.iteration() >= kFirst) {
      used = cpu_ns(), from = at, events = engine.events(), bytes = live_bytes - before;
    }
    if (!emulation.advance(at += 1'000'000)) std::exit(1);
  }
  const double cpu = static_cast<double>(cpu_ns() - used) * 1e-9, emulated = static_cast<double>(at - from) * 1e-9;
  const double iteration = emulated / (kLast - kFirst);
  const double events_per_second = static_cast<double>(engine.events() - events) / cpu;
  fmt::print(
      "{}: an iteration of {:.3f} s, {:.2f} M operations of ranks in it, {:.2f} M operations/s, {:.2f} M events/s\n",
      line.name(), iteration, static_cast<double>(operations) * 1e-6,
      static_cast<double>(operations) / iteration * emulated / cpu * 1e-6, events_per_second * 1e-6);
  fmt::print(
      "{}: {:.0f} bytes a rank are allocated after {} iterations, {:.0f} after {}; {:.0f} of them by the engine\n",
      line.name(), static_cast<double>(bytes) / ranks, kFirst, static_cast<double>(live_bytes - before) / ranks, kLast,
      static_cast<double>(engine.bytes()) / ranks);
  print(line, "of one core, for a second", cpu / emulated, "s", line.limit);
  print(line, "bytes of the engine for a rank", static_cast<double>(engine.bytes()) / ranks, "bytes", 1024);
  if (cpu < emulated) measure_lag(line, emulation, at);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  const bench::Gpt3d thousand{.dp = 8}, eight_thousand{};
  for (const auto& line :
       {Line{thousand, "fixed", 0.1}, Line{thousand, "nic", 0.5}, Line{thousand, "flow", 0.5},
        Line{eight_thousand, "fixed", 0.8}, Line{eight_thousand, "nic", 0.8}, Line{eight_thousand, "flow", 0.8}})
    if (line.name().find(only) != std::string::npos) measure(line);
}
