#include "backend/recorder/recorder.hpp"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "catch2.hpp"

using namespace prism;

namespace {

// A recording whose clock stands still until the test moves it.
struct Job {
  std::atomic<std::int64_t> clock{0};
  std::uint32_t world = 0;

  explicit Job(bool timed = true, std::string path = "", int world_size = 2) {
    REQUIRE(Recorder::start({.rank = 0,
                             .world_size = world_size,
                             .path = std::move(path),
                             .timed = timed,
                             .progress_model = "gloo",
                             .clock = [this] { return clock.load(); }})
                .ok());
    std::vector<std::int32_t> members{0, 1};
    world = recorder().group("world", members);
  }
  ~Job() { Recorder::abandon(); }
  Recorder& recorder() { return *Recorder::active(); }
  void at(std::int64_t ns) { clock = ns; }
  CommId issue(std::int64_t from, std::int64_t to, CommInfo info) {
    info.group = world;
    at(from);
    CommId comm = recorder().begin_issue(info);
    at(to);
    recorder().end_issue(comm);
    return comm;
  }
  void wait(std::int64_t from, std::int64_t to, std::vector<CommId> comms) {
    at(from);
    recorder().begin_wait();
    at(to);
    recorder().end_wait(comms);
  }
  RankRecord take(std::int64_t now) {
    at(now);
    auto record = Recorder::take();
    REQUIRE(record.ok());
    return std::move(*record);
  }
};

struct Row {
  NodeKind kind;
  int lane;
  int comm;
  std::int64_t start_ns, end_ns;
  bool operator==(const Row&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Row& row) {
  return out << "{kind " << int(row.kind) << ", lane " << row.lane << ", comm " << row.comm << ", " << row.start_ns
             << ".." << row.end_ns << "}";
}

std::vector<Row> rows(const RankRecord& record) {
  std::vector<Row> out;
  for (const auto& n : record.nodes) out.push_back({n.kind, n.lane, n.comm, n.start_ns, n.start_ns + n.duration_ns});
  return out;
}
std::vector<std::pair<int, int>> edges(const RankRecord& record) {
  std::vector<std::pair<int, int>> out;
  for (const auto& e : record.edges) out.emplace_back(e.src, e.dst);
  return out;
}

constexpr auto kCompute = NodeKind::kCompute, kIssue = NodeKind::kIssue, kTransfer = NodeKind::kTransfer,
               kWait = NodeKind::kWait;

}  // namespace

TEST_CASE("what a training step does between its communications is compute") {
  Job job;
  CommId reduce = job.issue(100, 110, {.op = Op::kAllReduce, .dtype = DType::kFloat32, .async = true});
  job.recorder().transfer_done(reduce, 400);
  job.wait(300, 420, {reduce});
  RankRecord record = job.take(1000);
  CHECK(rows(record) == std::vector<Row>{{kCompute, 0, -1, 0, 100},
                                         {kIssue, 0, 0, 100, 110},
                                         {kTransfer, 0, 0, 110, 400},
                                         {kCompute, 0, -1, 110, 300},
                                         {kWait, 0, 0, 300, 420},
                                         {kCompute, 0, -1, 420, 1000}});
  CHECK(edges(record) == std::vector<std::pair<int, int>>{{1, 2}, {2, 4}});
  CHECK(record.lanes == std::vector<std::string>{"main"});
  CHECK(record.comms[0].flags == kCommAsync);
}

TEST_CASE("spans below the clock's resolution are merged, not invented") {
  Job job;
  CommId a = job.issue(100, 110, {.op = Op::kBarrier});
  job.wait(110, 150, {a});
  CommId b = job.issue(150, 160, {.op = Op::kBarrier});
  job.wait(160, 160, {b});
  RankRecord record = job.take(160);
  CHECK(rows(record) == std::vector<Row>{{kCompute, 0, -1, 0, 100},
                                         {kIssue, 0, 0, 100, 110},
                                         {kTransfer, 0, 0, 110, 150},
                                         {kWait, 0, 0, 110, 150},
                                         {kIssue, 0, 1, 150, 160},
                                         {kTransfer, 0, 1, 160, 160},
                                         {kWait, 0, 1, 160, 160}});
}

TEST_CASE("the structure of a bare graph does not depend on the clock") {
  auto structure = [](std::int64_t step) {
    Job job(/*timed=*/false);
    CommId a = job.issue(step, 2 * step, {.op = Op::kBarrier});
    job.wait(2 * step, 3 * step, {a});
    std::vector<NodeKind> kinds;
    for (const auto& node : job.take(3 * step).nodes) kinds.push_back(node.kind);
    return kinds;
  };
  CHECK(structure(0) == structure(10));
}

TEST_CASE("collectives are numbered per group, messages per peer, tag and direction") {
  Job job;
  auto seq = [&](CommInfo info) { job.issue(1, 2, info); };
  seq({.op = Op::kAllReduce});
  seq({.op = Op::kSend, .peer = 1, .tag = 0});
  seq({.op = Op::kBroadcast, .peer = 0});
  seq({.op = Op::kSend, .peer = 1, .tag = 7});
  seq({.op = Op::kRecv, .peer = 1, .tag = 0});
  seq({.op = Op::kSend, .peer = 1, .tag = 0});
  std::vector<std::int32_t> members{1, 0};
  std::uint32_t other = job.recorder().group("other", members);
  job.recorder().end_issue(job.recorder().begin_issue({.op = Op::kBroadcast, .group = other, .peer = 0}));
  CHECK(job.recorder().group("world", members) == job.world);
  RankRecord record = job.take(10);
  std::vector<std::int64_t> seqs;
  for (const auto& comm : record.comms) seqs.push_back(comm.seq);
  CHECK(seqs == std::vector<std::int64_t>{0, 0, 1, 0, 0, 1, 0});
  CHECK(record.comms[2].flags == kCommIsRoot);  // group rank 0 of "world" is this rank
  CHECK(record.comms[6].flags == 0);            // group rank 0 of "other" is rank 1
}

TEST_CASE("a coalesced batch is one issue with one transfer per message") {
  Job job;
  std::int32_t batch = job.recorder().next_batch();
  job.at(10);
  CommId send = job.recorder().begin_issue({.op = Op::kSend, .group = job.world, .peer = 1, .batch = batch});
  CommId recv = job.recorder().begin_issue({.op = Op::kRecv, .group = job.world, .peer = 1, .batch = batch});
  job.at(12);
  job.recorder().end_issue(send);
  job.at(14);
  job.recorder().end_issue(recv);
  job.recorder().transfer_done(send, 50);
  job.recorder().transfer_done(recv, 30);
  job.wait(20, 55, {send, recv});
  RankRecord record = job.take(55);
  CHECK(rows(record) == std::vector<Row>{{kCompute, 0, -1, 0, 10},
                                         {kIssue, 0, 0, 10, 14},
                                         {kTransfer, 0, 0, 14, 50},
                                         {kTransfer, 0, 1, 14, 30},
                                         {kCompute, 0, -1, 14, 20},
                                         {kWait, 0, 0, 20, 55}});
  CHECK(edges(record) == std::vector<std::pair<int, int>>{{1, 2}, {1, 3}, {2, 5}, {3, 5}});
}

TEST_CASE("a transfer ends between its issue and the first wait for it, whenever its end is reported") {
  Job job;
  CommId early = job.issue(10, 20, {.op = Op::kBarrier});
  job.recorder().transfer_done(early, 15);  // completed inside the call
  CommId late = job.issue(30, 40, {.op = Op::kBarrier});
  job.wait(50, 60, {late});
  job.recorder().transfer_done(late, 65);  // reported after the waiter woke
  CommId never = job.issue(70, 80, {.op = Op::kBarrier});
  (void)never;
  RankRecord record = job.take(100);
  std::vector<Row> transfers;
  for (const Row& row : rows(record))
    if (row.kind == kTransfer) transfers.push_back(row);
  CHECK(transfers ==
        std::vector<Row>{{kTransfer, 0, 0, 20, 20}, {kTransfer, 0, 1, 40, 60}, {kTransfer, 0, 2, 80, 100}});
}

TEST_CASE("iterations begin where the program says so, and spans have the program's names") {
  Job job;
  for (std::int64_t i = 0; i < 2; ++i) {
    job.at(100 * i + 10);
    job.recorder().mark_iteration();
    job.recorder().name_next_span("forward");
    CommId a = job.issue(100 * i + 50, 100 * i + 60, {.op = Op::kBarrier});
    job.wait(100 * i + 60, 100 * i + 70, {a});
  }
  RankRecord record = job.take(200);
  CHECK(record.marks == std::vector<std::uint32_t>{1, 6});
  for (std::uint32_t mark : record.marks) CHECK(record.nodes[mark].name == "forward");
  CHECK(record.nodes[1].start_ns == 10);
  CHECK(record.nodes[6].start_ns == 110);
  CHECK(record.nodes[5].name.empty());
}

TEST_CASE("memory is a step function that keeps the peaks between nodes") {
  Job job;
  job.recorder().memory(100);
  job.recorder().memory(900);
  job.recorder().memory(-950);
  CommId a = job.issue(10, 20, {.op = Op::kBarrier});
  job.wait(20, 30, {a});
  job.recorder().memory(25);
  RankRecord record = job.take(40);
  REQUIRE(record.memory.size() == 2);
  CHECK(record.memory[0].node == 0);
  CHECK(record.memory[0].bytes == 50);
  CHECK(record.memory[0].peak == 1000);
  CHECK(record.memory[1].node == 4);
  CHECK(record.memory[1].bytes == 75);
  CHECK(record.memory[1].peak == 75);
}

TEST_CASE("memory beyond the limit is refused, not counted, and may be asked for again when there is room") {
  Job job;
  Recorder& recorder = job.recorder();
  recorder.set_memory_limit(1000);
  REQUIRE(recorder.memory(900));
  CHECK_FALSE(recorder.memory(101));
  CHECK(recorder.memory(100));
  CHECK_FALSE(recorder.memory(1));
  REQUIRE(recorder.memory(-900));
  CHECK(recorder.memory(101));
  const MemoryInUse in_use = recorder.memory_in_use();
  CHECK(in_use.tensors == 201);
  CHECK(in_use.tensors_peak == 1000);
  CHECK(in_use.limit == 1000);
  RankRecord record = job.take(10);
  REQUIRE(record.memory.size() == 1);
  CHECK(record.memory[0].bytes == 201);
  CHECK(record.memory[0].peak == 1000);
}

TEST_CASE("what is in use may be given back although a limit has come below it") {
  Job job;
  REQUIRE(job.recorder().memory(500));
  job.recorder().set_memory_limit(100);
  CHECK_FALSE(job.recorder().memory(1));
  CHECK(job.recorder().memory(-450));
  CHECK(job.recorder().memory(50));
}

TEST_CASE("communicators take their part of the limit and none of the trace") {
  Job job;
  Recorder& recorder = job.recorder();
  recorder.set_memory_limit(1000);
  REQUIRE(recorder.memory(300));
  REQUIRE(recorder.communicator_memory(600));
  CHECK_FALSE(recorder.communicator_memory(101));
  CHECK_FALSE(recorder.memory(101));
  REQUIRE(recorder.memory(-300));
  REQUIRE(recorder.memory(400));
  REQUIRE(recorder.communicator_memory(-600));
  const MemoryInUse in_use = recorder.memory_in_use();
  CHECK(in_use.communicators == 0);
  CHECK(in_use.communicators_peak == 600);
  CHECK(in_use.tensors_peak == 400);
  CHECK(in_use.peak == 1000);
  RankRecord record = job.take(10);
  REQUIRE(record.memory.size() == 1);
  CHECK(record.memory[0].peak == 400);
}

TEST_CASE("threads that race for the last bytes below a limit never pass it together") {
  Job job;
  Recorder& recorder = job.recorder();
  recorder.set_memory_limit(100);
  std::atomic<int> granted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) granted += recorder.memory(1);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(granted == 100);
  CHECK(recorder.memory_in_use().tensors_peak == 100);
}

