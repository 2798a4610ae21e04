// Which groups are left of a job when some ranks are real.
#include "replay/group_reduction.hpp"

#include <functional>
#include <numeric>
#include <string>

#include "replay/program.hpp"

using namespace prism;
using namespace prism::test;

namespace {

using Kind = GroupReduction::Kind;
using Groups = std::vector<RankRecord::Group>;
using Ranks = std::vector<std::int32_t>;

struct Done {
  std::string group;  // by its name
  CommSpec what;
};

// A job of which only the sandbox's records matter: ranks that have not been recorded are virtual in any case.
ExecutionGraph job(int world, const Groups& groups, const Ranks& recorded,
                   const std::function<std::vector<Done>(int rank)>& done = {}) {
  GraphBuilder builder({.world_size = world});
  for (const auto& group : groups) REQUIRE(builder.add_group(group).ok());
  for (const int rank : recorded) {
    Groups own;
    for (const auto& group : groups)
      if (std::find(group.members.begin(), group.members.end(), rank) != group.members.end()) own.push_back(group);
    RankProgram program(rank, own);
    program.compute(ms);
    if (done)
      for (auto [group, what] : done(rank)) {
        const auto is_it = [&](const auto& one) { return one.name == group; };
        what.group = static_cast<std::uint32_t>(std::find_if(own.begin(), own.end(), is_it) - own.begin());
        if (what.group < own.size()) program.blocking(what);
      }
    const auto added = builder.add(program.record);
    INFO((added ? std::string() : added.error().message));
    REQUIRE(added.ok());
  }
  return builder.finish().value();
}

Ranks from_to(int first, int last, int stride = 1) {
  Ranks ranks;
  for (int rank = first; rank <= last; rank += stride) ranks.push_back(rank);
  return ranks;
}

const GroupReduction::Group& named(const ExecutionGraph& graph, const GroupReduction& reduced, std::string_view name) {
  for (const auto& group : reduced.groups)
    if (graph.group_name(group.group) == name) return group;
  FAIL("no group " << name);
  return reduced.groups.front();
}

// 64 ranks, tensor parallel in fours, data parallel in 16.
Groups tensor_and_data() {
  Groups groups{{"world", from_to(0, 63)}};
  for (int node = 0; node < 16; ++node)
    groups.push_back({"tp" + std::to_string(node), from_to(4 * node, 4 * node + 3)});
  for (int t = 0; t < 4; ++t) groups.push_back({"dp" + std::to_string(t), from_to(t, 63, 4)});
  return groups;
}

// As Megatron-LM lays ranks out, the first dimension fastest: for each choice of the other coordinates a group.
struct Dimension {
  char name;
  int size;
};
void add_groups(Groups& groups, const std::string& kind, const std::vector<Dimension>& layout,
                const std::string& within, bool only_ends = false, bool only_first = false) {
  const int world =
      std::accumulate(layout.begin(), layout.end(), 1, [](int product, const auto& one) { return product * one.size; });
  std::map<std::vector<int>, Ranks> found;
  for (int rank = 0; rank < world; ++rank) {
    std::vector<int> outside;
    int left = rank;
    for (const auto& [name, size] : layout) {
      if (within.find(name) == std::string::npos) outside.insert(outside.begin(), left % size);
      left /= size;
    }
    found[outside].push_back(rank);
  }
  int number = 0;
  for (auto& [outside, ranks] : found) {
    if (only_ends) ranks = {ranks.front(), ranks.back()};
    if (only_first) ranks.resize(1);
    groups.push_back({kind + "-" + std::to_string(number++), std::move(ranks)});
  }
}

}  // namespace

