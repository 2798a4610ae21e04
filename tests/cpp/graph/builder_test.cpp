#include "graph/builder.hpp"

#include <algorithm>

#include "catch2.hpp"
#include "graph/diff.hpp"
#include "graph/jobs.hpp"

using namespace prism;
using prism::test::Job3D;
using prism::test::Writer;

namespace {

ExecutionGraph built(const Job3D& job) {
  auto graph = job.build();
  INFO((graph ? "" : graph.error().message));
  REQUIRE(graph);
  return *graph;
}

std::string error_of(const RankRecord& record, int world = 2) {
  GraphBuilder builder({.world_size = world});
  auto added = builder.add(record);
  if (added) {
    auto graph = builder.finish();
    return graph ? "" : graph.error().message;
  }
  REQUIRE((added.error().code == ErrorCode::kInvalidInput || added.error().code == ErrorCode::kMismatch));
  return added.error().message;
}

Writer two_ranks() { return Writer(0, {{"world", {0, 1}}}); }

}  // namespace

TEST_CASE("ranks of a 3-D parallel job fall into one class a pipeline position: first, middle, last") {
  // Data-parallel replicas and tensor-parallel partners do the same; of 4 stages the two in the middle do, too.
  const Job3D job{.tp = 2, .pp = 4, .dp = 2};
  const auto graph = built(job);
  REQUIRE(graph.class_count() == 3);
  for (int rank = 0; rank < job.world(); ++rank) {
    const int stage = rank / job.tp % job.pp;
    REQUIRE(graph.class_of(rank) == (stage == 0 ? 0 : stage == job.pp - 1 ? 2 : 1));
  }
  REQUIRE(built({.tp = 4, .pp = 1, .dp = 2}).class_count() == 1);
  REQUIRE(built({.tp = 1, .pp = 2, .dp = 3}).class_count() == 2);
  REQUIRE(built({.tp = 2, .pp = 16, .dp = 4}).class_count() == 3);
}

TEST_CASE("a rank of a class keeps its own groups, peers, times and memory") {
  const Job3D job;
  const auto graph = built(job);
  REQUIRE(graph.group_count() == 1 + 8 + 4 + 8);  // world; tp: pp*dp; pp: tp*dp; dp: tp*pp
  for (int rank = 0; rank < job.world(); ++rank) {
    const auto record = job.record(rank);
    for (std::uint32_t slot = 0; slot < record.groups.size(); ++slot) {
      const auto group = graph.group_of_slot(rank, slot);
      REQUIRE(graph.group_name(group) == record.groups[slot].name);
      REQUIRE(std::ranges::equal(graph.group_members(group), record.groups[slot].members));
    }
    const auto& view = graph.class_view(graph.class_of(rank));
    REQUIRE(view.comm_op.size() == record.comms.size());
    for (std::size_t i = 0; i < record.comms.size(); ++i)
      if (is_point_to_point(record.comms[i].op))
        REQUIRE(graph.rank_of_peer_slot(rank, view.comm_peer[i]) == record.comms[i].peer);
    REQUIRE(graph.timing(rank).start_ns.size() == record.nodes.size());
    REQUIRE(graph.timing(rank).start_ns[4] == record.nodes[4].start_ns);
    REQUIRE(graph.memory(rank).peak[1] == 2000 + rank);
  }
}

TEST_CASE("the root of a broadcast is in a class of its own") {
  GraphBuilder builder({.world_size = 4});
  for (int rank = 0; rank < 4; ++rank) {
    Writer w(rank, {{"world", {0, 1, 2, 3}}});
    w.wait(w.collective(Op::kBroadcast, 0, 64, 1));
    REQUIRE(builder.add(w.record));
  }
  const auto graph = builder.finish();
  REQUIRE(graph);
  REQUIRE(graph->class_count() == 2);
  REQUIRE(graph->class_of(0) == graph->class_of(3));
  REQUIRE(graph->class_of(0) != graph->class_of(1));
}

