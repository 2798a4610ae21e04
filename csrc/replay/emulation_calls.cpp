#include "replay/emulation_calls.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "replay/emulation_words.hpp"

namespace prism {

using engine::Loop;
using engine::Period;

namespace {

int kind_of(Op op) { return !is_point_to_point(op) ? 0 : op == Op::kSend ? 1 : 2; }

}  // namespace

EmulationCalls::EmulationCalls(const engine::Job& job, const Emulation::Options& options)
    : job_(job), warns_(options.warn_on_divergence) {
  const auto& graph = *job.graph;
  for (const int rank : options.sandbox) {
    const ClassView& view = job.view(rank);
    auto& own = ranks_[rank];
    const auto groups = graph.group_slots(rank);
    for (std::uint32_t slot = 0; slot < groups.size(); ++slot) own.slots.emplace(graph.group_name(groups[slot]), slot);
    for (std::uint32_t c = 0; c < view.comm_op.size(); ++c) {
      const auto op = static_cast<Op>(view.comm_op[c]);
      const bool message = is_point_to_point(op);
      const std::int32_t peer = !message || view.comm_peer[c] < 0
                                    ? -1
                                    : graph.rank_of_peer_slot(rank, static_cast<std::uint32_t>(view.comm_peer[c]));
      own.streams[{view.comm_group[c], kind_of(op), peer, message ? view.comm_tag[c] : 0}].push_back(c);
    }
    for (auto& [stream, comms] : own.streams)
      std::stable_sort(comms.begin(), comms.end(), [&](auto a, auto b) { return view.comm_seq[a] < view.comm_seq[b]; });
    own.found.resize(view.comm_op.size());
  }
}

EmulationCalls::Beyond EmulationCalls::beyond() const {
  const std::lock_guard lock(mutex_);
  return beyond_;
}

void EmulationCalls::publish(Beyond beyond) {
  const std::lock_guard lock(mutex_);
  beyond_ = std::move(beyond);
  version_.fetch_add(1, std::memory_order_release);
}

Result<std::uint32_t> EmulationCalls::find(int rank, const Call& call) {
  const auto known = ranks_.find(rank);
  if (known == ranks_.end())
    return Error{ErrorCode::kInvalidInput, fmt::format("rank {} is not one of those that are real", rank)};
  const OfRank& own = known->second;
  const auto slot = own.slots.find(call.group);
  if (slot == own.slots.end()) return differs(rank, call, "no such group");
  const bool message = is_point_to_point(call.op);
  const auto stream =
      own.streams.find({slot->second, kind_of(call.op), message ? call.peer : -1, message ? call.tag : 0});
  if (stream == own.streams.end()) return differs(rank, call, "none of that number");
  if (beyond_.loop) return find_in_loop(rank, stream->second, call);
  const auto place = in_record(rank, stream->second, call.number);
  if (place && is_same(rank, place->comm, call)) return take(rank, *place, call);
  const auto goes_on = go_on(rank, stream->second, call);
  if (goes_on) return find_in_loop(rank, stream->second, call);
  if (!place) return differs(rank, call, "none of that number; " + goes_on.error().message);
  if (!warns_ || !is_like(rank, place->comm, call)) return differs(rank, call, describe(rank, *place));
  return take(rank, *place, call);
}

// Where the record has that number.
std::optional<EmulationCalls::Place> EmulationCalls::in_record(int rank, const Comms& stream,
                                                               std::int64_t number) const {
  const auto& seq = job_.view(rank).comm_seq;
  const auto found =
      std::lower_bound(stream.begin(), stream.end(), number, [&](auto c, auto wanted) { return seq[c] < wanted; });
  if (found == stream.end() || seq[*found] != number) return std::nullopt;
  return Place{*found, 0};
}

// Where a job that goes on has it: before the period, or in a round of it.
std::optional<EmulationCalls::Place> EmulationCalls::in_loop(int rank, const Comms& stream, std::int64_t number) const {
  const auto rounds = beyond_.iterations > 0 ? std::int64_t{rounds_of(rank)} : Loop::kEndless;
  const auto& plans = loop_->programs()[job_.ranks[rank].cls].comms;
  const auto [seq, round] = Loop::recorded(plans, stream, number, rounds);
  const auto place = in_record(rank, stream, seq);
  if (!place || plans[place->comm].region == Period::kAfter) return std::nullopt;
  return Place{place->comm, round};
}

// Behind the period, where the job ends with the rounds that the rank has begun.
std::optional<EmulationCalls::Place> EmulationCalls::behind(int rank, const Comms& stream, std::int64_t number) const {
  for (auto c = stream.rbegin(); c != stream.rend() && plan(rank, *c).region == Period::kAfter; ++c)
    if (plan(rank, *c).seq + std::int64_t{rounds_of(rank) - 1} * plan(rank, *c).seq_per_round == number)
      return Place{*c, 0};
  return std::nullopt;
}

const engine::CommPlan& EmulationCalls::plan(int rank, std::uint32_t comm) const {
  return loop_->programs()[job_.ranks[rank].cls].comms[comm];
}

// Whether what its lane has before it in the round has been issued.
bool EmulationCalls::is_in_turn(int rank, Place place) const {
  const auto& own = plan(rank, place.comm);
  const auto& found = ranks_.at(rank).found;
  for (std::uint32_t c = 0; c < found.size(); ++c) {
    const auto& other = plan(rank, c);
    if (other.region == own.region && other.lane == own.lane && other.ordinal < own.ordinal && found[c] <= place.round)
      return false;
  }
  return true;
}

std::uint32_t EmulationCalls::rounds_of(int rank) const {
  if (!beyond_.loop) return 1;
  if (beyond_.iterations > 0)
    return static_cast<std::uint32_t>((beyond_.iterations - loop_->first()) / loop_->length());
  std::uint32_t most = 1;
  const auto& found = ranks_.at(rank).found;
  for (std::uint32_t c = 0; c < found.size(); ++c)
    if (plan(rank, c).region == Period::kRepeated) most = std::max(most, found[c]);
  return most;
}

// The call is of a later round: from here on the job goes on beyond its record. Otherwise why it is not.
Result<void> EmulationCalls::go_on(int rank, const Comms& stream, const Call& call) {
  if (!loop_ && !not_periodic_) {
    auto loop = Loop::make(job_, {});
    if (loop)
      loop_ = std::make_shared<const Loop>(std::move(loop).value());
    else
      not_periodic_ = loop.error();
  }
  if (not_periodic_) return *not_periodic_;
  const auto place = in_loop(rank, stream, call.number);
  if (!place || place->round == 0) return Error{ErrorCode::kMismatch, "nothing of this kind is repeated"};
  if (!is_same(rank, place->comm, call) && !(warns_ && is_like(rank, place->comm, call)))
    return Error{ErrorCode::kMismatch, "repeated it would have " + describe(rank, *place)};
  Beyond beyond{.loop = loop_, .iterations = 0, .renamed = {}};
  auto known = ranks_;
  for (const auto& [real, own] : known)
    if (!rename(real, beyond)) {
      ranks_ = std::move(known);
      return Error{ErrorCode::kMismatch, fmt::format("rank {} has issued what ends the job", real)};
    }
  publish(std::move(beyond));
  return {};
}

// What was found behind the period, as what it would be in a later round.
bool EmulationCalls::rename(int rank, Beyond& beyond) {
  auto& own = ranks_.at(rank);
  const ClassView& view = job_.view(rank);
  for (const auto& [key, stream] : own.streams)
    for (const auto c : stream) {
      if (own.found[c] == 0 || plan(rank, c).region != Period::kAfter) continue;
      const auto place = in_loop(rank, stream, view.comm_seq[c]);
      const auto same = [&](const auto& column) { return column[c] == column[place->comm]; };
      if (!place || own.found[place->comm] != place->round || !same(view.comm_op) || !same(view.comm_dtype) ||
          !same(view.comm_reduce_op) || !same(view.comm_peer) || !same(view.comm_input_bytes) ||
          !same(view.comm_output_bytes))
        return false;
      own.found[c] = 0;
      own.found[place->comm] = place->round + 1;
      beyond.renamed[{rank, c}] = loop_->number(job_.ranks[rank].cls, place->comm, place->round);
    }
  return true;
}

Result<std::uint32_t> EmulationCalls::find_in_loop(int rank, const Comms& stream, const Call& call) {
  const auto inside = in_loop(rank, stream, call.number), last = behind(rank, stream, call.number);
  const bool goes_on = inside && is_same(rank, inside->comm, call);
  if (last && is_same(rank, last->comm, call) && !(goes_on && is_in_turn(rank, *inside))) {
    PRISM_RETURN_IF_ERROR(end(rank, call));
    return take(rank, *last, call);
  }
  if (!inside) return differs(rank, call, last ? describe(rank, *last) : "none of that number");
  if (!goes_on && !(warns_ && is_like(rank, inside->comm, call))) return differs(rank, call, describe(rank, *inside));
  return take(rank, *inside, call);
}

// With the rounds that the rank has begun.
Result<void> EmulationCalls::end(int rank, const Call& call) {
  if (beyond_.iterations > 0) return {};
  Beyond beyond = beyond_;
  const auto rounds = rounds_of(rank);
  for (const auto& [real, own] : ranks_)
    if (rounds_of(real) > rounds)
      return differs(rank, call, fmt::format("an iteration more, which rank {} has begun, before it", real));
  beyond.iterations = loop_->first() + static_cast<int>(rounds) * loop_->length();
  publish(std::move(beyond));
  return {};
}

bool EmulationCalls::is_like(int rank, std::uint32_t comm, const Call& call) const {
  return static_cast<Op>(job_.view(rank).comm_op[comm]) == call.op;
}

bool EmulationCalls::is_same(int rank, std::uint32_t c, const Call& call) const {
  const ClassView& view = job_.view(rank);
  return is_like(rank, c, call) && static_cast<DType>(view.comm_dtype[c]) == call.dtype &&
         static_cast<ReduceOp>(view.comm_reduce_op[c]) == call.reduce_op &&
         view.comm_input_bytes[c] == call.input_bytes && view.comm_output_bytes[c] == call.output_bytes &&
         (!is_rooted(call.op) || view.comm_peer[c] == call.root);
}

Error EmulationCalls::differs(int rank, const Call& call, const std::string& has) const {
  return {ErrorCode::kMismatch,
          fmt::format("rank {}: the program issues {}; the trace has {}", rank, in_words(call), has)};
}

Result<std::uint32_t> EmulationCalls::take(int rank, Place place, const Call& call) {
  auto& found = ranks_.at(rank).found[place.comm];
  if (found > place.round)
    return Error{ErrorCode::kMismatch, fmt::format("rank {} issues {} twice", rank, in_words(call))};
  if (found < place.round) return differs(rank, call, describe(rank, Place{place.comm, found}) + " before it");
  const auto number = loop_ ? loop_->number(job_.ranks[rank].cls, place.comm, place.round) : place.comm;
  if (number == engine::kNone) return differs(rank, call, "no numbers beyond those of 2^32 communications");
  if (!is_same(rank, place.comm, call)) differences_.push_back(differs(rank, call, describe(rank, place)).message);
  ++found;
  return number;
}

}  // namespace prism
