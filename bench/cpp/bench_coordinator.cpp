// Messages of ranks that the coordinator handles per second of its own processor time, over the number of ranks. Each
// rank is a process; all take part in small all_reduces of the world and of groups of eight. One JSON object a line.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>
#include <vector>

#include "backend/client/rank_client.hpp"
#include "backend/coordinator/coordinator.hpp"

using namespace prism;

namespace {

class Doubles : public Executor {
 public:
  Result<void> reduce(DType, ReduceOp, std::span<const ReducePiece> pieces) override {
    for (const ReducePiece& piece : pieces)
      for (std::size_t i = 0; i < piece.numel; ++i) {
        double sum = 0;
        for (const std::byte* input : piece.inputs) sum += reinterpret_cast<const double*>(input)[i];
        reinterpret_cast<double*>(piece.output)[i] = sum;
      }
    return {};
  }
  DType accumulation_type(DType dtype, ReduceOp) const override { return dtype; }
};

void run_rank(const std::string& address, int rank, int ranks, int steps) {
  auto client = RankClient::connect({address, rank, ranks, std::chrono::minutes(2), true});
  if (!client) _exit(1);
  std::vector<std::int32_t> world(static_cast<std::size_t>(ranks)), row(8);
  std::iota(world.begin(), world.end(), 0);
  std::iota(row.begin(), row.end(), rank / 8 * 8);
  const GroupHandle groups[] = {(*client)->join_group("world", world).value(),
                                (*client)->join_group(fmt::format("row {}", rank / 8), row).value()};
  for (int step = 0; step < steps; ++step)
    for (const GroupHandle group : groups) {
      Operation operation;
      operation.group = group;
      operation.op = Op::kAllReduce;
      operation.dtype = DType::kFloat64;
      operation.reduce_op = ReduceOp::kSum;
      operation.seq = static_cast<std::uint64_t>(step);
      operation.inputs = {(*client)->stage(sizeof(double)).value()};
      operation.output_bytes = {sizeof(double)};
      const double one = 1;
      std::memcpy((*client)->data(operation.inputs[0]), &one, sizeof one);
      double sum = 0;
      const auto work = (*client)->issue(operation, [&](const Outcome& outcome) {
        if (outcome.status) std::memcpy(&sum, (*client)->data(outcome.regions[0]), sizeof sum);
      });
      if (!work || !(*client)->wait(std::span(&*work, 1), Deadline::after(std::chrono::hours(1)))) _exit(1);
      if (sum != (group == groups[0] ? ranks : 8)) _exit(2);
    }
  (*client)->finish("");
  _exit(0);
}

double process_cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

}  // namespace

int main() {
  for (const int ranks : {16, 64, 256, 1024}) {
    Coordinator::Options options;
    options.address = fmt::format("prism-bench-{}-{}", getpid(), ranks);
    options.world_size = ranks;
    options.slots = 2;
    const int steps = std::max(24576 / ranks, 24);
    std::vector<pid_t> processes;
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) run_rank(options.address, rank, ranks, steps);
      processes.push_back(pid);
    }
    const double before = process_cpu_s();
    Coordinator coordinator(options, std::make_shared<Doubles>());
    Result<void> result;
    std::thread loop([&] { result = coordinator.run(); });
    loop.join();
    const double cpu_s = process_cpu_s() - before;
    for (const pid_t pid : processes) waitpid(pid, nullptr, 0);
    if (!result) {
      fmt::print(stderr, "{}\n", result.error().message);
      return 1;
    }
    const auto statistics = nlohmann::json::parse(coordinator.statistics_json());
    const auto messages = statistics["messages"].get<double>();
    const auto line = [&](const std::string& name, double value, const char* unit, const char* limit,
                          const char* better) {
      fmt::print(
          "{{\"name\": \"coordinator: {}, {} ranks\", \"value\": {:.4g}, \"unit\": \"{}\", \"limit\": {}, "
          "\"better\": \"{}\"}}\n",
          name, ranks, value, unit, limit, better);
      std::fflush(stdout);
    };
    line("messages per second of its processor time", messages / cpu_s, "1/s", "100000", "higher");
    line("all_reduce calls per second, clients included",
         statistics["operations"].get<double>() / statistics["wall_s"].get<double>(), "1/s", "null", "higher");
    line("switches over the lower bound",
         statistics["switches"].get<double>() / statistics["switches_lower_bound"].get<double>(), "1", "null", "lower");
  }
}