TEST_CASE("groups without a real rank vanish, tensor parallel ones are real, data parallel ones keep two neighbours") {
  const auto done = [](int) {
    std::vector<Done> all{{"world", {.op = Op::kBarrier}}, {"tp0", {.op = Op::kAllReduce}}};
    for (int t = 0; t < 4; ++t) {
      all.push_back({"dp" + std::to_string(t), {.op = Op::kReduceScatterTensor}});
      all.push_back({"dp" + std::to_string(t), {.op = Op::kAllGatherIntoTensor}});
    }
    return all;
  };
  const Ranks sandbox = from_to(0, 3);
  const auto graph = job(64, tensor_and_data(), sandbox, done);
  const auto reduced = reduce_groups(graph, sandbox).value();
  CHECK(reduced.groups.size() == 21);
  CHECK(reduced.vanished == 15);
  CHECK(reduced.real == 1);
  CHECK(reduced.mixed == 5);
  CHECK(named(graph, reduced, "tp0").kind == Kind::kReal);
  CHECK(named(graph, reduced, "tp7").kind == Kind::kVanished);
  CHECK(named(graph, reduced, "tp7").kept.empty());
  const auto& dp = named(graph, reduced, "dp2");
  CHECK(dp.kind == Kind::kMixed);
  CHECK(dp.kept == Ranks{2, 6, 62});  // before and after rank 2 around the ring of 2, 6, 10, ... 62
  REQUIRE(dp.uses.size() == 2);
  CHECK(dp.uses[0].algorithm == "ring");
  CHECK(dp.uses[0].pruned);
  // A barrier by dissemination: each rank hears from those 1, 2, 4, ... 32 before it, and tells those behind.
  Ranks near;
  for (int rank = 0; rank < 64; ++rank) {
    bool is_near = rank < 4;
    for (int real = 0; real < 4; ++real)
      for (int ahead = 1; ahead < 64; ahead *= 2)
        is_near |= rank == (real + ahead) % 64 || rank == (real + 64 - ahead) % 64;
    if (is_near) near.push_back(rank);
  }
  CHECK(named(graph, reduced, "world").kept == near);
  CHECK(reduced.members == 3 * 64);
  CHECK(reduced.members_left == 64 + 4 + 4 * 16);
  CHECK(reduced.members_kept == static_cast<std::int64_t>(near.size()) + 4 + 4 * 3);
  // By an algorithm in which everybody sends to everybody, all are needed.
  const auto direct = reduce_groups(graph, sandbox, {{Op::kReduceScatter, "direct"}, {Op::kAllGather, "ring"}}).value();
  CHECK(named(graph, direct, "dp2").kept.size() == 16);
  CHECK(!named(graph, direct, "dp2").uses[1].pruned);
}

TEST_CASE("what cannot do with fewer keeps a group whole; messages keep their ends") {
  const auto done = [](int rank) {
    if (rank == 4)
      return std::vector<Done>{{"pipe", {.op = Op::kRecv, .peer = 0}}, {"pipe", {.op = Op::kSend, .peer = 8}}};
    return std::vector<Done>{{"pipe", {.op = Op::kSend, .peer = 4}},
                             {"experts", {.op = Op::kAllToAllSingle}},
                             {"any", {.op = Op::kRecv, .peer = -1}},
                             {"tree", {.op = Op::kAllReduce}}};
  };
  const Groups groups = {{"pipe", from_to(0, 12, 4)}, {"experts", from_to(0, 3)}, {"any", {0, 5, 6}},
                         {"tree", from_to(0, 7)},     {"idle", {0, 7, 9}},        {"alone", {4}}};
  const Ranks sandbox{4, 0};
  const auto graph = job(16, groups, {0, 4}, done);
  const auto reduced = reduce_groups(graph, sandbox, {{Op::kAllReduceCoalesced, "recursive_doubling"}}).value();
  CHECK(named(graph, reduced, "pipe").kept == Ranks{0, 4, 8});
  CHECK(named(graph, reduced, "experts").kept == Ranks{0, 1, 2, 3});
  CHECK(!named(graph, reduced, "experts").uses[0].pruned);
  CHECK(named(graph, reduced, "any").kept == Ranks{0, 5, 6});
  CHECK(!named(graph, reduced, "any").uses[0].pruned);
  CHECK(named(graph, reduced, "tree").kept == Ranks{0, 1, 2, 4, 5, 6});  // bits of 0 and of 4
  CHECK(named(graph, reduced, "idle").kept == Ranks{0});
  CHECK(named(graph, reduced, "alone").kind == Kind::kReal);
  CHECK(reduced.vanished == 0);
}

TEST_CASE("a broadcast's root may be anybody, and the ways lead from there") {
  const auto done = [](int) { return std::vector<Done>{{"world", {.op = Op::kBroadcast, .peer = 5}}}; };
  const auto graph = job(8, {{"world", from_to(0, 7)}}, {6}, done);
  const auto tree = reduce_groups(graph, Ranks{6}).value();
  CHECK(tree.groups[0].kept == Ranks{0, 2, 5, 6});  // label 1 of 8: above it 0, the root; below it 3 and 5
  const auto ring = reduce_groups(graph, Ranks{6}, {{Op::kBroadcast, "ring"}}).value();
  CHECK(ring.groups[0].kept == Ranks{5, 6, 7});
}

