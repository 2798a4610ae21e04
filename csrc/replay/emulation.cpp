#include "replay/emulation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "replay/checks.hpp"
#include "replay/engine.hpp"
#include "replay/on_network.hpp"

namespace prism {

struct Emulation::Parts {
  engine::Job job;
  engine::Durations durations;
  engine::ServiceTimes service;
  std::unique_ptr<engine::Carrier> carrier;
  std::unique_ptr<engine::Engine> engine;
  explicit Parts(engine::Job prepared) : job(std::move(prepared)), durations(job) {}
};

namespace {

int kind_of(Op op) { return !is_point_to_point(op) ? 0 : op == Op::kSend ? 1 : 2; }

std::string in_words(std::string_view op, std::int64_t number, std::string_view group, DType dtype, ReduceOp reduce_op,
                     std::int32_t peer, std::int32_t tag, bool message, std::int64_t in, std::int64_t out) {
  std::string text = fmt::format("{} {} of group '{}' (", op, number, group);
  if (message)
    text += fmt::format("peer {}, tag {}, ", peer < 0 ? "any" : fmt::format("rank {}", peer), tag);
  else if (peer >= 0)
    text += fmt::format("root {}, ", peer);
  if (dtype != DType::kNone) text += fmt::format("{}, ", name(dtype));
  if (reduce_op != ReduceOp::kNone) text += fmt::format("{}, ", name(reduce_op));
  return text + fmt::format("{} bytes in, {} out)", in, out);
}

std::string in_words(const Emulation::Call& call) {
  const bool message = is_point_to_point(call.op);
  return in_words(name(call.op), call.number, call.group, call.dtype, call.reduce_op,
                  message              ? call.peer
                  : is_rooted(call.op) ? call.root
                                       : -1,
                  call.tag, message, call.input_bytes, call.output_bytes);
}

}  // namespace

Emulation::Emulation(ExecutionGraph graph, Options options) : graph_(std::move(graph)), options_(std::move(options)) {}
Emulation::~Emulation() = default;

Result<std::unique_ptr<Emulation>> Emulation::make(ExecutionGraph graph, const Options& options) {
  std::unique_ptr<Emulation> made(new Emulation(std::move(graph), options));
  PRISM_RETURN_IF_ERROR(made->prepare());
  return made;
}

Result<void> Emulation::prepare() {
  if (options_.sandbox.empty()) return Error{ErrorCode::kInvalidInput, "no rank is to be real; accepted: one or more"};
  for (const int rank : options_.sandbox)
    if (rank < 0 || rank >= graph_.world_size() || graph_.class_of(rank) < 0)
      return Error{ErrorCode::kInvalidInput, fmt::format("rank {} was not recorded in the trace", rank)};
  PRISM_RETURN_IF_ERROR(engine::check_times(graph_));
  PRISM_ASSIGN_OR_RETURN(auto job, engine::prepare(graph_));
  parts_ = std::make_unique<Parts>(std::move(job));
  Parts& parts = *parts_;
  if (graph_.timed() || !options_.network) parts.service = engine::service_times(parts.job, options_.links);
  if (options_.network) {
    PRISM_ASSIGN_OR_RETURN(parts.carrier, engine::OnNetwork::make(parts.job, *options_.network));
  } else {
    parts.carrier = std::make_unique<engine::FixedTimes>(parts.service);
  }
  PRISM_RETURN_IF_ERROR(engine::check_extent(parts.job, parts.durations, parts.service));
  for (const int rank : options_.sandbox) {
    const ClassView& view = parts.job.view(rank);
    auto& slots = slots_[rank];
    const auto groups = graph_.group_slots(rank);
    for (std::uint32_t slot = 0; slot < groups.size(); ++slot) slots.emplace(graph_.group_name(groups[slot]), slot);
    auto& comms = comms_[rank];
    for (std::uint32_t c = 0; c < view.comm_op.size(); ++c) {
      const auto op = static_cast<Op>(view.comm_op[c]);
      const bool message = is_point_to_point(op);
      const std::int32_t peer = !message || view.comm_peer[c] < 0
                                    ? -1
                                    : graph_.rank_of_peer_slot(rank, static_cast<std::uint32_t>(view.comm_peer[c]));
      comms.emplace(Key{view.comm_group[c], kind_of(op), peer, message ? view.comm_tag[c] : 0, view.comm_seq[c]}, c);
    }
    found_[rank].resize(view.comm_op.size());
  }
  parts.engine = std::make_unique<engine::Engine>(parts.job, parts.durations, parts.service, *parts.carrier);
  std::vector<int> all;
  for (int rank = 0; rank < graph_.world_size(); ++rank)
    if (graph_.class_of(rank) >= 0) all.push_back(rank);
  parts.engine->begin(all, options_.sandbox);
  return {};
}

std::string Emulation::describe(int rank, std::uint32_t comm) const {
  const ClassView& view = parts_->job.view(rank);
  const auto op = static_cast<Op>(view.comm_op[comm]);
  const bool message = is_point_to_point(op);
  std::int32_t peer = view.comm_peer[comm];
  if (message && peer >= 0) peer = graph_.rank_of_peer_slot(rank, static_cast<std::uint32_t>(peer));
  return in_words(name(op), view.comm_seq[comm], graph_.group_name(graph_.group_of_slot(rank, view.comm_group[comm])),
                  static_cast<DType>(view.comm_dtype[comm]), static_cast<ReduceOp>(view.comm_reduce_op[comm]), peer,
                  view.comm_tag[comm], message, view.comm_input_bytes[comm], view.comm_output_bytes[comm]);
}

std::optional<Error> Emulation::difference(int rank, std::uint32_t c, const Call& call) const {
  const ClassView& view = parts_->job.view(rank);
  const auto op = static_cast<Op>(view.comm_op[c]);
  bool same = op == call.op && static_cast<DType>(view.comm_dtype[c]) == call.dtype &&
              static_cast<ReduceOp>(view.comm_reduce_op[c]) == call.reduce_op &&
              view.comm_input_bytes[c] == call.input_bytes && view.comm_output_bytes[c] == call.output_bytes;
  if (is_rooted(call.op)) same = same && view.comm_peer[c] == call.root;
  if (same) return std::nullopt;
  return Error{ErrorCode::kMismatch, fmt::format("rank {}: the program issues {}; the trace has {}", rank,
                                                 in_words(call), describe(rank, c))};
}

Result<std::uint32_t> Emulation::find(int rank, const Call& call) {
  const auto comms = comms_.find(rank);
  if (comms == comms_.end())
    return Error{ErrorCode::kInvalidInput, fmt::format("rank {} is not one of those that are real", rank)};
  const auto slot = slots_[rank].find(call.group);
  const bool message = is_point_to_point(call.op);
  const auto found = slot == slots_[rank].end()
                         ? comms->second.end()
                         : comms->second.find(Key{slot->second, kind_of(call.op), message ? call.peer : -1,
                                                  message ? call.tag : 0, call.number});
  if (found == comms->second.end())
    return Error{ErrorCode::kMismatch,
                 fmt::format("rank {}: the program issues {}; the trace has {}", rank, in_words(call),
                             slot == slots_[rank].end() ? "no such group" : "none of that number")};
  if (auto differs = difference(rank, found->second, call)) {
    if (!options_.warn_on_divergence || static_cast<Op>(parts_->job.view(rank).comm_op[found->second]) != call.op)
      return *differs;
    differences_.push_back(differs->message);
  }
  auto&& found_already = found_[rank][found->second];
  if (found_already) return Error{ErrorCode::kMismatch, fmt::format("rank {} issues {} twice", rank, in_words(call))};
  found_already = true;
  return found->second;
}

Result<void> Emulation::arrived(int rank, std::uint32_t comm, std::int64_t at_ns) {
  late_ns_ = std::max(late_ns_, now_ns_ - at_ns);
  to_come_.emplace(std::max(at_ns, now_ns_), rank, comm);
  return {};
}

Result<void> Emulation::advance(std::int64_t until_ns, std::vector<Released>& released) {
  std::vector<engine::Engine::Released> now;
  while (until_ns > now_ns_ || (!to_come_.empty() && std::get<0>(*to_come_.begin()) < until_ns)) {
    const bool issue = !to_come_.empty() && std::get<0>(*to_come_.begin()) < until_ns;
    const auto step_ns = issue ? std::get<0>(*to_come_.begin()) : until_ns;
    PRISM_RETURN_IF_ERROR(parts_->engine->advance(step_ns, now));
    for (const auto& one : now) released.push_back({one.rank, one.comm, one.at_ns});
    // What ends at one moment has ended; others may still be issued in it.
    if (!now.empty()) {
      now_ns_ = now.back().at_ns;
      return {};
    }
    if (step_ns == INT64_MAX) return {};
    now_ns_ = step_ns;
    if (!issue) return {};
    const auto [at, rank, comm] = *to_come_.begin();
    to_come_.erase(to_come_.begin());
    PRISM_RETURN_IF_ERROR(parts_->engine->arrived(rank, comm, at));
  }
  return {};
}

std::size_t Emulation::left_of(int rank) const {
  const auto& found = found_.at(rank);
  return static_cast<std::size_t>(std::count(found.begin(), found.end(), false));
}

std::string Emulation::first_left(int rank) const {
  const auto& found = found_.at(rank);
  const auto first = std::find(found.begin(), found.end(), false);
  if (first == found.end()) return "";
  return fmt::format("rank {} has not issued {}", rank,
                     describe(rank, static_cast<std::uint32_t>(first - found.begin())));
}

Emulation::Groups Emulation::groups() const {
  Groups groups{.total = graph_.group_count()};
  for (std::uint32_t group = 0; group < groups.total; ++group) {
    const auto members = graph_.group_members(group);
    const auto real = std::count_if(members.begin(), members.end(), [&](std::int32_t member) {
      return std::binary_search(options_.sandbox.begin(), options_.sandbox.end(), member);
    });
    groups.with_sandbox += real > 0 ? 1 : 0;
    groups.mixed += real > 0 && static_cast<std::size_t>(real) < members.size() ? 1 : 0;
  }
  return groups;
}

Error Emulation::explain_deadlock() const {
  const auto finished = parts_->engine->finished();
  return finished ? Error{ErrorCode::kDeadlock, "the job cannot go on"} : finished.error();
}

}  // namespace prism
