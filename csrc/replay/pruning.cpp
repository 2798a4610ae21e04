#include "replay/pruning.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "replay/pruning/planners.hpp"

namespace prism {
namespace {

using namespace pruning;

Error wrong(std::string text) { return {ErrorCode::kInvalidInput, std::move(text)}; }

Result<std::vector<std::int32_t>> checked(std::span<const std::int32_t> sandbox, int members) {
  std::vector<std::int32_t> sorted(sandbox.begin(), sandbox.end());
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty()) return wrong("a sandbox of no members; accepted: at least one");
  for (const int member : {sorted.front(), sorted.back()})
    if (member < 0 || member >= members)
      return wrong(fmt::format("sandbox member {} of a group of {}; accepted: 0 to {}", member, members, members - 1));
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) return wrong(fmt::format("sandbox member {} twice; accepted: once", *twice));
  return sorted;
}

// Chunks that pass in the whole algorithm.
std::int64_t unpruned(const Ways& ways, int members) {
  const int trees = ways.has(Tree::kReduce) + ways.has(Tree::kSpread);
  return std::int64_t{trees} * ways.chunks() * (members - 1);
}

struct Asked {
  simulate::CollectiveShape shape;
  std::string algorithm;
  std::vector<std::int32_t> sandbox;  // ascending
  std::unique_ptr<simulate::Schedule> schedule;
};

Result<Asked> asked_for(const simulate::CollectiveShape& given, std::string_view algorithm,
                        std::span<const std::int32_t> sandbox) {
  Asked asked{given, std::string(algorithm), {}, {}};
  asked.shape.op = simulate::kind_of(given.op);
  if (algorithm.empty()) asked.algorithm = simulate::default_algorithm(asked.shape.op);
  PRISM_ASSIGN_OR_RETURN(asked.schedule, simulate::make_schedule(asked.shape, asked.algorithm));
  PRISM_ASSIGN_OR_RETURN(asked.sandbox, checked(sandbox, asked.shape.members));
  return asked;
}

}  // namespace

Result<PrunedCollective> prune(const simulate::CollectiveShape& given, std::string_view algorithm,
                               std::span<const std::int32_t> sandbox_members) {
  PRISM_ASSIGN_OR_RETURN(const auto asked, asked_for(given, algorithm, sandbox_members));
  const auto& [shape, named, chosen, schedule] = asked;
  const auto ways = make_ways(shape, named, schedule->chunks());
  if (!ways && !is_recursive_doubling(shape.op, named))
    return wrong(fmt::format("{} by '{}' is not pruned; accepted: {}", name(given.op), named, prunable(shape.op)));
  constexpr std::int64_t kMostSteps = 1 << 26;
  const std::int64_t steps = 4 * std::int64_t{schedule->chunks()} * static_cast<std::int64_t>(chosen.size());
  if (steps > kMostSteps)
    return wrong(fmt::format("{} by '{}' of {} members with {} in the sandbox: up to {} steps; accepted: {}",
                             name(given.op), named, shape.members, chosen.size(), steps, kMostSteps));
  const Sandbox sandbox(shape.members, chosen);
  Programs programs(sandbox, shape.members, schedule->steps(), schedule->chunks());
  if (ways)
    plan_ways(*ways, is_reduction(shape.op), sandbox, programs);
  else
    plan_recursive_doubling(shape.members, sandbox, programs);
  auto plan = programs.finish();
  plan.blocks = shape.op == Op::kAllGather || shape.op == Op::kReduceScatter ? shape.members : 1;
  plan.unpruned_messages = ways ? unpruned(*ways, shape.members) : exchanges(shape.members);
  return plan;
}

Result<Neighbours> neighbours(const simulate::CollectiveShape& given, std::string_view algorithm,
                              std::span<const std::int32_t> sandbox_members) {
  PRISM_ASSIGN_OR_RETURN(const auto asked, asked_for(given, algorithm, sandbox_members));
  const auto& [shape, named, chosen, schedule] = asked;
  const Sandbox sandbox(shape.members, chosen);
  std::vector<std::int32_t> found;
  Neighbours result{{}, partners(shape, named, schedule->chunks(), chosen, found)};
  std::vector<std::uint8_t> kept(shape.members, result.pruned ? 0 : 1);
  for (const auto member : found) kept[member] = 1;
  for (int member = 0; member < shape.members; ++member)
    if (kept[member] != 0 && !sandbox.has(member)) result.members.push_back(member);
  return result;
}

ElementRange chunk_range(std::int64_t elements, std::int32_t blocks, std::int32_t chunks, std::int32_t chunk) {
  const std::int64_t block = elements / blocks, in_block = chunks / blocks;
  const std::int64_t size = block / in_block + (block % in_block != 0);
  const std::int64_t begin = chunk / in_block * block, index = chunk % in_block;
  return {begin + std::min(index * size, block), begin + std::min((index + 1) * size, block)};
}

}  // namespace prism
