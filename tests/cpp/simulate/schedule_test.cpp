// Algorithms do what their collective is for: followed by who knows of whose part.
#include "simulate/schedule.hpp"

#include <map>
#include <set>

#include "catch2.hpp"

using namespace prism;
using namespace prism::simulate;

namespace {

struct Case {
  Op op;
  const char* algorithm;
};
const std::vector<Case> kCases = {{Op::kAllReduce, "ring"},
                                  {Op::kAllReduce, "tree"},
                                  {Op::kAllReduce, "halving_doubling"},
                                  {Op::kAllReduce, "recursive_doubling"},
                                  {Op::kAllReduce, "direct"},
                                  {Op::kAllReduce, "hierarchical"},
                                  {Op::kAllGather, "ring"},
                                  {Op::kAllGather, "direct"},
                                  {Op::kAllGather, "halving_doubling"},
                                  {Op::kReduceScatter, "ring"},
                                  {Op::kReduceScatter, "direct"},
                                  {Op::kReduceScatter, "halving_doubling"},
                                  {Op::kAllToAll, "direct"},
                                  {Op::kAllToAll, "pairwise"},
                                  {Op::kBroadcast, "ring"},
                                  {Op::kBroadcast, "tree"},
                                  {Op::kBroadcast, "direct"},
                                  {Op::kReduce, "ring"},
                                  {Op::kReduce, "tree"},
                                  {Op::kReduce, "direct"},
                                  {Op::kGather, "tree"},
                                  {Op::kGather, "direct"},
                                  {Op::kScatter, "tree"},
                                  {Op::kScatter, "direct"},
                                  {Op::kBarrier, "dissemination"}};

std::unique_ptr<Schedule> made(Op op, const char* algorithm, int members, std::int64_t bytes = 1 << 20, int root = 0) {
  return make_schedule({op, members, bytes, root, members % 4 == 0 ? 4 : 1}, algorithm).value();
}

}  // namespace

TEST_CASE("what is sent in a step is received in it") {
  for (const auto& [op, algorithm] : kCases)
    for (int members = 1; members <= 20; ++members) {
      INFO(name(op) << " by " << algorithm << " of " << members);
      const auto schedule = made(op, algorithm, members, 1 << 20, members / 3);
      for (int step = 0; step < schedule->steps(); ++step) {
        std::vector<int> to(members, 0), receives(members, 0);
        for (int member = 0; member < members; ++member) {
          std::vector<Send> sends;
          receives[member] = schedule->part(member, step, sends);
          for (const auto& send : sends) {
            REQUIRE((send.to >= 0 && send.to < members && send.to != member && send.bytes > 0));
            ++to[send.to];
          }
        }
        REQUIRE(to == receives);
      }
      if (members == 1) CHECK(schedule->steps() == 0);
    }
}

TEST_CASE("in the end everybody knows whose part it needs") {
  for (const auto& [op, algorithm] : kCases)
    for (int members = 2; members <= 20; ++members) {
      const int root = members / 3;
      INFO(name(op) << " by " << algorithm << " of " << members);
      const auto schedule = made(op, algorithm, members, 1 << 20, root);
      std::vector<std::set<int>> knows(members);
      for (int member = 0; member < members; ++member) knows[member].insert(member);
      for (int step = 0; step < schedule->steps(); ++step) {
        const auto before = knows;
        for (int member = 0; member < members; ++member) {
          std::vector<Send> sends;
          static_cast<void>(schedule->part(member, step, sends));
          for (const auto& send : sends) knows[send.to].insert(before[member].begin(), before[member].end());
        }
      }
      const bool from_root = op == Op::kBroadcast || op == Op::kScatter;
      const bool to_root = op == Op::kReduce || op == Op::kGather;
      for (int member = 0; member < members; ++member) {
        if (from_root)
          REQUIRE(knows[member].count(root) == 1);
        else if (!to_root || member == root)
          REQUIRE(static_cast<int>(knows[member].size()) == members);
      }
    }
}