TEST_CASE("each field of the structure separates classes, times and memory do not") {
  const auto base = [] {
    Writer w(0, {{"a", {0, 1}}, {"b", {0, 1}}});
    w.compute("forward");
    w.all_reduce(0, 64);
    w.wait(w.message(Op::kSend, 1, 1, 8));
    w.record.lanes.push_back("side");
    return w.record;
  };
  const auto classes = [&](auto&& change) {
    auto other = base();
    other.rank = 1;
    other.comms[1].peer = 0;  // the namesake of rank 0's peer
    change(other);
    GraphBuilder builder({.world_size = 2});
    REQUIRE(builder.add(base()));
    auto added = builder.add(other);
    INFO((added ? "" : added.error().message));
    REQUIRE(added);
    return builder.finish()->class_count();
  };
  REQUIRE(classes([](RankRecord&) {}) == 1);
  REQUIRE(classes([](RankRecord& r) { r.nodes[0].duration_ns = 3; }) == 1);
  REQUIRE(classes([](RankRecord& r) { r.memory = {{0, 1, 1}}; }) == 1);
  REQUIRE(classes([](RankRecord& r) { std::swap(r.groups[0], r.groups[1]); }) == 1);  // other groups, same slots
  REQUIRE(classes([](RankRecord& r) { r.nodes[0].name = "backward"; }) == 2);
  REQUIRE(classes([](RankRecord& r) { r.nodes[0].lane = 1; }) == 2);
  REQUIRE(classes([](RankRecord& r) { r.lanes[1] = "autograd"; }) == 2);
  REQUIRE(classes([](RankRecord& r) { r.marks = {0}; }) == 2);
  REQUIRE(classes([](RankRecord& r) { r.edges.pop_back(); }) == 2);
  REQUIRE(classes([](RankRecord& r) { r.groups[1] = {"c", {1}}; }) == 2);  // a group of another size
  REQUIRE(classes([](RankRecord& r) { r.comms[0].op = Op::kAllReduceCoalesced; }) == 2);
  REQUIRE(classes([](RankRecord& r) { r.comms[0].dtype = DType::kBFloat16; }) == 2);
  REQUIRE(classes([](RankRecord& r) { r.comms[0].reduce_op = ReduceOp::kMax; }) == 2);
  REQUIRE(classes([](RankRecord& r) { r.comms[0].flags = kCommAsync; }) == 2);
  REQUIRE(classes([](RankRecord& r) { r.comms[0].group = 1; }) == 2);
  REQUIRE(classes([](RankRecord& r) { r.comms[0].seq = 5; }) == 2);
  REQUIRE(classes([](RankRecord& r) { r.comms[0].batch = 0; }) == 2);
  REQUIRE(classes([](RankRecord& r) { r.comms[0].input_bytes = 65; }) == 2);
  REQUIRE(classes([](RankRecord& r) { r.comms[0].output_bytes = 65; }) == 2);
  REQUIRE(classes([](RankRecord& r) { r.comms[1].tag = 7; }) == 2);
}

TEST_CASE("a record that contradicts itself is refused with field and value") {
  auto w = two_ranks();
  w.compute();
  w.all_reduce(0, 64);
  REQUIRE(error_of(w.record) == "");
  const auto broken = [&](auto&& change) {
    auto record = w.record;
    change(record);
    return error_of(record);
  };
  REQUIRE(broken([](auto& r) { r.rank = 2; }) == "rank 2: the rank is out of range; accepted: 0 to 1");
  REQUIRE(broken([](auto& r) { r.groups[0].members = {1}; }) ==
          "rank 0: the rank is not among the members [1] of its group 'world'");
  REQUIRE(broken([](auto& r) { r.groups[0].members = {0, 7}; }) == "graph: group_member[1] is 7; accepted: 0 to 1");
  REQUIRE(broken([](auto& r) { r.groups.push_back(r.groups[0]); }) == "rank 0: group 'world' occurs twice");
  REQUIRE(broken([](auto& r) { r.comms[0].group = 1; }) == "rank 0: comm_group[0] is 1; accepted: below 1 groups");
  REQUIRE(broken([](auto& r) { r.nodes[0].lane = 3; }) == "rank 0: node_lane[0] is 3; accepted: below 1 lanes");
  REQUIRE(broken([](auto& r) { r.nodes[2].comm = 1; }) == "rank 0: node_comm[2] is 1; accepted: 0 to 0");
  REQUIRE(broken([](auto& r) { r.edges[0].dst = 9; }) == "rank 0: edge_dst[0] is 9; accepted: below 4 nodes");
  REQUIRE(broken([](auto& r) { r.marks = {1, 1}; }) == "rank 0: mark_node[1] is 1; accepted: ascending, below 4 nodes");
  REQUIRE(broken([](auto& r) { r.nodes[1].start_ns = -1; }) == "rank 0: start_ns[1] is -1; accepted: not negative");
  REQUIRE(broken([](auto& r) { r.nodes[3].start_ns = 5; }) ==
          "rank 0: start_ns[3] is 5; accepted: at least 10, the start before it on its lane");
  REQUIRE(broken([](auto& r) { r.comms[0].peer = 0; }) ==
          "rank 0: comm_peer[0] is 0; accepted: -1 to -1 for all_reduce");
  REQUIRE(broken([](auto& r) { r.comms[0].input_bytes = -5; }) ==
          "rank 0: comm_input_bytes[0] is -5; accepted: not negative");
  REQUIRE(broken([](auto& r) {
            r.memory = {{0, 10, 5}};
          }) == "rank 0: memory_peak[0] is 5; accepted: at least memory_bytes, 10");
}