TEST_CASE("memory that many threads take and give back is counted exactly") {
  Job job;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([recorder = &job.recorder()] {
      for (int i = 0; i < 10000; ++i) {
        recorder->memory(64);
        recorder->memory(-32);
      }
    });
  for (auto& thread : threads) thread.join();
  RankRecord record = job.take(10);
  REQUIRE(record.memory.size() == 1);
  CHECK(record.memory[0].bytes == 4 * 10000 * 32);
  CHECK(record.memory[0].peak >= record.memory[0].bytes);
  CHECK(record.memory[0].peak <= record.memory[0].bytes + 4 * 32);
}

TEST_CASE("each thread has its lane, and a callback depends on what completed") {
  Job job;
  CommId first = job.issue(10, 20, {.op = Op::kAllReduce});
  std::thread([&] {
    pthread_setname_np(pthread_self(), "pt_autograd_0");
    job.issue(21, 22, {.op = Op::kBroadcast, .peer = 0});
  }).join();
  job.recorder().transfer_done(first, 30);
  std::thread([&] {
    job.at(31);
    job.recorder().begin_callback(first);
    job.issue(35, 40, {.op = Op::kAllReduce});
    job.at(45);
    job.recorder().end_callback();
    job.at(60);  // idle between callbacks
    job.recorder().begin_callback(1);
    job.at(70);
    job.recorder().end_callback();
  }).join();
  job.wait(80, 90, {2});
  RankRecord record = job.take(90);
  CHECK(record.lanes == std::vector<std::string>{"main", "autograd-0", "callback-0"});
  CHECK(rows(record) == std::vector<Row>{{kCompute, 0, -1, 0, 10},
                                         {kIssue, 0, 0, 10, 20},
                                         {kTransfer, 0, 0, 20, 30},
                                         {kCompute, 0, -1, 20, 80},
                                         {kWait, 0, 2, 80, 90},
                                         {kIssue, 1, 1, 21, 22},
                                         {kTransfer, 1, 1, 22, 90},
                                         {kCompute, 2, -1, 31, 35},
                                         {kIssue, 2, 2, 35, 40},
                                         {kTransfer, 2, 2, 40, 90},
                                         {kCompute, 2, -1, 40, 45}});
  CHECK(edges(record) == std::vector<std::pair<int, int>>{{1, 2}, {5, 6}, {8, 9}, {9, 4}, {2, 7}});
}

