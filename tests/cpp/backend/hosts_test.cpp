// Ranks of one job on two hosts. A second ctest entry (backend_on_two_hosts) runs the other files' jobs so, too.
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "backend/coordinator/scheduler.hpp"
#include "backend/harness.hpp"
#include "backend/protocol/link.hpp"
#include "backend/protocol/messages.hpp"
#include "backend/protocol/socket.hpp"
#include "catch2.hpp"

using namespace prism;
using namespace prism::test;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// A coordinator of a job of two ranks, one here and one on host 1, and somebody who speaks for host 1 by hand.
Result<void> run_with_host(const std::function<void(int fd)>& speak, milliseconds host_timeout = seconds(20),
                           milliseconds join_timeout = seconds(20)) {
  auto options = small_coordinator(2, 2);
  options.host_timeout = host_timeout;
  options.join_timeout = join_timeout;
  LoopbackListener listener;
  spread_over_hosts(options, 2, listener);
  Coordinator coordinator(options, std::make_shared<PlainExecutor>());
  Result<void> result;
  std::thread loop([&] { result = coordinator.run(); });
  UniqueFd fd(listener.connect());
  speak(fd.get());
  char bytes[4096];
  while (recv(fd.get(), bytes, sizeof bytes, 0) > 0) {
  }
  loop.join();
  return result;
}

void say(int fd, const auto&... messages) {
  wire::Buffer out;
  (wire::append_frame(out, messages), ...);
  send_all(fd, out);
}

wire::LinkHello greeting(std::uint32_t host = 1) { return {wire::kLinkVersion, host, "proof of 1"}; }

std::string failure(const Result<void>& result) { return result ? "" : result.error().message; }

}  // namespace

TEST_CASE("a host's ranks run on its slots alone") {
  Scheduler scheduler({{2, 1}, {3, 2}});
  for (int rank = 0; rank < 5; ++rank) scheduler.make_ready(rank, true);
  CHECK(scheduler.grant(0) == 0);
  CHECK(scheduler.grant(0) == 2);
  CHECK(scheduler.grant(0) == 3);
  CHECK(scheduler.grant(0) == -1);  // ranks 1 and 4 wait for slots of their own hosts
  CHECK(scheduler.waiting_at(0) == 1);
  CHECK(scheduler.waiting_at(1) == 1);
  scheduler.release(2, SlotState::kBlocked);
  CHECK(scheduler.has_free_slot(3));
  CHECK_FALSE(scheduler.has_free_slot(0));
  CHECK(scheduler.grant(0) == 4);
  CHECK(scheduler.grant(0) == -1);
  CHECK(scheduler.switches() == 1);
}

TEST_CASE("the switches that a barrier of all needs are those of each host") {
  Scheduler scheduler({{4, 1}, {4, 2}});
  CHECK(scheduler.switches_needed({0, 1, 2, 3, 4, 5, 6, 7}) == 3 + 2);
  CHECK(scheduler.switches_needed({0, 4, 5}) == 0);
}

TEST_CASE("large tensors cross between hosts in pieces and arrive whole", "[one_host]") {
  ::setenv("PRISM_TEST_HOSTS", "3", 1);
  // 5 MB and an odd number of bytes: many pieces, and padding.
  const auto job = run_job(6, 3, [](Rank& self) {
    const std::size_t count = 650'001;
    std::vector<std::int64_t> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::int64_t>(i) * (self.rank() + 1);
    const auto sum = self.all_reduce(values);
    for (std::size_t i = 0; i < count; i += 997) expect(sum[i] == static_cast<std::int64_t>(i) * 21, "the sum");
    const auto all =
        self.run(self.operation(Op::kAllGather, {self.put_as(std::vector<std::int64_t>{self.rank(), -self.rank()})},
                                std::vector<std::uint64_t>(6, 2)));
    for (int rank = 0; rank < 6; ++rank)
      expect(all.tensors.at(static_cast<std::size_t>(rank)) == std::vector<std::int64_t>{rank, -rank}, "gathered");
    const auto empty = self.run(self.operation(Op::kAllReduce, {self.put({})}, {0}));
    expect(empty.status.ok() && empty.tensors.at(0).empty(), "an empty tensor");
  });
  ::unsetenv("PRISM_TEST_HOSTS");
  require_ok(job);
}

