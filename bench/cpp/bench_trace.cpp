// Opening and writing a trace of 10 M stored nodes: 16 ranks of one class each, so that structure and times are both
// stored 10 M times; per four nodes one all-reduce and two edges. JSON lines.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "graph/builder.hpp"

using namespace prism;

namespace {

constexpr int kRanks = 16;
constexpr std::uint32_t kNodes = 10'000'000 / kRanks;

double seconds(auto&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void require(const Result<void>& result) {
  if (result) return;
  fmt::print(stderr, "bench_trace: {}\n", result.error().message);
  std::exit(1);
}

template <typename T>
T require(Result<T> result) {
  require(result ? Result<void>() : Result<void>(result.error()));
  return std::move(result).value();
}

RankRecord record(int rank) {
  RankRecord r;
  r.rank = rank;
  r.lanes = {"main"};
  r.groups = {{"world", {}}};
  for (int i = 0; i < kRanks; ++i) r.groups[0].members.push_back(i);
  for (std::uint32_t i = 0; i < kNodes; ++i) {
    const auto kind = static_cast<NodeKind>(i % 4);  // compute, issue, transfer, wait
    const auto comm = static_cast<std::int32_t>(i / 4);
    r.nodes.push_back({kind, 0, kind == NodeKind::kCompute ? -1 : comm, {}, std::int64_t{i} * 100, 100});
    if (kind == NodeKind::kTransfer || kind == NodeKind::kWait) r.edges.push_back({i - 1, i});
    if (kind != NodeKind::kIssue) continue;
    RankRecord::Comm c;
    c.op = Op::kAllReduce;
    c.dtype = DType::kFloat32;
    c.reduce_op = ReduceOp::kSum;
    c.seq = comm;
    c.input_bytes = c.output_bytes = 4096 + rank;  // of its own in each rank: as many classes as ranks
    r.comms.push_back(c);
  }
  return r;
}

void report(const char* name, double value, double limit) {
  fmt::print("{{\"name\": \"{}\", \"value\": {:.6f}, \"unit\": \"s\", \"limit\": {}}}\n", name, value, limit);
}

}  // namespace

int main() {
  GraphBuilder builder({.world_size = kRanks, .timed = true});
  double add = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto r = record(rank);
    add += seconds([&] { require(builder.add(r)); });
  }
  const auto graph = require(builder.finish());
  const auto path = (std::filesystem::temp_directory_path() / fmt::format("bench-{}.prism", ::getpid())).string();
  report("write a trace of 10 M nodes", seconds([&] { require(write_trace(graph, path)); }), 2);
  // What the disk allows: as many bytes, written and synchronised with no format around them.
  const std::vector<char> bytes(std::filesystem::file_size(path));
  const auto raw = path + ".raw";
  const double disk = seconds([&] {
    const int fd = ::open(raw.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (std::size_t done = 0; fd >= 0 && done < bytes.size();) {
      const auto written = ::write(fd, bytes.data() + done, bytes.size() - done);
      if (written <= 0) require(Result<void>(Error{ErrorCode::kIo, "cannot write " + raw}));
      done += static_cast<std::size_t>(written);
    }
    ::fsync(fd);
    ::close(fd);
  });
  std::filesystem::remove(raw);
  report("write and synchronise as many bytes (the disk)", disk, 2);
  double open = 1e9;
  for (int i = 0; i < 5; ++i) open = std::min(open, seconds([&] { require(open_trace(path)); }));
  report("open a trace of 10 M nodes", open, 0.05);
  const auto again = require(open_trace(path));
  report("validate a trace of 10 M nodes", seconds([&] { require(validate(again)); }), 2);
  report("build a graph of 10 M nodes", add, 5);
  std::filesystem::remove(path);
}
