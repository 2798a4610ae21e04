#include "simulate/schedule.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "simulate/schedules.hpp"

namespace prism::simulate {
namespace {

using schedules::SchedulePtr;

struct Choice {
  const char* algorithm;
  std::vector<Op> ops;
  SchedulePtr (*make)(const CollectiveShape&);
};

const std::vector<Choice>& choices() {
  static const std::vector<Choice> all = {
      {"ring",
       {Op::kAllReduce, Op::kReduceScatter, Op::kAllGather},
       [](const CollectiveShape& shape) { return schedules::ring(shape, shape.op == Op::kAllReduce ? 2 : 1); }},
      {"ring", {Op::kBroadcast, Op::kReduce}, &schedules::chain},
      {"segmented_ring", {Op::kAllReduce, Op::kReduce, Op::kAllGather}, &schedules::segmented_ring},
      {"tree", {Op::kAllReduce}, &schedules::double_binary_tree},
      {"tree", {Op::kBroadcast, Op::kReduce, Op::kGather, Op::kScatter}, &schedules::binomial},
      {"halving_doubling", {Op::kAllReduce, Op::kReduceScatter, Op::kAllGather}, &schedules::halving_doubling},
      {"recursive_doubling", {Op::kAllReduce}, &schedules::recursive_doubling},
      {"direct",
       {Op::kAllToAll, Op::kAllReduce, Op::kAllGather, Op::kReduceScatter, Op::kBroadcast, Op::kReduce, Op::kGather,
        Op::kScatter},
       &schedules::direct},
      {"pairwise", {Op::kAllToAll}, &schedules::pairwise},
      {"dissemination", {Op::kBarrier}, &schedules::dissemination},
      {"hierarchical", {Op::kAllReduce}, &schedules::hierarchical_ring},
  };
  return all;
}

Error wrong(std::string text) { return {ErrorCode::kInvalidInput, std::move(text)}; }

}  // namespace

Op kind_of(Op op) {
  switch (op) {
    case Op::kAllReduceCoalesced:
      return Op::kAllReduce;
    case Op::kAllGatherIntoTensor:
    case Op::kAllGatherCoalesced:
    case Op::kAllGatherIntoTensorCoalesced:
      return Op::kAllGather;
    case Op::kReduceScatterTensor:
    case Op::kReduceScatterTensorCoalesced:
      return Op::kReduceScatter;
    case Op::kAllToAllSingle:
      return Op::kAllToAll;
    default:
      return op;
  }
}

std::string default_algorithm(Op op) {
  switch (kind_of(op)) {
    case Op::kAllToAll:
      return "direct";
    case Op::kBarrier:
      return "dissemination";
    case Op::kBroadcast:
    case Op::kReduce:
    case Op::kGather:
    case Op::kScatter:
      return "tree";
    default:
      return "ring";
  }
}

Result<std::unique_ptr<Schedule>> make_schedule(const CollectiveShape& given, std::string_view algorithm) {
  CollectiveShape shape = given;
  shape.op = kind_of(given.op);
  const std::string wanted = algorithm.empty() ? default_algorithm(shape.op) : std::string(algorithm);
  // So many that the steps of every algorithm can be counted.
  if (shape.members < 1 || shape.members > 1 << 29)
    return wrong(fmt::format("a collective of {} members; accepted: 1 to 2^29", shape.members));
  if (shape.bytes < 0 || shape.bytes > std::int64_t{1} << 60)
    return wrong(fmt::format("{} bytes; accepted: 0 to 2^60", shape.bytes));
  if (shape.root < 0 || shape.root >= shape.members)
    return wrong(fmt::format("root {}; accepted: 0 to {}", shape.root, shape.members - 1));
  const auto members = static_cast<std::size_t>(shape.members);
  for (const auto* bytes : {&shape.sent, &shape.received})
    if (shape.sent.size() != shape.received.size() || (!bytes->empty() && bytes->size() != members) ||
        std::any_of(bytes->begin(), bytes->end(), [](auto one) { return one < 0 || one > std::int64_t{1} << 60; }))
      return wrong("what members send and receive; accepted: for each 0 to 2^60 bytes");
  std::vector<std::string> for_op;
  for (const auto& choice : choices()) {
    if (std::find(choice.ops.begin(), choice.ops.end(), shape.op) == choice.ops.end()) continue;
    if (choice.algorithm != wanted) {
      for_op.push_back(choice.algorithm);
      continue;
    }
    if (wanted == "segmented_ring" && shape.bytes > std::int64_t{1} << 49)
      return wrong(fmt::format("{} bytes in segments of 1 MiB or less; accepted: 0 to 2^49", shape.bytes));
    if (wanted == "hierarchical" && (shape.per_node < 1 || shape.members % shape.per_node != 0))
      return wrong(
          fmt::format("{} members with {} a node; accepted: a whole number of nodes", shape.members, shape.per_node));
    return choice.make(shape);
  }
  if (for_op.empty()) return wrong(fmt::format("{} is no collective", name(given.op)));
  return wrong(fmt::format("no algorithm '{}' for {}; accepted: {}", wanted, name(given.op), fmt::join(for_op, ", ")));
}

}  // namespace prism::simulate