TEST_CASE("a run that ends while what another host sent is being reduced lets go of it", "[one_host]") {
  struct EndsRun : PlainExecutor {
    std::atomic<Coordinator*> run{nullptr};
    std::atomic<int> told{0};
    Result<void> reduce(DType dtype, ReduceOp op, std::span<const ReducePiece> pieces) override {
      run.load()->abort({ErrorCode::kAborted, "the test is over"});
      while (told < 2) std::this_thread::yield();  // until both ranks know
      return PlainExecutor::reduce(dtype, op, pieces);
    }
  };
  auto options = small_coordinator(2, 2);
  LoopbackListener listener;
  spread_over_hosts(options, 2, listener);
  const auto relay = relay_options(options, 1, listener.connect());
  auto executor = std::make_shared<EndsRun>();
  auto coordinator = std::make_unique<Coordinator>(options, executor);
  executor->run = coordinator.get();
  Result<void> result;
  std::vector<std::thread> threads;
  threads.emplace_back([&] { result = coordinator->run(); });
  threads.emplace_back([&] { static_cast<void>(Relay(relay).run()); });
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      RankClient::Options client;
      client.address = rank == 0 ? options.address : relay.address;
      client.rank = rank;
      client.world_size = 2;
      client.alone_in_process = false;
      auto connected = RankClient::connect(client);
      if (connected) {
        Rank self(std::move(*connected), rank, 2);
        self.run(self.operation(Op::kAllReduce, {self.put({1, 2, 3})}, {3}));
      }
      ++executor->told;
    });
  for (auto& thread : threads) thread.join();
  CHECK(failure(result) == "the test is over");
  coordinator.reset();  // with the reduction's last word still to be read
}

TEST_CASE("messages between hosts read what was written, and nothing else") {
  wire::Buffer inner, out;
  wire::append_frame(inner, wire::Grant{7});
  wire::append_frame(out, wire::RankFrames{3, inner});
  const auto frame = wire::first_frame(out).value();
  REQUIRE(frame.has_value());
  const auto read = wire::decode<wire::RankFrames>(*frame);
  REQUIRE(read.has_value());
  CHECK(read->rank == 3);
  CHECK(wire::Buffer(read->frames.begin(), read->frames.end()) == inner);
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    wire::Buffer changed = out;
    changed[random() % changed.size()] = static_cast<std::uint8_t>(random());
    if (const auto again = wire::first_frame(changed); again && *again) {
      wire::decode<wire::RankFrames>(**again);
      wire::decode<wire::RankInputs>(**again);
      wire::decode<wire::RankChanged>(**again);
    }
  }
}