TEST_CASE("each member sends what the algorithm is known for") {
  const auto sent_by = [](const Schedule& schedule, int member) {
    std::int64_t total = 0;
    for (int step = 0; step < schedule.steps(); ++step) {
      std::vector<Send> sends;
      static_cast<void>(schedule.part(member, step, sends));
      for (const auto& send : sends) total += send.bytes;
    }
    return total;
  };
  const std::int64_t bytes = 16 << 20;
  for (const int member : {0, 7, 15}) {
    // 2 (N - 1) / N of the tensor for all-reduce; half of that for its halves; log2 16 = 4 steps of halving.
    CHECK(sent_by(*made(Op::kAllReduce, "ring", 16, bytes), member) == 30 * (bytes / 16));
    CHECK(sent_by(*made(Op::kAllReduce, "halving_doubling", 16, bytes), member) == 30 * (bytes / 16));
    CHECK(sent_by(*made(Op::kReduceScatter, "halving_doubling", 16, bytes), member) == 15 * (bytes / 16));
    CHECK(sent_by(*made(Op::kAllGather, "ring", 16, bytes), member) == 15 * (bytes / 16));
    CHECK(sent_by(*made(Op::kAllToAll, "pairwise", 16, bytes), member) == 15 * (bytes / 16));
    // Within nodes of 4 each way 3/4, between 4 nodes 2 * 3/4 of a quarter.
    CHECK(sent_by(*made(Op::kAllReduce, "hierarchical", 16, bytes), member) == 2 * 3 * (bytes / 4) + 6 * (bytes / 16));
  }
  CHECK(made(Op::kAllReduce, "halving_doubling", 16)->steps() == 8);
  CHECK(made(Op::kBroadcast, "tree", 16)->steps() == 4);
  // The whole tensor in each of 4 exchanges; in pieces around, 16 of them 15 steps behind each other.
  CHECK(sent_by(*made(Op::kAllReduce, "recursive_doubling", 16, bytes), 7) == 4 * bytes);
  CHECK(sent_by(*made(Op::kBroadcast, "ring", 16, bytes, 3), 1) == bytes);
  CHECK(sent_by(*made(Op::kBroadcast, "ring", 16, bytes, 3), 2) == 0);
  CHECK(made(Op::kBroadcast, "ring", 16, 1 << 20)->steps() == 15 + 16 - 1);
  // The root of a binomial scatter sends N - 1 parts, in a broadcast the whole tensor log2 N times.
  CHECK(sent_by(*made(Op::kScatter, "tree", 16, bytes, 3), 3) == 15 * (bytes / 16));
  CHECK(sent_by(*made(Op::kBroadcast, "tree", 16, bytes, 3), 3) == 4 * bytes);
}

TEST_CASE("no member of two trees works in both for long: each sends its tensor about twice") {
  for (const int members : {2, 3, 7, 8, 16, 33, 64}) {
    const std::int64_t bytes = 32 << 20;
    const auto schedule = made(Op::kAllReduce, "tree", members, bytes);
    std::int64_t total = 0;
    for (int member = 0; member < members; ++member)
      for (int step = 0; step < schedule->steps(); ++step) {
        std::vector<Send> sends;
        static_cast<void>(schedule->part(member, step, sends));
        for (const auto& send : sends) total += send.bytes;
      }
    CHECK(total == 2 * (members - 1) * bytes);  // each edge of two trees, half the tensor, both ways
  }
}

TEST_CASE("an algorithm that there is not is answered with those that there are") {
  CHECK(make_schedule({Op::kAllReduce, 4, 8}, "pairwise").error().message ==
        "no algorithm 'pairwise' for all_reduce; accepted: ring, segmented_ring, tree, halving_doubling, "
        "recursive_doubling, direct, hierarchical");
  CHECK(make_schedule({Op::kSend, 4, 8}, "").error().message == "send is no collective");
  CHECK(make_schedule({Op::kAllReduce, 0, 8}, "").error().message == "a collective of 0 members; accepted: 1 to 2^29");
  CHECK(make_schedule({Op::kAllReduce, 4, -1}, "").error().message == "-1 bytes; accepted: 0 to 2^60");
  CHECK(make_schedule({Op::kBroadcast, 4, 8, 4}, "").error().message == "root 4; accepted: 0 to 3");
  CHECK(make_schedule({Op::kAllReduce, 6, 8, 0, 4}, "hierarchical").error().message ==
        "6 members with 4 a node; accepted: a whole number of nodes");
}