TEST_CASE("a callback that runs on the program's own thread stays on its lane") {
  Job job;
  CommId first = job.issue(10, 20, {.op = Op::kAllReduce});
  job.recorder().transfer_done(first, 25);
  job.at(30);
  job.recorder().begin_callback(first);
  job.issue(40, 50, {.op = Op::kAllReduce});
  job.at(55);
  job.recorder().end_callback();
  job.at(60);
  job.recorder().begin_callback(first);  // this one communicates nothing and leaves no trace
  job.at(65);
  job.recorder().end_callback();
  RankRecord record = job.take(70);
  CHECK(rows(record) == std::vector<Row>{{kCompute, 0, -1, 0, 10},
                                         {kIssue, 0, 0, 10, 20},
                                         {kTransfer, 0, 0, 20, 25},
                                         {kCompute, 0, -1, 20, 30},
                                         {kCompute, 0, -1, 30, 40},
                                         {kIssue, 0, 1, 40, 50},
                                         {kTransfer, 0, 1, 50, 70},
                                         {kCompute, 0, -1, 50, 55},
                                         {kCompute, 0, -1, 55, 70}});
  CHECK(edges(record) == std::vector<std::pair<int, int>>{{1, 2}, {5, 6}, {2, 4}});
}

TEST_CASE("an operation issued inside a wait cuts the wait in two") {
  Job job;
  CommId first = job.issue(10, 20, {.op = Op::kAllReduce});
  job.at(30);
  job.recorder().begin_wait();
  job.issue(40, 50, {.op = Op::kAllReduce});
  job.at(60);
  job.recorder().end_wait(std::vector<CommId>{first});
  CHECK(rows(job.take(60)) == std::vector<Row>{{kCompute, 0, -1, 0, 10},
                                               {kIssue, 0, 0, 10, 20},
                                               {kTransfer, 0, 0, 20, 60},
                                               {kCompute, 0, -1, 20, 30},
                                               {kWait, 0, -1, 30, 40},
                                               {kIssue, 0, 1, 40, 50},
                                               {kTransfer, 0, 1, 50, 60},
                                               {kWait, 0, 0, 50, 60}});
}

