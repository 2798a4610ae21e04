// What a pruned collective looks like: its messages are those of the schedule that touch the sandbox, as few as that.
#include <map>
#include <set>
#include <tuple>

#include "replay/passing.hpp"
#include "replay/whole.hpp"

using namespace prism;
using namespace prism::test;

namespace {

using Kind = AssistantStep::Kind;
// Step, from, to, chunk, whether it is combined.
using Messages = std::multiset<std::tuple<int, int, int, int, bool>>;

Messages of_schedule(const simulate::Schedule& schedule, const Set& sandbox) {
  Messages messages;
  const auto in_sandbox = [&](int member) { return std::binary_search(sandbox.begin(), sandbox.end(), member); };
  std::vector<simulate::Send> sends;
  for (int member = 0; member < schedule.members(); ++member)
    for (int step = 0; step < schedule.steps(); ++step) {
      sends.clear();
      static_cast<void>(schedule.part(member, step, sends));
      for (const auto& send : sends)
        if (in_sandbox(member) || in_sandbox(send.to))
          for (int chunk = send.chunk; chunk < send.chunk + send.chunks; ++chunk)
            messages.emplace(step, member, send.to, chunk, send.combines);
    }
  return messages;
}

// As receivers have them; senders have to have them, too.
Messages of_plan(const PrunedCollective& plan) {
  Messages received, sent;
  const auto add = [](Messages& messages, int step, int from, int to, int chunk) {
    messages.emplace(step, from, to, chunk, false);
  };
  Messages all;
  for (const auto& [member, steps] : plan.sandbox)
    for (const auto& step : steps)
      if (step.kind == MemberStep::Kind::kSend) {
        add(sent, step.step, member, step.peer, step.chunk);
      } else {
        add(received, step.step, step.peer, member, step.chunk);
        all.emplace(step.step, step.peer, member, step.chunk, step.kind == MemberStep::Kind::kCombine);
      }
  for (const auto& assistant : plan.assistants)
    for (const auto& step : assistant.steps)
      if (step.kind != Kind::kCombine)
        add(step.kind == Kind::kSend ? sent : received, step.step, step.kind == Kind::kSend ? step.member : step.peer,
            step.kind == Kind::kSend ? step.peer : step.member, step.chunk);
  REQUIRE(sent == received);
  CHECK(static_cast<std::int64_t>(sent.size()) == plan.messages);
  // What assistants receive is combined or not at nobody; it is as the schedule has it.
  for (const auto& message : sent)
    if (all.count(message) == 0) {
      auto combined = message;
      std::get<4>(combined) = true;
      if (all.count(combined) == 0) all.insert(message);
    }
  return all;
}

Messages without_kind(const Messages& messages) {
  Messages all;
  for (auto message : messages) {
    std::get<4>(message) = false;
    all.insert(message);
  }
  return all;
}

}  // namespace

TEST_CASE("what is left are the schedule's messages from and to the sandbox, in their steps") {
  Random random{1};
  for (const auto& algorithm : kAlgorithms)
    for (int members = 1; members <= 24; ++members)
      for (int round = 0; round < 4; ++round) {
        const int root = random.below(members);
        const auto sandbox = random_set(random, members, 1 + random.below(std::min(members, 6)));
        const simulate::CollectiveShape shape{
            .op = algorithm.op, .members = members, .bytes = std::int64_t{members} << 16, .root = root};
        INFO(name(algorithm.op) << " by " << algorithm.name << " of " << members << ", root " << root << ", sandbox "
                                << Whole::text(sandbox));
        const auto schedule = simulate::make_schedule(shape, algorithm.name).value();
        const auto plan = prune(shape, algorithm.name, sandbox).value();
        const auto planned = of_plan(plan), scheduled = of_schedule(*schedule, sandbox);
        REQUIRE(without_kind(planned) == without_kind(scheduled));
        const auto in_sandbox = [&](int member) { return std::binary_search(sandbox.begin(), sandbox.end(), member); };
        for (const auto& message : planned)
          if (in_sandbox(std::get<2>(message))) REQUIRE(scheduled.count(message) == planned.count(message));
      }
}

TEST_CASE("all members of the sandbox: the whole algorithm, and no assistant") {
  for (const auto& algorithm : kAlgorithms) {
    Set everybody;
    for (int member = 0; member < 12; ++member) everybody.push_back(member);
    const auto plan =
        prune({.op = algorithm.op, .members = 12, .bytes = 1 << 20, .root = 5}, algorithm.name, everybody).value();
    CHECK(plan.assistants.empty());
    CHECK(plan.edges_across == 0);
    CHECK(plan.messages == plan.unpruned_messages);
  }
}

