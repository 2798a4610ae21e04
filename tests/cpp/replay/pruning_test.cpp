// Pruned collectives of whole numbers: every sandbox member has what the unpruned algorithm, executed literally, gives
// it.
#include "replay/whole.hpp"

using namespace prism;
using namespace prism::test;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMembers = 18;  // a tenth of the sets, each ten times as slow
#else
constexpr int kMembers = 32;
#endif

int check_every_set(const Algorithm& algorithm, int members, std::size_t most) {
  const Whole whole(algorithm.op, algorithm.name, members, 0, 1 << 16);
  return for_every_set(members, most, [&](const Set& sandbox) { whole.check(sandbox); });
}

// One of all that are the same but for a turn of the ring: those with member 0.
void check_every_turn(const Algorithm& algorithm, int members, std::size_t most) {
  const Whole whole(algorithm.op, algorithm.name, members, 0, 1 << 16);
  whole.check({0});
  for_every_set(members - 1, most - 1, [&](const Set& others) {
    Set sandbox{0};
    for (const int other : others) sandbox.push_back(other + 1);
    whole.check(sandbox);
  });
}

}  // namespace

TEST_CASE("double binary tree and recursive doubling: every sandbox of up to 4 members of up to 32") {
  for (const char* algorithm : {"tree", "recursive_doubling"}) {
    int sets = 0;
    for (int members = 1; members <= kMembers; ++members)
      sets += check_every_set({Op::kAllReduce, algorithm}, members, 4);
    if (kMembers == 32) CHECK(sets == 528 + 5456 + 40920 + 237336);  // the sums over N of N choose 1 to 4
  }
}

TEST_CASE("rings: every sandbox of up to 4 members of up to 32, above 16 but for turns of the ring") {
  for (const Op op : {Op::kAllReduce, Op::kReduceScatter, Op::kAllGather}) {
    for (int members = 1; members <= 16; ++members) check_every_set({op, "ring"}, members, 4);
    for (int members = 17; members <= kMembers; ++members) check_every_turn({op, "ring"}, members, 4);
  }
}

TEST_CASE("rings from and to a root: every sandbox of up to 4 members of up to 32") {
  // The root is member 0: of another the sets are turned.
  for (const Op op : {Op::kBroadcast, Op::kReduce})
    for (int members = 1; members <= kMembers; ++members) check_every_set({op, "ring"}, members, 4);
}

TEST_CASE("rings in segments, binomial trees, halving and doubling: every sandbox of up to 3 members of up to 32") {
  for (const auto& algorithm : {Algorithm{Op::kAllReduce, "segmented_ring"}, {Op::kAllGather, "segmented_ring"}})
    for (int members = 2; members <= kMembers; ++members) check_every_turn(algorithm, members, 3);
  for (const auto& algorithm : {Algorithm{Op::kBroadcast, "tree"}, {Op::kReduce, "tree"}})
    for (int members = 1; members <= kMembers; ++members) check_every_set(algorithm, members, 3);
  for (int members = 1; members <= kMembers; ++members)
    check_every_set({Op::kAllReduce, "halving_doubling"}, members, members <= 16 ? 4 : 2);
}

TEST_CASE("any sandbox at all of up to 9 members, any root") {
  for (const auto& algorithm : kAlgorithms)
    for (int members = 1; members <= 9; ++members)
      for (int root = 0; root < (is_rooted(algorithm.op) ? members : 1); ++root) {
        const Whole whole(algorithm.op, algorithm.name, members, root, 300'000);
        const int sets = for_every_set(members, members, [&](const Set& sandbox) { whole.check(sandbox); });
        REQUIRE(sets == (1 << members) - 1);
      }
}

TEST_CASE("random sandboxes of up to 64 members, tensors of several pieces") {
  Random random{5};
  for (const auto& algorithm : kAlgorithms)
    for (int round = 0; round < 12; ++round) {
      const int members = 1 + random.below(64), root = random.below(members);
      const Whole whole(algorithm.op, algorithm.name, members, root, random.below(1 << 21));
      for (int i = 0; i < 5; ++i) whole.check(random_set(random, members, 1 + random.below(members)));
    }
}

// What all virtual members put in is drawn; so nobody has to be executed but the sandbox.
TEST_CASE("random sandboxes of up to 8,192 members") {
  Random random{6};
  for (const auto& algorithm : kAlgorithms)
    for (int round = 0; round < 3; ++round) {
      const int members = round == 0 ? 8192 : 33 + random.below(8160), root = random.below(members);
      const Collective collective{{.op = algorithm.op, .members = members, .bytes = 1 << 20, .root = root},
                                  algorithm.name};
      const auto sandbox = random_set(random, members, 1 + random.below(4));
      INFO(name(algorithm.op) << " by " << algorithm.name << " of " << members << ", root " << root << ", sandbox "
                              << Whole::text(sandbox));
      const auto plan = prune(collective.shape, algorithm.name, sandbox).value();
      auto own = random_numbers(static_cast<int>(sandbox.size()), plan.chunks, random());
      Sums arithmetic{random_numbers(1, plan.chunks, random()).front()};
      auto right = arithmetic.virtual_part;
      for (int chunk = 0; chunk < plan.chunks; ++chunk)
        for (std::size_t i = 0; i < sandbox.size(); ++i)
          if (collective.reduces())
            right[chunk] += own[i][chunk];
          else if (collective.owner(chunk, plan.chunks) == sandbox[i])
            right[chunk] = own[i][chunk];
      execute_in_steps(plan, own, arithmetic);
      for (std::size_t i = 0; i < sandbox.size(); ++i)
        for (int chunk = 0; chunk < plan.chunks; ++chunk)
          if (collective.gets(sandbox[i], chunk, plan.chunks)) REQUIRE(own[i][chunk] == right[chunk]);
    }
}
