// The paper's way (section 6.3) as oracle: the virtual neighbour in front of the sandbox sends, while a sandbox
// member's chunk is reduced, what is missing: the full sum less what sandbox members on the remaining way will add. Of
// other chunks it sends anything. Where chunks are spread it sends the full sum.
#include <map>

#include "replay/whole.hpp"

using namespace prism;
using namespace prism::test;

namespace {

using Sent = std::map<std::tuple<int, int, int>, std::uint64_t>;  // (step, to, chunk)

// Sandbox members' programs with nothing else: what comes from virtual members is what the paper says.
Numbers by_subtraction(const Whole& whole, const PrunedCollective& plan, const Set& sandbox, Sent& sent) {
  const int members = whole.collective.shape.members;
  const auto in_sandbox = [&](int member) { return std::binary_search(sandbox.begin(), sandbox.end(), member); };
  auto own = whole.own(sandbox);
  Random anything{9};
  const auto from_virtual = [&](const MemberStep& step, int to) {
    if (step.kind == MemberStep::Kind::kTake) return sent[{step.step, to, step.chunk}] = whole.sums[step.chunk];
    std::uint64_t value = whole.sums[step.chunk];
    for (int member = to;; member = (member + 1) % members) {
      if (!in_sandbox(member)) return anything();  // the owner is not in this part of the sandbox
      value -= whole.inputs[member][step.chunk];
      if (member == step.chunk) return sent[{step.step, to, step.chunk}] = value;
    }
  };
  for (int step = 0; step < plan.steps; ++step) {
    std::map<std::pair<int, int>, std::uint64_t> wires;
    for (std::size_t i = 0; i < sandbox.size(); ++i)
      for (const auto& one : plan.sandbox[i].steps)
        if (one.step == step && one.kind == MemberStep::Kind::kSend) wires[{sandbox[i], one.peer}] = own[i][one.chunk];
    for (std::size_t i = 0; i < sandbox.size(); ++i)
      for (const auto& one : plan.sandbox[i].steps) {
        if (one.step != step || one.kind == MemberStep::Kind::kSend) continue;
        const auto came = in_sandbox(one.peer) ? wires.at({one.peer, sandbox[i]}) : from_virtual(one, sandbox[i]);
        own[i][one.chunk] = came + (one.kind == MemberStep::Kind::kCombine ? own[i][one.chunk] : 0);
      }
  }
  return own;
}

}  // namespace

TEST_CASE("nothing is subtracted, and what goes into the sandbox is what the paper's formula says") {
  Random random{4};
  for (const Op op : {Op::kAllReduce, Op::kReduceScatter})
    for (int members = 2; members <= 32; ++members) {
      const Whole whole(op, "ring", members);
      for (int round = 0; round < 25; ++round) {
        const auto sandbox = random_set(random, members, 1 + random.below(std::min(4, members)));
        INFO(name(op) << " of " << members << ", sandbox " << Whole::text(sandbox));
        const auto plan = whole.pruned(sandbox);
        Sent subtracted, sent;
        whole.check(sandbox, by_subtraction(whole, plan, sandbox, subtracted));
        auto own = whole.own(sandbox);
        auto arithmetic = whole.virtual_part(sandbox);
        execute_in_steps(plan, own, arithmetic, [&](const AssistantStep& step, std::uint64_t value) {
          sent[{step.step, step.peer, step.chunk}] = value;
        });
        REQUIRE((members == static_cast<int>(sandbox.size()) || !subtracted.empty()));
        for (const auto& [message, value] : subtracted) REQUIRE(sent.at(message) == value);
      }
    }
}