TEST_CASE("as many messages as the sandbox has edges, whatever the size of the group") {
  // Ring: N chunks go over each edge twice, but for the step in which each is at its owner. Edges: one behind each
  // sandbox member, and one before each of which the one before is virtual.
  for (const int members : {64, 1024, 8192}) {
    const auto ring = [&](const Set& sandbox) {
      return prune({.op = Op::kAllReduce, .members = members, .bytes = 1 << 20}, "ring", sandbox).value();
    };
    const auto together = ring({8, 9, 10, 11});
    CHECK(together.edges_within == 3);
    CHECK(together.edges_across == 2);
    CHECK(together.messages == 5 * 2 * (members - 1));
    const auto apart = ring({1, 5, 6, members - 1});
    CHECK(apart.edges_within == 1);
    CHECK(apart.edges_across == 6);
    CHECK(apart.messages == 7 * 2 * (members - 1));
    CHECK(apart.unpruned_messages == std::int64_t{members} * 2 * (members - 1));
    CHECK(together.assistants.size() == 1);  // both neighbours: what comes out on one side goes in on the other
    CHECK(together.assistants[0].members == Set{7, 12});
    CHECK(apart.assistants.size() == 3);  // one a gap
  }
  // Trees have at most three neighbours a member, doubling log2 N: in both directions, for each of P pieces.
  for (const int members : {64, 1024, 8192}) {
    const auto tree =
        prune({.op = Op::kAllReduce, .members = members, .bytes = 1 << 20}, "tree", Set{8, 9, 10, 11}).value();
    CHECK(tree.messages <= 4 * 2 * 3 * tree.chunks);
    const auto doubling =
        prune({.op = Op::kAllReduce, .members = members}, "recursive_doubling", Set{8, 9, 10, 11}).value();
    CHECK(doubling.messages <= 4 * 2 * std::log2(members));
    CHECK(doubling.unpruned_messages == members * std::log2(members));
  }
}

TEST_CASE("the ring of the paper's figure: ranks 43 and 44, played neighbours 42 and 45") {
  const auto plan = prune({.op = Op::kAllReduce, .members = 64}, "ring", Set{43, 44}).value();
  REQUIRE(plan.assistants.size() == 1);
  const auto& assistant = plan.assistants[0];
  CHECK(assistant.members == Set{42, 45});
  // The sandbox's own chunks go in with the virtual part: 43's after it has come out at 45; 44's has not been at 44
  // yet. Others go in empty, come out as the sandbox's sum, and go in whole.
  std::map<int, int> came_out;  // chunk -> step, in the phase that reduces
  int with_virtual_part = 0, empty = 0;
  for (const auto& step : assistant.steps) {
    if (step.kind == Kind::kReceive && step.step < 63) came_out[step.chunk] = step.step;
    if (step.kind == Kind::kCombine) {
      ++with_virtual_part;
      CHECK(step.virtual_part);
      const bool is_own = step.chunk == 43 || step.chunk == 44;
      CHECK((step.step < 63) == is_own);
      REQUIRE(step.sources == (step.chunk == 44 ? 0 : 1));
      if (step.sources == 1) CHECK(came_out.at(step.chunk) < step.step);
    }
    if (step.kind == Kind::kSend && step.buffer == AssistantStep::kIdentity) {
      ++empty;
      CHECK(step.step < 63);
    }
  }
  CHECK(with_virtual_part == 64);
  CHECK(empty == 61);  // of 63 steps
}

TEST_CASE("nobody waits for ever, in any order, with buffered or with rendezvous messages") {
  Random random{2};
  for (const Sends sends : {Sends::kBuffered, Sends::kRendezvous})
    for (const auto& algorithm : kAlgorithms)
      for (int round = 0; round < 40; ++round) {
        const int members = 1 + random.below(24), root = random.below(members);
        const Whole whole(algorithm.op, algorithm.name, members, root, random.below(1 << 19));
        const auto sandbox = random_set(random, members, 1 + random.below(members));
        INFO(name(algorithm.op) << " by " << algorithm.name << " of " << members << ", root " << root << ", sandbox "
                                << Whole::text(sandbox));
        const auto plan = whole.pruned(sandbox);
        auto own = whole.own(sandbox);
        auto arithmetic = whole.virtual_part(sandbox);
        Passing<std::uint64_t, Sums> passing(plan, own, arithmetic, sends);
        REQUIRE(passing.run(random()));
        whole.check(sandbox, own);
      }
}