TEST_CASE("a rank that did not run is added by its groups and peers, as the class of one that did has them") {
  auto w = two_ranks();
  w.all_reduce(0, 64);
  const auto alike = [&](std::int32_t rank, std::int32_t like, std::vector<std::uint32_t> groups,
                         std::vector<std::int32_t> peers) -> std::string {
    GraphBuilder builder({.world_size = 4});
    REQUIRE(builder.add(w.record));  // rank 0, group 0
    REQUIRE(builder.add_group({"pair", {2, 3}}).value() == 1);
    REQUIRE(builder.add_group({"trio", {1, 2, 3}}).value() == 2);
    if (auto added = builder.add_alike(rank, like, std::move(groups), std::move(peers)); !added)
      return added.error().message;
    const auto graph = builder.finish().value();
    REQUIRE(graph.class_of(rank) == graph.class_of(like));
    REQUIRE(graph.group_name(graph.group_of_slot(rank, 0)) == "pair");
    REQUIRE((graph.has_own_times(like) && !graph.has_own_times(rank)));
    REQUIRE(graph.timing(rank).start_ns.data() == graph.timing(like).start_ns.data());  // one for all
    REQUIRE(graph.memory(rank).bytes.data() == graph.memory(like).bytes.data());
    REQUIRE(graph.check_rank(rank));
    return "";
  };
  REQUIRE(alike(3, 0, {1}, {}) == "");
  REQUIRE(alike(4, 0, {1}, {}) == "rank 4: the rank is out of range; accepted: 0 to 3");
  REQUIRE(alike(0, 0, {1}, {}) == "rank 0: the rank was added before");
  REQUIRE(alike(3, 2, {1}, {}) == "rank 3: it is like rank 2, which was not added");
  REQUIRE(alike(1, 0, {1}, {}) == "rank 1: the rank is not among the members [2, 3] of its group 'pair'");
  REQUIRE(alike(3, 0, {9}, {}) == "rank 3: there is no group 9");
  REQUIRE(alike(3, 0, {2}, {}) == "rank 3: 1 groups and 0 peers are not those of rank 0");
  REQUIRE(alike(3, 0, {1}, {2}) == "rank 3: 1 groups and 1 peers are not those of rank 0");
  REQUIRE(alike(3, 0, {1}, {7}) == "rank 3: peers[0] is 7; accepted: 0 to 3");
  GraphBuilder builder({.world_size = 4});
  REQUIRE(builder.add_group({"x", {4}}).error().message == "group 'x': members[0] is 4; accepted: 0 to 3");
}

TEST_CASE("a wait on the lane before its own issue is a cycle, a hand-over to an earlier lane is not") {
  auto w = two_ranks();
  w.compute();
  w.all_reduce(0, 64);
  w.record.edges.push_back({3, 1});
  REQUIRE(error_of(w.record).starts_with("rank 0: edge_src and edge_dst close a cycle"));
  auto lanes = two_ranks();  // lane 0 waits for what lane 1 issued: the edge leads backwards in node order
  lanes.record.lanes = {"main", "autograd"};
  lanes.collective(Op::kAllReduce, 0, 64);
  auto& r = lanes.record;
  r.nodes[0].lane = r.nodes[1].lane = 1;
  r.nodes.insert(r.nodes.begin(), {NodeKind::kWait, 0, 0});
  r.edges = {{1, 2}, {2, 0}};
  REQUIRE(error_of(r) == "");
}

TEST_CASE("ranks that disagree about the members of a group are a mismatch that names both lists") {
  GraphBuilder builder({.world_size = 3});
  REQUIRE(builder.add(Writer(0, {{"tp", {0, 1}}}).record));
  const auto added = builder.add(Writer(2, {{"tp", {0, 2}}}).record);
  REQUIRE(added.error().code == ErrorCode::kMismatch);
  REQUIRE(added.error().message == "rank 2: group 'tp' has members [0, 2], and [0, 1] for an earlier rank");
}

TEST_CASE("extract is the inverse of add") {
  const Job3D job;
  const auto graph = built(job);
  GraphBuilder again({.world_size = job.world()});
  for (int rank = 0; rank < job.world(); ++rank) REQUIRE(again.add(*extract(graph, rank)));
  const auto found = first_difference(graph, *again.finish(), true);
  REQUIRE(found);
  REQUIRE_FALSE(found->has_value());
  REQUIRE(extract(graph, 99).error().code == ErrorCode::kInvalidInput);
}

TEST_CASE("a graph is finished once") {
  GraphBuilder builder({.world_size = 2});
  REQUIRE(builder.add(two_ranks().record));
  REQUIRE(builder.finish());
  REQUIRE(builder.add(two_ranks().record).error().message == "rank 0: the graph is finished");
  REQUIRE(builder.finish().error().message == "the graph is finished");
}
