#include "graph/diff.hpp"

#include "catch2.hpp"
#include "graph/jobs.hpp"

using namespace prism;
using prism::test::Job3D;

namespace {

std::optional<Difference> difference(const ExecutionGraph& a, const ExecutionGraph& b, bool timing = false) {
  auto found = first_difference(a, b, timing);
  REQUIRE(found);
  return *found;
}

// The job with one rank changed.
template <typename Change>
ExecutionGraph changed(const Job3D& job, int which, Change&& change) {
  GraphBuilder builder({.world_size = job.world()});
  for (int rank = 0; rank < job.world(); ++rank) {
    auto record = job.record(rank);
    if (rank == which) change(record);
    REQUIRE(builder.add(record));
  }
  return *builder.finish();
}

}  // namespace

TEST_CASE("a job equals itself whatever the order in which its ranks were added") {
  const auto forward = Job3D().build(), backward = Job3D().build(/*reversed=*/true);
  REQUIRE(forward->class_of(0) != backward->class_of(0));
  REQUIRE_FALSE(difference(*forward, *backward, true));
}

TEST_CASE("the first difference names rank, node, field and both values") {
  const Job3D job;
  const auto graph = job.build();
  const auto op = difference(*graph, changed(job, 5, [](auto& r) { r.comms[0].op = Op::kAllReduce; }));
  REQUIRE(op);
  REQUIRE(op->rank == 5);
  REQUIRE(op->node == 0);
  REQUIRE(op->field == "op");
  REQUIRE(op->a == "barrier");
  REQUIRE(op->b == "all_reduce");

  const auto bytes = difference(*graph, changed(job, 3, [](auto& r) { r.comms.back().input_bytes = 8192; }));
  REQUIRE(bytes->field == "input_bytes");
  REQUIRE(bytes->a == "4096");
  REQUIRE(bytes->b == "8192");

  const auto group = difference(*graph, changed(job, 0, [](auto& r) { r.comms.back().group = 1; }));
  REQUIRE(group->a == "group dp0");
  REQUIRE(group->b == "group tp0");

  const auto fewer = difference(*graph, changed(job, 2, [](auto& r) { r.nodes.pop_back(); }));
  REQUIRE(fewer->rank == 2);
  REQUIRE(fewer->a == "compute");
  REQUIRE(fewer->b == "nothing more");

  const auto name = difference(*graph, changed(job, 0, [](auto& r) { r.nodes.back().name = "adam"; }));
  REQUIRE(name->a == "optimizer");
  REQUIRE(name->b == "adam");
}

TEST_CASE("times and memory count only when asked for") {
  const Job3D job;
  const auto graph = job.build();
  const auto slower = changed(job, 7, [](auto& r) { r.nodes.back().duration_ns += 5; });
  REQUIRE_FALSE(difference(*graph, slower));
  REQUIRE(difference(*graph, slower, true)->field == "duration");
  REQUIRE(difference(*graph, slower, true)->rank == 7);
  const auto larger = changed(job, 1, [](auto& r) { r.memory[1].peak = 1 << 20; });
  REQUIRE(difference(*graph, larger, true)->field == "memory peak");
}

TEST_CASE("the same pattern over other partners is a difference") {
  const auto pairs = [&](std::vector<std::vector<int>> groups) {
    GraphBuilder builder({.world_size = 4});
    for (int rank = 0; rank < 4; ++rank)
      for (const auto& members : groups)
        if (std::ranges::find(members, rank) != members.end()) {
          prism::test::Writer w(rank, {{"dp" + std::to_string(members[0]), {members.begin(), members.end()}}});
          w.all_reduce(0, 64);
          REQUIRE(builder.add(w.record));
        }
    return *builder.finish();
  };
  const auto found = difference(pairs({{0, 1}, {2, 3}}), pairs({{0, 2}, {1, 3}}));
  REQUIRE(found->rank == 0);
  REQUIRE(found->a == "0, 1");
  REQUIRE(found->b == "0, 2");
}