TEST_CASE("a segmented ring passes whole elements on, two or more segments a member, and no empty ones") {
  // 7 elements over 4 members: segments of one element, the eighth is empty and never sent.
  const auto few = made(Op::kAllReduce, "segmented_ring", 4, 7 * 4);
  const auto sent_by = [](const Schedule& schedule, int member) {
    std::int64_t sum = 0;
    for (int step = 0; step < schedule.steps(); ++step) {
      std::vector<Send> sends;
      static_cast<void>(schedule.part(member, step, sends));
      for (const auto& send : sends) sum += send.bytes;
    }
    return sum;
  };
  CHECK(few->lanes() == 2);
  CHECK(few->steps() == 2 * 3 * 2);
  std::int64_t messages = 0, received = 0;
  for (int member = 0; member < 4; ++member)
    for (int step = 0; step < few->steps(); ++step) {
      std::vector<Send> sends;
      received += few->part(member, step, sends);
      for (const auto& send : sends) {
        CHECK(send.to == (member + 3) % 4);
        CHECK(send.bytes == 4);
        ++messages;
      }
    }
  CHECK(messages == 2 * 3 * 7);  // every element goes around twice, to all but one member
  CHECK(received == messages);
  // One element: a chain of messages, not a ring full of them.
  CHECK(sent_by(*made(Op::kAllReduce, "segmented_ring", 8, 4), 0) <= 2 * 4);
  // Segments have at most 1 MiB.
  CHECK(made(Op::kAllReduce, "segmented_ring", 2, 8 << 20)->steps() == 2 * 4);
  // A gather's members cut their own tensors: each sends as much.
  for (int member = 0; member < 8; ++member)
    CHECK(sent_by(*made(Op::kAllGather, "segmented_ring", 8, 8 * 4), member) == 7 * 4);
}

TEST_CASE("steps are counted, or there are too many to be") {
  constexpr std::int64_t kMiB = 1 << 20;
  // The most: two times around, every member with 2^49 / 2^20 / N segments.
  for (const int members : {2, 8, 65'536}) {
    const auto most = made(Op::kAllReduce, "segmented_ring", members, std::int64_t{1} << 49);
    CHECK(most->steps() == 2 * ((std::int64_t{1} << 49) / kMiB / members) * (members - 1));
  }
  CHECK(make_schedule({Op::kAllReduce, 2, (std::int64_t{1} << 49) + 1}, "segmented_ring").error().message ==
        "562949953421313 bytes in segments of 1 MiB or less; accepted: 0 to 2^49");
  CHECK(made(Op::kAllReduce, "segmented_ring", 1 << 29, 8)->steps() == 4 * ((std::int64_t{1} << 29) - 1));
  CHECK(made(Op::kAllReduce, "ring", 1 << 29, 8)->steps() == 2 * ((1 << 29) - 1));
  CHECK(make_schedule({Op::kAllReduce, (1 << 29) + 1, 8}, "ring").error().message ==
        "a collective of 536870913 members; accepted: 1 to 2^29");
}

TEST_CASE("in an uneven all_to_all members send and receive what is their own") {
  CollectiveShape shape{.op = Op::kAllToAll, .members = 3, .bytes = 900};
  shape.sent = {600, 300, 0}, shape.received = {0, 450, 450};
  const auto schedule = make_schedule(shape, "direct").value();
  const auto sends_of = [&](int member) {
    std::vector<Send> sends;
    CHECK(schedule->part(member, 0, sends) == 2);
    std::vector<std::pair<int, std::int64_t>> found;
    for (const auto& send : sends) found.push_back({send.to, send.bytes});
    return found;
  };
  using Found = std::vector<std::pair<int, std::int64_t>>;
  CHECK(sends_of(0) == Found{{1, 300}, {2, 300}});  // half of 600 each
  CHECK(sends_of(1) == Found{{2, 150}, {0, 0}});    // the other half of 300 is its own
  CHECK(sends_of(2) == Found{{0, 0}, {1, 0}});
  shape.received.pop_back();
  CHECK(make_schedule(shape, "direct").error().message ==
        "what members send and receive; accepted: for each 0 to 2^60 bytes");
  shape.received.push_back(-1);
  CHECK(!make_schedule(shape, "direct"));
}
