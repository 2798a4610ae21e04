// Planning pruned collectives of 8,192 members with 4 in the sandbox, and what their assistants do with a chunk.
#include <fmt/format.h>

#include <chrono>
#include <vector>

#include "replay/pruning.hpp"
#include "replay/reduction.hpp"

using namespace prism;

namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void line(const std::string& name, double value, const char* unit, double limit, const char* better = "lower") {
  fmt::print("{{\"name\": \"{}\", \"value\": {:.4g}, \"unit\": \"{}\", \"limit\": {:.4g}, \"better\": \"{}\"}}\n", name,
             value, unit, limit, better);
  std::fflush(stdout);
}

std::int64_t steps_of(const PrunedCollective& plan) {
  std::int64_t steps = 0;
  for (const auto& member : plan.sandbox) steps += static_cast<std::int64_t>(member.steps.size());
  for (const auto& assistant : plan.assistants) steps += static_cast<std::int64_t>(assistant.steps.size());
  return steps;
}

// One run is warm-up.
void plan(const char* algorithm, std::int64_t bytes, double limit_ms) {
  constexpr int kRuns = 10;
  const std::vector<std::int32_t> sandbox{1000, 1001, 1002, 5000};
  const simulate::CollectiveShape shape{.op = Op::kAllReduce, .members = 8192, .bytes = bytes};
  std::chrono::steady_clock::time_point begin;
  std::int64_t steps = 0, messages = 0, unpruned = 0;
  for (int run = 0; run <= kRuns; ++run) {
    if (run == 1) begin = std::chrono::steady_clock::now();
    const auto made = prune(shape, algorithm, sandbox).value();
    steps = steps_of(made), messages = made.messages, unpruned = made.unpruned_messages;
  }
  const double seconds = seconds_since(begin) / kRuns;
  line(fmt::format("pruning of an all_reduce by {}, 4 of 8,192 members: planned", algorithm), seconds * 1e3, "ms",
       limit_ms);
  line(fmt::format("pruning by {}: messages, of {:L}", algorithm, unpruned), static_cast<double>(messages), "",
       static_cast<double>(unpruned) / 100);
  if (steps > 100'000)
    line(fmt::format("pruning by {}: steps planned", algorithm), static_cast<double>(steps) / seconds / 1e6, "M/s", 1,
         "higher");
}

// A virtual part with what came out of the sandbox, 1 MiB.
void combine(DType dtype, double limit) {
  constexpr int kRuns = 20;
  const std::size_t bytes = 1 << 20, count = bytes / element_size(dtype);
  std::vector<std::byte> came(bytes), out(bytes);
  std::vector<std::byte> part(count * element_size(accumulation_type(dtype, ReduceOp::kSum)));
  const std::byte* sources[] = {came.data()};
  const auto begin = std::chrono::steady_clock::now();
  for (int run = 0; run < kRuns; ++run)
    static_cast<void>(reduce(dtype, ReduceOp::kSum, count, part.data(), sources, out.data()));
  line(fmt::format("virtual part and one chunk of {} combined", name(dtype)),
       kRuns * bytes / seconds_since(begin) / 1e9, "GB/s", limit, "higher");
}

}  // namespace

int main() {
  plan("ring", 1, 100);
  plan("tree", 16 << 20, 20);
  plan("halving_doubling", 1, 150);
  plan("recursive_doubling", 1, 1);
  combine(DType::kFloat32, 0.5);
  combine(DType::kBFloat16, 0.1);
}
