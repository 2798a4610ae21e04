// What messages hold: executed chunk by chunk, every algorithm that says so gives each member what its operation is
// for.
#include "collective_inputs.hpp"
#include "literal.hpp"

using namespace prism;
using namespace prism::simulate;
using namespace prism::test;

TEST_CASE("members that do what the schedule says have the collective's result in the end") {
  const std::vector<std::pair<Op, const char*>> cases = {{Op::kAllReduce, "ring"},
                                                         {Op::kReduceScatter, "ring"},
                                                         {Op::kAllGather, "ring"},
                                                         {Op::kBroadcast, "ring"},
                                                         {Op::kReduce, "ring"},
                                                         {Op::kAllReduce, "segmented_ring"},
                                                         {Op::kReduce, "segmented_ring"},
                                                         {Op::kAllGather, "segmented_ring"},
                                                         {Op::kAllReduce, "tree"},
                                                         {Op::kBroadcast, "tree"},
                                                         {Op::kReduce, "tree"},
                                                         {Op::kAllReduce, "halving_doubling"},
                                                         {Op::kAllGather, "halving_doubling"},
                                                         {Op::kReduceScatter, "halving_doubling"},
                                                         {Op::kAllReduce, "recursive_doubling"}};
  for (const auto& [op, algorithm] : cases)
    for (int members = 1; members <= 33; ++members)
      for (const int root : {0, members / 3, members - 1}) {
        INFO(name(op) << " by " << algorithm << " of " << members << ", root " << root);
        const Collective collective{{.op = op, .members = members, .bytes = 3 << 20, .root = root}, algorithm};
        const auto schedule = make_schedule(collective.shape, algorithm).value();
        const int chunks = schedule->chunks();
        if (chunks == 0) {  // blocks of pairs are parts of a chunk
          REQUIRE((members & (members - 1)) != 0);
          REQUIRE((op == Op::kAllGather || op == Op::kReduceScatter));
          continue;
        }
        const auto inputs = random_numbers(members, chunks, 1);
        const auto outputs = execute_literally(*schedule, inputs, [](auto& own, auto came) { own += came; });
        const auto right = results(collective, inputs);
        for (int member = 0; member < members; ++member)
          for (int chunk = 0; chunk < chunks; ++chunk)
            if (collective.gets(member, chunk, chunks)) REQUIRE(outputs[member][chunk] == right[chunk]);
        if (!is_rooted(op)) break;
      }
}