TEST_CASE("buffers are used again as soon as nobody needs what is in them") {
  // A ring's assistant holds what is under way between its two sides: a chunk a member of the gap, and one at each end.
  const auto ring = prune({.op = Op::kAllReduce, .members = 1000}, "ring", Set{10, 11, 990}).value();
  REQUIRE(ring.assistants.size() == 2);
  CHECK(ring.assistants[0].buffers <= 19 + 2);
  CHECK(ring.assistants[1].buffers <= 978 + 2);
  const auto chain = prune({.op = Op::kBroadcast, .members = 8, .bytes = 8 << 20}, "ring", Set{0, 1}).value();
  CHECK(chain.assistants[0].buffers == 0);  // nothing of what comes out at member 2 goes in again
}

TEST_CASE("chunks cover the tensor, in whole elements") {
  for (const std::int64_t elements : {0, 1, 7, 64, 1000})
    for (const int chunks : {1, 2, 7, 64}) {
      std::int64_t end = 0;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const auto [first, last] = chunk_range(elements, 1, chunks, chunk);
        CHECK((first == end && last >= first));
        CHECK(last - first <= (elements + chunks - 1) / chunks);
        end = last;
      }
      CHECK(end == elements);
    }
  // Three blocks of 5 elements, each in two: 3 and 2.
  CHECK(chunk_range(15, 3, 6, 3).first == 8);
  CHECK(chunk_range(15, 3, 6, 3).last == 10);
}

TEST_CASE("what cannot be pruned is refused by name") {
  const auto error = [](const simulate::CollectiveShape& shape, const char* algorithm, const Set& sandbox) {
    const auto plan = prune(shape, algorithm, sandbox);
    REQUIRE(!plan.ok());
    CHECK(plan.error().code == ErrorCode::kInvalidInput);
    return plan.error().message;
  };
  CHECK(error({.op = Op::kAllReduce, .members = 4}, "direct", {0}) ==
        "all_reduce by 'direct' is not pruned; accepted: ring, segmented_ring, tree, halving_doubling, "
        "recursive_doubling");
  CHECK(error({.op = Op::kAllToAll, .members = 4}, "", {0}) ==
        "all_to_all by 'direct' is not pruned; accepted: no algorithm of it");
  CHECK(error({.op = Op::kAllReduce, .members = 4}, "", {}) == "a sandbox of no members; accepted: at least one");
  CHECK(error({.op = Op::kAllReduce, .members = 4}, "", {2, 4}) ==
        "sandbox member 4 of a group of 4; accepted: 0 to 3");
  CHECK(error({.op = Op::kAllReduce, .members = 4}, "", {-1}) == "sandbox member -1 of a group of 4; accepted: 0 to 3");
  CHECK(error({.op = Op::kAllReduce, .members = 4}, "", {2, 1, 2}) == "sandbox member 2 twice; accepted: once");
  CHECK(error({.op = Op::kBroadcast, .members = 4, .root = 4}, "", {2}) == "root 4; accepted: 0 to 3");
  Set many;
  for (int member = 0; member < 4096; ++member) many.push_back(member);
  CHECK(error({.op = Op::kAllReduce, .members = 8192}, "ring", many) ==
        "all_reduce by 'ring' of 8192 members with 4096 in the sandbox: up to 134217728 steps; accepted: 67108864");
}

TEST_CASE("neighbours are whom the plan plays") {
  Random random{3};
  for (const auto& algorithm : kAlgorithms)
    for (int members = 1; members <= 40; ++members) {
      const simulate::CollectiveShape shape{
          .op = algorithm.op, .members = members, .bytes = 1 << 20, .root = random.below(members)};
      const auto sandbox = random_set(random, members, 1 + random.below(std::min(members, 4)));
      std::set<int> played;
      const auto plan = prune(shape, algorithm.name, sandbox).value();
      for (const auto& assistant : plan.assistants) played.insert(assistant.members.begin(), assistant.members.end());
      const auto found = neighbours(shape, algorithm.name, sandbox).value();
      CHECK(found.pruned);
      // A chain's ends are neighbours in the ring that they do not need.
      if (std::string_view(algorithm.name) == "ring" && is_rooted(algorithm.op))
        CHECK(std::includes(found.members.begin(), found.members.end(), played.begin(), played.end()));
      else
        CHECK(std::set<int>(found.members.begin(), found.members.end()) == played);
    }
  CHECK(neighbours({.op = Op::kBarrier, .members = 16}, "", Set{3}).value().members == Set{1, 2, 4, 5, 7, 11, 15});
  const auto everybody = neighbours({.op = Op::kAllToAll, .members = 5}, "", Set{3}).value();
  CHECK(everybody.members == Set{0, 1, 2, 4});
  CHECK(!everybody.pruned);
}