TEST_CASE("a host that does not know the secret is not let in, and its place stays free") {
  const auto result = run_with_host(
      [](int fd) {
        say(fd, wire::LinkHello{wire::kLinkVersion, 1, "proof of 0"});
        char bytes[4096];
        const auto got = recv(fd, bytes, sizeof bytes, 0);
        const auto answer = std::string(bytes, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        CHECK(answer.find("does not know this run's secret") != std::string::npos);
      },
      seconds(20), milliseconds(200));
  // Nobody came in its stead.
  CHECK(failure(result).find("have not connected") != std::string::npos);
}

TEST_CASE("a host whose connection closes ends the run with its ranks' numbers") {
  const auto result = run_with_host([](int fd) {
    say(fd, greeting(), wire::RankJoined{1});
    shutdown(fd, SHUT_WR);
  });
  CHECK(failure(result) == "host h1 (rank 1) is lost: its connection has closed");
}

TEST_CASE("a host that says nothing for too long ends the run") {
  const auto result = run_with_host([](int fd) { say(fd, greeting(), wire::RankJoined{1}); }, milliseconds(50));
  CHECK(failure(result).find("host h1 (rank 1) is lost: nothing was heard of it for") == 0);
}

TEST_CASE("what a host may not say ends the run with its name") {
  wire::Buffer issue;
  wire::Issue message;
  message.work = 1;
  message.operation.group = 1;
  message.operation.op = Op::kAllReduce;
  message.operation.inputs = {{0, 64}};
  wire::append_frame(issue, message);
  const wire::Buffer half(issue.begin(), issue.end() - 1);
  const std::vector<std::uint8_t> bytes(100);
  const auto after_joining = [](const auto&... messages) {
    return failure(run_with_host([&](int fd) { say(fd, greeting(), wire::RankJoined{1}, messages...); }));
  };
  CHECK(after_joining(wire::RankJoined{1}) == "host h1 (rank 1): rank 1 is connected already");
  CHECK(after_joining(wire::RankJoined{0}) == "host h1 (rank 1): it speaks for rank 0, which is not of this host");
  CHECK(after_joining(wire::RankJoined{7}) == "host h1 (rank 1): it speaks for rank 7, which is not of this host");
  CHECK(after_joining(wire::BlockBytes{bytes}) == "host h1 (rank 1): 100 bytes of a tensor of which 0 are missing");
  CHECK(after_joining(wire::RankInputs{1, 1, 64}, wire::RankInputs{1, 2, 64}) ==
        "host h1 (rank 1): inputs of operation 2 of rank 1 out of turn");
  CHECK(after_joining(wire::RankInputs{1, 1, std::uint64_t{1} << 60}).find("host h1 (rank 1): what rank 1 sends: ") ==
        0);
  CHECK(after_joining(wire::RankFrames{1, half}) == "host h1 (rank 1): half a message of rank 1");
  CHECK(after_joining(wire::RankFrames{1, issue}) == "rank 1: operation 1 without the 64 bytes of its inputs");
  CHECK(after_joining(wire::RankInputs{1, 1, 128}, wire::BlockBytes{bytes}, wire::RankFrames{1, issue}) ==
        "rank 1: operation 1 without the 64 bytes of its inputs");
  CHECK(after_joining(wire::Grant{1}) == fmt::format("host h1 (rank 1): a message of type {}, which relays do not send",
                                                     static_cast<int>(wire::MessageType::kGrant)));
  CHECK(after_joining(wire::Abort{{ErrorCode::kIo, "no memory here"}}) == "host h1 (rank 1): no memory here");
  CHECK(after_joining(wire::RankChanged{1, wire::ProcessChange::kEnded, "its process has ended"}) ==
        "rank 1 died: its process has ended");
}

TEST_CASE("a relay whose coordinator does not know the secret lets no rank in") {
  auto options = small_coordinator(2, 2);
  LoopbackListener listener;
  spread_over_hosts(options, 2, listener);
  auto relay = relay_options(options, 1, listener.connect());
  relay.coordinators_proof = "another";
  Coordinator coordinator(options, std::make_shared<PlainExecutor>());
  Result<void> result;
  std::thread loop([&] { result = coordinator.run(); });
  CHECK(failure(Relay(relay).run()) == "what answers does not know this run's secret");
  loop.join();
  CHECK(failure(result) == "host h1 (rank 1): what answers does not know this run's secret");
}

TEST_CASE("a relay that loses its coordinator ends its ranks' waits with that reason") {
  auto options = small_coordinator(2, 2);
  LoopbackListener listener;
  spread_over_hosts(options, 2, listener);
  UniqueFd listening(options.link_fd);
  const auto relay = relay_options(options, 1, listener.connect());
  Result<void> result, rank_result;
  std::thread loop([&] { result = Relay(relay).run(); });
  // By hand: welcome the relay, give its rank a slot, and go away while the rank waits.
  UniqueFd fd;
  while (fd.get() < 0) fd = UniqueFd(accept(listening.get(), nullptr, nullptr));
  say(fd.get(), wire::LinkWelcome{"proof for 1", 2'000'000});
  std::thread rank([&] {
    RankClient::Options client;
    client.address = relay.address;
    client.rank = 1;
    client.world_size = 2;
    auto connected = RankClient::connect(client);
    rank_result = connected ? Result<void>() : connected.error();
    if (!connected) return;
    Rank self(std::move(*connected), 1, 2);
    const auto answer = self.run(self.operation(Op::kBarrier, {}, {}));
    rank_result = answer.status;
  });
  wire::Buffer grant;
  wire::append_frame(grant, wire::Grant{1});
  // The rank has joined when something comes behind the relay's greeting.
  std::string heard;
  char bytes[4096];
  wire::Buffer expected;
  wire::append_frame(expected, wire::RankJoined{1});
  const std::string joined(expected.begin(), expected.end());
  while (heard.find(joined) == std::string::npos) {
    const auto got = recv(fd.get(), bytes, sizeof bytes, 0);
    REQUIRE(got > 0);
    heard.append(bytes, static_cast<std::size_t>(got));
  }
  say(fd.get(), wire::RankFrames{1, grant});
  shutdown(fd.get(), SHUT_RDWR);
  rank.join();
  loop.join();
  CHECK(failure(result) == "the coordinator is lost: its connection has closed");
  CHECK(failure(rank_result) == "the coordinator is lost: its connection has closed");
}
