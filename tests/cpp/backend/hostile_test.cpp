// What comes from a socket is not trusted: bad bytes are an error with the rank's number, never a crash.
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "backend/harness.hpp"
#include "backend/protocol/messages.hpp"
#include "backend/protocol/socket.hpp"
#include "catch2.hpp"

using namespace prism;
using namespace prism::test;

namespace {

// A coordinator for one rank, somebody who speaks its protocol by hand, and how the run ended. `accepted`: by itself.
Result<void> run_with(const std::function<void(int fd)>& speak, bool accepted = true) {
  auto options = small_coordinator(1, 1);
  options.join_timeout = std::chrono::seconds(20);
  Coordinator coordinator(options, std::make_shared<PlainExecutor>());
  Result<void> result;
  std::thread loop([&] { result = coordinator.run(); });
  {
    auto fd = connect_to(options.address, Deadline::after(std::chrono::seconds(20)));
    if (fd) speak(fd->get());
    // The other end closes when it has had enough.
    char bytes[4096];
    while (fd && recv(fd->get(), bytes, sizeof bytes, 0) > 0) {
    }
  }
  if (!accepted) coordinator.abort({ErrorCode::kAborted, "the test is over"});
  loop.join();
  return result;
}

wire::Buffer hello() {
  wire::Buffer out;
  wire::append_frame(out, wire::Hello{wire::kProtocolVersion, 0, 1});
  return out;
}

wire::Buffer sample_issue() {
  wire::Issue issue;
  issue.work = 1;
  issue.operation.group = 1;
  issue.operation.op = Op::kAllReduce;
  issue.operation.dtype = DType::kFloat32;
  issue.operation.reduce_op = ReduceOp::kSum;
  issue.operation.inputs = {{0, 64}};
  issue.operation.output_bytes = {64};
  issue.operation.shapes = {{4, 4}};
  wire::Buffer out;
  wire::append_frame(out, issue);
  return out;
}

}  // namespace

TEST_CASE("messages read what was written") {
  const auto out = sample_issue();
  const auto frame = wire::first_frame(out);
  REQUIRE(frame.ok());
  const auto issue = wire::decode<wire::Issue>(**frame);
  REQUIRE(issue.has_value());
  REQUIRE(issue->operation.inputs.at(0).bytes == 64);
  REQUIRE(issue->operation.shapes == std::vector<std::vector<std::int64_t>>{{4, 4}});
  REQUIRE(issue->operation.output_bytes == std::vector<std::uint64_t>{64});
}

TEST_CASE("every truncation and every changed byte of a message is read without harm") {
  const auto whole = sample_issue();
  const std::span<const std::uint8_t> body(whole.data() + wire::kFrameHeaderBytes,
                                           whole.size() - wire::kFrameHeaderBytes);
  for (std::size_t length = 0; length < body.size(); ++length)
    REQUIRE_FALSE(wire::decode<wire::Issue>({wire::MessageType::kIssue, body.first(length)}).has_value());
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    wire::Buffer changed(body.begin(), body.end());
    for (int i = 0; i < 3; ++i) changed[random() % changed.size()] = static_cast<std::uint8_t>(random());
    const auto issue = wire::decode<wire::Issue>({wire::MessageType::kIssue, changed});
    if (!issue) continue;
    ++accepted;
    REQUIRE(issue->operation.op < Op::kCount);
    REQUIRE(issue->operation.dtype < DType::kCount);
  }
  REQUIRE(accepted > 0);
}

TEST_CASE("a stranger's bytes do not end the run") {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    const auto result = run_with(
        [&](int fd) {
          wire::Buffer noise(1 + random() % 300);
          for (auto& byte : noise) byte = static_cast<std::uint8_t>(random());
          send_all(fd, noise);
          shutdown(fd, SHUT_WR);
        },
        false);
    REQUIRE(result.error().message == "the test is over");
  }
}

TEST_CASE("a greeting with a wrong rank, world or version is refused, and the place stays free") {
  for (const auto& wrong : {wire::Hello{wire::kProtocolVersion, 1, 1}, wire::Hello{wire::kProtocolVersion, 0, 2},
                            wire::Hello{wire::kProtocolVersion + 1, 0, 1}}) {
    const auto result = run_with(
        [&](int fd) {
          wire::Buffer out;
          wire::append_frame(out, wrong);
          send_all(fd, out);
        },
        false);
    REQUIRE(result.error().message == "the test is over");
  }
}

TEST_CASE("random frames of an accepted rank end the run with its number") {
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    const auto result = run_with([&](int fd) {
      auto out = hello();
      wire::Buffer body(random() % 64);
      for (auto& byte : body) byte = static_cast<std::uint8_t>(random());
      const auto size = static_cast<std::uint32_t>(body.size());
      out.insert(out.end(), reinterpret_cast<const std::uint8_t*>(&size),
                 reinterpret_cast<const std::uint8_t*>(&size) + 4);
      out.push_back(static_cast<std::uint8_t>(random() % 24));
      out.insert(out.end(), body.begin(), body.end());
      send_all(fd, out);
      shutdown(fd, SHUT_WR);
    });
    REQUIRE_FALSE(result.ok());
    REQUIRE_THAT(result.error().message, ContainsSubstring("rank 0"));
  }
}

TEST_CASE("an input outside of the rank's own window is refused") {
  for (const Region region : {Region{1ull << 62, 8}, Region{0, ~0ull}, Region{~0ull, 8}, Region{(1ull << 30) - 4, 8}}) {
    const auto result = run_with([&](int fd) {
      auto out = hello();
      wire::append_frame(out, wire::JoinGroup{1, "g", {0}});
      wire::Issue issue;
      issue.work = 1;
      issue.operation.group = 1;
      issue.operation.op = Op::kAllGather;
      issue.operation.dtype = DType::kUInt8;
      issue.operation.inputs = {region};
      issue.operation.output_bytes = {region.bytes};
      wire::append_frame(out, issue);
      send_all(fd, out);
    });
    REQUIRE_THAT(result.error().message,
                 ContainsSubstring("rank 0") && ContainsSubstring("lies outside of its window"));
  }
}

TEST_CASE("a frame that announces more than is accepted is refused before anything is kept") {
  const auto result = run_with([&](int fd) {
    auto out = hello();
    out.insert(out.end(), {0xff, 0xff, 0xff, 0x7f, 3});
    send_all(fd, out);
  });
  REQUIRE_THAT(result.error().message, ContainsSubstring("rank 0"));
}

TEST_CASE("a client that finds no coordinator says so") {
  RankClient::Options client{fresh_address(), 0, 1, std::chrono::milliseconds(20), false};
  const auto connected = RankClient::connect(client);
  REQUIRE_FALSE(connected.ok());
  REQUIRE_THAT(connected.error().message, ContainsSubstring("no coordinator answers"));
}

TEST_CASE("a coordinator whose queue is full and that takes nobody is waited for up to the deadline") {
  const auto name = fresh_address();
  const auto address = abstract_address(name).value();
  UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind(listener.get(), address.get(), address.length) == 0);
  REQUIRE(listen(listener.get(), 0) == 0);
  std::vector<UniqueFd> queued;
  auto next = connect_to(name, Deadline::after(std::chrono::milliseconds(20)));
  for (; next && queued.size() < 8; next = connect_to(name, Deadline::after(std::chrono::milliseconds(20))))
    queued.push_back(std::move(*next));
  REQUIRE_FALSE(next.ok());
  REQUIRE(next.error().code == ErrorCode::kPeerFailed);
}
