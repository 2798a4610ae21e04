// What recording costs the program, in nanoseconds an event. Prints one JSON object a line.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "backend/recorder/recorder.hpp"
#include "core/deadline.hpp"

using namespace prism;

namespace {

// Median over blocks, so that one preemption does not count.
template <typename Body>
double ns_per_call(Body&& body) {
  constexpr int kBlocks = 51, kCalls = 2000;
  std::vector<double> blocks;
  for (int b = 0; b < kBlocks; ++b) {
    std::int64_t start = now_ns();
    for (int i = 0; i < kCalls; ++i) body();
    blocks.push_back(static_cast<double>(now_ns() - start) / kCalls);
  }
  std::nth_element(blocks.begin(), blocks.begin() + kBlocks / 2, blocks.end());
  return blocks[kBlocks / 2];
}

void print(const char* name, double value, double limit) {
  fmt::print("{{\"name\": \"{}\", \"value\": {:.1f}, \"unit\": \"ns\", \"limit\": {}}}\n", name, value, limit);
}

}  // namespace

int main() {
  print("recorder: asking whether anything is recorded", ns_per_call([] {
          if (Recorder::active()) fmt::print("unexpected\n");
        }),
        5);
  if (auto started = Recorder::start({.world_size = 8, .progress_model = "gloo"}); !started) {
    fmt::print(stderr, "{}\n", started.error().message);
    return 1;
  }
  Recorder& recorder = *Recorder::active();
  std::vector<std::int32_t> members{0, 1, 2, 3, 4, 5, 6, 7};
  CommInfo all_reduce{.op = Op::kAllReduce,
                      .dtype = DType::kFloat32,
                      .reduce_op = ReduceOp::kSum,
                      .async = true,
                      .group = recorder.group("world", members),
                      .input_bytes = 4096,
                      .output_bytes = 4096};
  CommInfo send = all_reduce;
  send.op = Op::kSend;
  send.peer = 1;
  // One communication leaves four nodes: compute, issue, transfer, wait.
  auto communicate = [&](const CommInfo& info) {
    CommId comm = recorder.begin_issue(info);
    recorder.end_issue(comm);
    recorder.transfer_done(comm, recorder.now());
    recorder.begin_wait();
    recorder.end_wait({&comm, 1});
  };
  print("recorder: one collective (issue, completion, wait)", ns_per_call([&] { communicate(all_reduce); }), 1000);
  print("recorder: one message (issue, completion, wait)", ns_per_call([&] { communicate(send); }), 1000);
  print("recorder: one allocation", ns_per_call([&] { recorder.memory(64); }), 50);
  std::int64_t start = now_ns();
  auto record = Recorder::take();
  if (!record) return 1;
  print("recorder: taking the record, a node",
        static_cast<double>(now_ns() - start) / static_cast<double>(record->nodes.size()), 500);
}
