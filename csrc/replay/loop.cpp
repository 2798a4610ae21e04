#include "replay/loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "replay/draw.hpp"
#include "replay/period_finder.hpp"
#include "replay/report.hpp"

namespace prism::engine {
namespace {

Error wrong(std::string text) { return {ErrorCode::kInvalidInput, std::move(text)}; }

int first_rank_of(const Job& job, std::size_t cls) {
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank)
    if (job.ranks[rank].cls == static_cast<int>(cls)) return static_cast<int>(rank);
  return -1;
}

// Whether the last mark ends an iteration is seen from what follows it, which ranks may see differently: what one rank
// takes for an iteration is one.
bool last_mark_begins_one(const Job& job) {
  std::size_t marks = 0, ended = 0, begun = 0;
  for (std::size_t cls = 0; cls < job.classes.size(); ++cls) {
    const auto iterations = iteration_plan(job.views[cls], job.classes[cls]);
    if (iterations.marks.empty()) continue;
    if (marks > 0 && iterations.marks.size() != marks) return false;
    marks = iterations.marks.size();
    ++(iterations.last == kNone ? ended : begun);
  }
  return ended > 0 && begun > 0;
}

// Periods of all classes of the iterations [first, first + length).
template <typename Find>
std::optional<std::string> try_period(const Job& job, const std::vector<PeriodFinder>& finders, Find&& find,
                                      std::vector<Period>& periods) {
  periods.assign(finders.size(), {});
  for (std::size_t cls = 0; cls < finders.size(); ++cls) {
    if (job.views[cls].comm_op.empty() && finders[cls].iterations() == 0) {
      periods[cls].region.assign(job.views[cls].node_kind.size(), Period::kBefore);
      for (auto* column : {&periods[cls].before, &periods[cls].iteration, &periods[cls].place})
        column->assign(job.views[cls].node_kind.size(), kNone);
      periods[cls].carried.assign(job.classes[cls].in.to.size(), false);
    } else if (auto differs = find(finders[cls], periods[cls])) {
      return fmt::format("rank {}: {}", first_rank_of(job, cls), *differs);
    }
  }
  return std::nullopt;
}

}  // namespace

Result<Loop> Loop::make(const Job& job, const LoopOptions& options) {
  Loop loop;
  loop.seed_ = options.seed;
  PRISM_RETURN_IF_ERROR(loop.find_period(job, options));
  PRISM_RETURN_IF_ERROR(loop.check_that_ranks_meet(job));
  if (options.iterations) {
    PRISM_ASSIGN_OR_RETURN(loop.rounds_, loop.rounds_of(*options.iterations));
  }
  return loop;
}

