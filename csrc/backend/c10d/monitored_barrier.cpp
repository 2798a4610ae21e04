#include "backend/c10d/monitored_barrier.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "backend/c10d/session.hpp"

namespace prism {
namespace {

// Messages of one byte between group rank 0 and another member, apart from the program's by their tags.
class Messages {
 public:
  Messages(RankClient& client, GroupHandle group, std::uint64_t number)
      : client_(client),
        group_(group),
        tag_(std::numeric_limits<std::int32_t>::min() + static_cast<std::int32_t>(number % (1u << 30))) {}

  WorkId send(int peer, std::uint8_t value) {
    auto region = client_.stage(1);
    if (!region) throw_distributed(region.error());
    *client_.data(*region) = static_cast<std::byte>(value);
    return issue(Op::kSend, peer, {*region}, [](const Outcome&) {});
  }

  // The byte, or why none came.
  Result<std::uint8_t> receive(int peer, Deadline deadline) {
    auto answer = std::make_shared<Result<std::uint8_t>>(std::uint8_t{0});
    const WorkId work = issue(Op::kRecv, peer, {}, [answer, client = &client_](const Outcome& outcome) {
      if (outcome.status)
        *answer = static_cast<std::uint8_t>(*client->data(outcome.regions.at(0)));
      else
        *answer = outcome.status.error();
    });
    if (auto waited = client_.wait({&work, 1}, deadline); !waited) return waited.error();
    return *answer;
  }

 private:
  WorkId issue(Op op, int peer, std::vector<Region> inputs, RankClient::Completion done) {
    Operation operation;
    operation.group = group_;
    operation.op = op;
    operation.dtype = DType::kUInt8;
    operation.peer = peer;
    operation.tag = tag_;
    operation.number = kNotInTrace;
    operation.inputs = std::move(inputs);
    operation.shapes = {{1}};
    if (op == Op::kRecv) operation.output_bytes = {1};
    auto issued = client_.issue(operation, std::move(done));
    if (!issued) throw_distributed(issued.error());
    return *issued;
  }

  RankClient& client_;
  const GroupHandle group_;
  const std::int32_t tag_;
};

}  // namespace

void monitored_barrier(RankClient& client, GroupHandle handle, const GroupInfo& group, std::uint64_t number,
                       std::chrono::milliseconds timeout, bool wait_all_ranks) {
  Messages messages(client, handle, number);
  const auto fail = [&](const std::string& text) {
    throw_distributed({ErrorCode::kTimeout, fmt::format("[Rank {}]: {}", group.rank, text)});
  };
  if (group.rank != 0) {
    const WorkId sent = messages.send(0, 1);
    // Rank 0 may wait for each of the others before it answers.
    const auto answer = messages.receive(0, capture_deadline(timeout * group.size()));
    if (answer && *answer == 1 && client.wait({&sent, 1}, capture_deadline(timeout))) return;
    fail(
        fmt::format("Rank {} successfully reached monitoredBarrier, but received errors while waiting for send/recv "
                    "from rank 0: {}",
                    group.rank, answer ? "another rank did not reach it" : answer.error().message));
  }
  if (timeout.count() <= 0 && group.size() > 1)
    fail(fmt::format("Rank 0 timed out in monitoredBarrier after {} ms", timeout.count()));
  std::vector<int> missing;
  for (int peer = 1; peer < group.size() && (missing.empty() || wait_all_ranks); ++peer)
    if (const auto came = messages.receive(peer, capture_deadline(timeout)); !came) {
      if (came.error().code != ErrorCode::kTimeout) throw_distributed(came.error());
      missing.push_back(peer);
    }
  std::vector<WorkId> answers;
  for (int peer = 1; peer < group.size(); ++peer)
    if (std::ranges::find(missing, peer) == missing.end()) answers.push_back(messages.send(peer, missing.empty()));
  if (!missing.empty())
    fail(fmt::format("Rank{} {} failed to pass monitoredBarrier in {} ms", missing.size() > 1 ? "s" : "",
                     fmt::join(missing, ", "), timeout.count()));
  if (auto answered = client.wait(answers, capture_deadline(timeout)); !answered) throw_distributed(answered.error());
}

}  // namespace prism