TEST_CASE("a process records again after finish, and lanes of the old recording are not followed") {
  {
    Job job;
    job.issue(10, 20, {.op = Op::kBarrier});
    job.take(30);
    CHECK(Recorder::active() == nullptr);
  }
  Job job;
  job.at(5);
  job.recorder().begin_wait();
  std::thread([&] { job.issue(6, 7, {.op = Op::kBarrier}); }).join();
  RankRecord record = job.take(8);
  CHECK(record.lanes == std::vector<std::string>{"main", "thread-0"});
  CHECK(record.nodes.size() == 4);  // compute, open wait; issue, transfer
}

TEST_CASE("two recordings at once, or none, are an error that says so") {
  Job job(true, "first.prism");
  auto second = Recorder::start({.path = "second.prism"});
  REQUIRE_FALSE(second.ok());
  CHECK(second.error().message.find("first.prism") != std::string::npos);
  job.take(1);
  CHECK_FALSE(Recorder::finish().ok());
}

TEST_CASE("a forked child of a rank records nothing") {
  Job job;
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(Recorder::active() == nullptr ? 0 : 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(Recorder::active() != nullptr);
}

TEST_CASE("a call that the backend refused leaves no communication and no gap in its sequence") {
  Job job;
  CommInfo all_reduce{.op = Op::kAllReduce, .group = job.world};
  job.issue(0, 1, all_reduce);
  CommInfo wrong{.op = Op::kBroadcast, .group = job.world, .peer = 99};
  const CommId refused = job.recorder().begin_issue(wrong);
  const CommId other = [&] {  // of another thread, while the first still asks the backend
    CommId comm = kNoComm;
    std::thread([&] { comm = job.issue(2, 3, all_reduce); }).join();
    return comm;
  }();
  REQUIRE(other != kNoComm);
  job.recorder().withdraw_issue(refused);
  job.issue(4, 5, all_reduce);
  const RankRecord record = job.take(6);
  REQUIRE(record.comms.size() == 3);
  std::vector<std::int64_t> sequence;
  for (const auto& comm : record.comms) {
    CHECK(comm.op == Op::kAllReduce);
    sequence.push_back(comm.seq);
  }
  std::ranges::sort(sequence);
  CHECK(sequence == std::vector<std::int64_t>{0, 1, 2});
}
