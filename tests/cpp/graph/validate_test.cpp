#include "catch2.hpp"
#include "graph/jobs.hpp"

using namespace prism;
using prism::test::Job3D;
using prism::test::Writer;

namespace {

// One rank's recording after another, each built by `program`.
template <typename Program>
Result<void> check(int world, const std::vector<int>& ranks, Program&& program, std::string model = "conservative") {
  std::vector<std::int32_t> all;
  for (int r = 0; r < world; ++r) all.push_back(r);
  GraphBuilder builder({.world_size = world, .progress_model = model});
  for (const int rank : ranks) {
    Writer w(rank, {{"world", all}});
    program(w, rank);
    const auto added = builder.add(w.record);
    INFO((added ? "" : added.error().message));
    REQUIRE(added);
  }
  return validate(*builder.finish());
}

}  // namespace

TEST_CASE("a 3-D parallel job is consistent") { REQUIRE(validate(*Job3D().build())); }

TEST_CASE("a collective that one member never joins is found") {
  const auto result = check(3, {0, 1, 2}, [](Writer& w, int rank) {
    w.all_reduce(0, 64);
    if (rank != 2) w.all_reduce(0, 64);
  });
  REQUIRE(result.error().message ==
          "graph: group 'world': rank 2 has nothing more where rank 0 has all_reduce #1 of sum; "
          "accepted: all members alike");
}

TEST_CASE("members that call different operations are found") {
  const auto result = check(2, {0, 1}, [](Writer& w, int rank) {
    w.wait(rank == 0 ? w.collective(Op::kAllReduce, 0, 64) : w.collective(Op::kBroadcast, 0, 64, 1));
  });
  REQUIRE(result.error().message ==
          "graph: group 'world': rank 1 has broadcast #0 with root 1 where rank 0 has all_reduce #0 of sum; "
          "accepted: all members alike");
}

TEST_CASE("a group with a member that was not recorded is not compared") {
  REQUIRE(check(3, {0, 1}, [](Writer& w, int rank) {
    for (int i = 0; i <= rank; ++i) w.all_reduce(0, 64);
    w.message(Op::kSend, 0, 2, 8);
  }));
}

TEST_CASE("a send without its receive is found") {
  const auto result = check(2, {0, 1}, [](Writer& w, int rank) {
    if (rank == 0) w.wait(w.message(Op::kSend, 0, 1, 8, 4));
  });
  REQUIRE(result.error().message ==
          "graph: group 'world': 1 sends and 0 receives from rank 0 to rank 1 with tag 4; accepted: equal");
}

TEST_CASE("tags pair messages under gloo and are ignored under nccl") {
  const auto program = [](Writer& w, int rank) {
    w.wait(w.message(rank == 0 ? Op::kSend : Op::kRecv, 0, 1 - rank, 8, rank));
  };
  REQUIRE_FALSE(check(2, {0, 1}, program, "gloo"));
  REQUIRE(check(2, {0, 1}, program, "nccl"));
}

TEST_CASE("a receive from any source takes a message of whoever sent") {
  const auto program = [](int receives) {
    return [receives](Writer& w, int rank) {
      if (rank > 0) w.message(Op::kSend, 0, 0, 8);
      for (int i = 0; rank == 0 && i < receives; ++i) w.message(Op::kRecv, 0, -1, 8);
    };
  };
  REQUIRE(check(3, {0, 1, 2}, program(2)));
  REQUIRE_FALSE(check(3, {0, 1, 2}, program(1)));
  REQUIRE_FALSE(check(3, {0, 1, 2}, program(3)));
}