Result<void> Loop::find_period(const Job& job, const LoopOptions& options) {
  std::vector<PeriodFinder> finders;
  const bool open = last_mark_begins_one(job);
  for (std::size_t cls = 0; cls < job.classes.size(); ++cls)
    finders.emplace_back(job.views[cls], job.classes[cls], open && !job.views[cls].mark_node.empty());
  std::size_t count = 0;
  bool closed = true;
  for (std::size_t cls = 0; cls < finders.size(); ++cls) {
    const auto own = finders[cls].iterations();
    if (own == 0 && job.views[cls].comm_op.empty()) continue;
    if (count == 0) count = own;
    if (own == 0)
      return wrong(
          fmt::format("rank {} has no iteration marks (prismllm.iteration() sets one), without which a job does "
                      "not go on beyond its record",
                      first_rank_of(job, cls)));
    if (own != count)
      return wrong(
          fmt::format("rank {} has {} iterations, others have {}; a job that goes on beyond its record needs "
                      "the same marks on all ranks",
                      first_rank_of(job, cls), own, count));
    closed = closed && finders[cls].closed();
  }
  std::vector<Period> periods;
  std::optional<std::string> differs = "there are no iterations";
  if (options.period) {
    const auto [first, end] = *options.period;
    if (first < 0 || end <= first || static_cast<std::size_t>(end) > count || end - first > UINT16_MAX)
      return wrong(fmt::format("period {}:{}; accepted: iterations of the record, 0:{}", first, end, count));
    first_ = first, length_ = end - first;
    const auto take = [&](const PeriodFinder& finder, Period& period) {
      if (!finder.find(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first), period))
        return std::optional<std::string>();
      return finder.take(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first), period);
    };
    differs = try_period(job, finders, take, periods);
  } else {
    // The shortest; the last iteration may be one that did not get to its end.
    for (std::size_t end = count; differs && end + (closed ? 0 : 1) >= count && end > 0; --end)
      for (std::size_t length = 1; differs && 2 * length <= end && length <= UINT16_MAX; ++length) {
        const auto find = [&](const PeriodFinder& finder, Period& period) {
          return finder.find(end - length, length, period);
        };
        auto here = try_period(job, finders, find, periods);
        if (!here) first_ = static_cast<int>(end - length), length_ = static_cast<int>(length);
        if (!here || (end == count && length == 1)) differs = here;
      }
    if (count == 1) differs = "there is only one iteration";
  }
  if (differs)
    return wrong(
        fmt::format("the job does not go on beyond its record, as it is not periodic: {}; accepted: jobs whose "
                    "last iterations are repetitions of those before, or a period that is chosen",
                    *differs));
  for (std::size_t cls = 0; cls < finders.size(); ++cls) {
    programs_.push_back(compile(job.views[cls], job.classes[cls], &periods[cls]));
    auto& own = classes_.emplace_back();
    own.open_span = periods[cls].open_span, own.open_model = periods[cls].open_model;
    const auto& comms = programs_[cls].comms;
    own.period_place.assign(comms.size() - 1, kNone);
    for (std::uint32_t c = 0; c + 1 < comms.size(); ++c) {
      if (comms[c].region != Period::kRepeated) continue;
      own.period_place[c] = static_cast<std::uint32_t>(own.comms.size());
      own.comms.push_back(c);
    }
    if (!seed_ || finders[cls].iterations() == 0) continue;
    const auto warmup = static_cast<std::size_t>(options.warmup.value_or(count > 2 ? 1 : 0));
    if (options.warmup && (*options.warmup < 0 || warmup >= count))
      return wrong(fmt::format("{} iterations of warm-up; accepted: 0 to {}", *options.warmup, count - 1));
    own.nodes.resize(count);
    for (int of = first_; of < first_ + length_; ++of) {
      auto& pool = own.pools.emplace_back();
      for (std::size_t i = warmup; i < count; ++i) {
        auto nodes = finders[cls].repetition(i, static_cast<std::size_t>(of), periods[cls]);
        if (nodes.empty()) continue;
        pool.push_back(static_cast<std::uint32_t>(i));
        own.nodes[i] = std::move(nodes);
      }
    }
  }
  return {};
}

// Each member of a group has as many collectives in a period, and each send has its receive, so that what meets in one
// round meets in all.
Result<void> Loop::check_that_ranks_meet(const Job& job) const {
  std::vector<std::int64_t> collectives(job.graph->group_count(), -1);
  std::map<std::tuple<std::uint32_t, int, int, int>, std::int64_t> sent;  // group, from (-1: any), to, tag
  for (int rank = 0; rank < job.graph->world_size(); ++rank) {
    const auto cls = job.ranks[rank].cls;
    if (cls < 0) continue;
    std::vector<std::int64_t> own(job.classes[cls].queues, 0);
    for (const auto c : classes_[cls].comms) {
      const auto& comm = programs_[cls].comms[c];
      if (!is_point_to_point(comm.op)) {
        ++own[comm.group];
        continue;
      }
      const bool sends = comm.op == Op::kSend;
      const int peer = comm.peer < 0 ? -1 : job.graph->rank_of_peer_slot(rank, static_cast<std::uint32_t>(comm.peer));
      if (peer >= 0 && job.ranks[peer].cls < 0) continue;
      const int to = sends ? peer : rank, from = job.plan(to).any_source ? -1 : sends ? rank : peer;
      sent[{job.graph->group_of_slot(rank, comm.group), from, to, job.model.tags ? comm.tag : 0}] += sends ? 1 : -1;
    }
    for (std::uint32_t slot = 0; slot < own.size(); ++slot) {
      if (job.classes[cls].collectives[slot].empty() && own[slot] == 0) continue;
      const auto group = job.graph->group_of_slot(rank, slot);
      auto& known = collectives[group];
      if (known < 0) known = own[slot];
      if (known != own[slot])
        return wrong(
            fmt::format("rank {} has {} collectives of group '{}' in a period of {} iterations, others have {}", rank,
                        own[slot], job.graph->group_name(group), length_, known));
    }
  }
  for (const auto& [key, more] : sent)
    if (more != 0)
      return wrong(fmt::format("in a period of {} iterations {} {} messages of group '{}' than rank {} receives{}",
                               length_,
                               std::get<1>(key) < 0 ? "its peers send" : fmt::format("rank {} sends", std::get<1>(key)),
                               more > 0 ? "more" : "fewer", job.graph->group_name(std::get<0>(key)), std::get<2>(key),
                               std::get<1>(key) < 0 ? "" : " from it"));
  return {};
}