// The paper (section 6.2) has 8,617 groups of "2,000 virtual ranks" and 82 that are left, and names neither layout nor
// sandbox. Megatron-LM's groups of 2,048 ranks are as many, to the one, with tensor parallel 2, pipeline 4 and expert
// parallel 2 (experts' tensors in 2, too). Of these 67 are left for a node of 8 real ranks, 83 for 10, none has 82.
TEST_CASE("the groups of a Megatron job of 2,048 ranks: 8,617 become 67 for a node of eight") {
  const std::vector<Dimension> dense = {{'t', 2}, {'c', 1}, {'d', 256}, {'p', 4}};
  const std::vector<Dimension> expert = {{'t', 2}, {'e', 2}, {'d', 128}, {'p', 4}};
  Groups groups{{"world", from_to(0, 2047)}};
  for (const char* within : {"d", "dc", "c", "tp", "t", "p", "tdc", "td", "tc"})
    add_groups(groups, std::string("dense-") + within, dense, within);
  add_groups(groups, "embedding", dense, "p", true);
  add_groups(groups, "position-embedding", dense, "p", false, true);
  for (const char* within : {"e", "t", "te", "tep", "d"})
    add_groups(groups, std::string("expert-") + within, expert, within);
  const auto done = [](int rank) {
    std::vector<Done> all;
    for (int number = 0; number < 2048; ++number) {
      const auto of = [&](const char* kind) { return std::string(kind) + "-" + std::to_string(number); };
      all.push_back({of("dense-t"), {.op = Op::kAllReduce}});
      all.push_back({of("dense-dc"), {.op = Op::kReduceScatterTensor}});
      all.push_back({of("dense-p"), {.op = Op::kSend, .peer = rank + 512}});
      all.push_back({of("expert-te"), {.op = Op::kAllToAllSingle}});
      all.push_back({of("expert-d"), {.op = Op::kAllReduce}});
    }
    return all;
  };
  const Ranks sandbox = from_to(0, 7);
  const auto graph = job(2048, groups, from_to(0, 9), done);
  const auto reduced = reduce_groups(graph, sandbox).value();
  CHECK(graph.group_count() == 8617);
  CHECK(reduced.vanished == 8617 - 67);
  CHECK(reduced.real + reduced.mixed == 67);
  // Real are those within the node: 8 of one rank of context parallelism and 8 of position embeddings, 3 x 4 pairs of
  // tensor parallelism (with context, experts' tensors), 4 pairs of experts, 2 fours of both.
  CHECK(reduced.real == 8 + 8 + 3 * 4 + 4 + 2);
  // Data parallel groups keep the sandbox's four members of each (ranks 0, 2, 4, 6) and a neighbour at either end.
  CHECK(named(graph, reduced, "dense-dc-0").kept == Ranks{0, 2, 4, 6, 8, 2046 - 1536});
  CHECK(named(graph, reduced, "dense-p-0").kept == Ranks{0, 512});
  // A rank is in 15 kinds of groups, one in four in the position embeddings', two in the embeddings'.
  CHECK(reduced.members == 2048 * 15 + 512 + 1024);
  // Real ones whole; of mixed ones 2 data parallel groups with 6 ranks, 8 pipelines with 2, 4 groups of replicated
  // experts with 4; of those in which nothing is communicated here the 8 ranks alone, in 7 kinds of groups.
  CHECK(reduced.members_kept == (8 + 8 + 12 * 2 + 4 * 2 + 2 * 4) + 2 * 6 + 8 * 2 + 4 * 4 + 7 * 8);
  const auto ten = reduce_groups(graph, from_to(0, 9)).value();
  CHECK(ten.real + ten.mixed == 83);
}

TEST_CASE("a sandbox that cannot be is refused") {
  const auto graph = job(8, {{"world", from_to(0, 7)}}, {0, 1});
  const auto error = [&](const Ranks& sandbox) { return reduce_groups(graph, sandbox).error().message; };
  CHECK(error({}) == "a sandbox of no ranks; accepted: at least one");
  CHECK(error({8}) == "sandbox rank 8; accepted: 0 to 7");
  CHECK(error({0, 0}) == "sandbox rank 0 twice; accepted: once");
  CHECK(error({0, 5}) == "sandbox rank 5 was not recorded; accepted: ranks of the trace");
  const auto done = [](int) { return std::vector<Done>{{"world", {.op = Op::kAllReduce}}}; };
  CHECK(reduce_groups(job(8, {{"world", from_to(0, 7)}}, {0}, done), Ranks{0}, {{Op::kAllReduce, "pairwise"}})
            .error()
            .message ==
        "group 'world': no algorithm 'pairwise' for all_reduce; accepted: ring, segmented_ring, tree, "
        "halving_doubling, recursive_doubling, direct, hierarchical");
}