Result<std::int64_t> Loop::rounds_of(int iterations) const {
  const int beyond = iterations - first_;
  if (beyond < length_ || beyond % length_ != 0)
    return wrong(
        fmt::format("{} iterations; accepted: {}, or so many more by {}", iterations, first_ + length_, length_));
  return beyond / length_;
}

std::pair<std::uint32_t, std::uint32_t> Loop::place(int cls, std::uint32_t number) const {
  const auto& own = classes_[cls];
  const auto recorded = static_cast<std::uint32_t>(own.period_place.size());
  if (number < recorded || own.comms.empty()) return {number, 0};
  const auto period = static_cast<std::uint32_t>(own.comms.size());
  return {own.comms[(number - recorded) % period], 1 + (number - recorded) / period};
}

std::uint32_t Loop::number(int cls, std::uint32_t comm, std::uint32_t round) const {
  if (round == 0) return comm;
  const auto& own = classes_[cls];
  const auto number = own.period_place.size() + std::uint64_t{round - 1} * own.comms.size() + own.period_place[comm];
  return number < kNone ? static_cast<std::uint32_t>(number) : kNone;
}

std::pair<std::int64_t, std::uint32_t> Loop::recorded(const std::vector<CommPlan>& plans,
                                                      std::span<const std::uint32_t> comms, std::int64_t seq,
                                                      std::int64_t rounds) {
  const auto first =
      std::partition_point(comms.begin(), comms.end(), [&](auto c) { return plans[c].region == Period::kBefore; });
  if (first == comms.end() || plans[*first].region != Period::kRepeated || seq < plans[*first].seq) return {seq, 0};
  const auto begin = plans[*first].seq, size = std::int64_t{plans[*first].seq_per_round};
  const auto round = (seq - begin) / size;
  if (round >= rounds) return {seq - (rounds - 1) * size, 0};
  return {begin + (seq - begin) % size, static_cast<std::uint32_t>(round)};
}

std::uint32_t Loop::repetition(int cls, int rank, std::uint32_t round, const Step& step) const {
  const auto own = static_cast<std::uint32_t>(first_) + step.iteration;
  if (!seed_) return own;
  const auto& pool = classes_[cls].pools[step.iteration];
  if (pool.empty()) return own;
  return pool[drawn(*seed_, 0, rank, own + std::size_t{round} * static_cast<std::size_t>(length_)) % pool.size()];
}

std::int64_t Loop::duration(int cls, std::uint32_t repetition, const Step& step,
                            std::span<const std::int64_t> durations) const {
  const auto& own = classes_[cls];
  const auto node = seed_ && !own.nodes[repetition].empty() ? own.nodes[repetition][step.place] : step.node;
  return node == own.open_span ? std::min(durations[node], durations[own.open_model]) : durations[node];
}

}  // namespace prism::engine
