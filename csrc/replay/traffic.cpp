#include "replay/traffic.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace prism::engine {
namespace {

// The members that share a node, where all nodes have as many and stand one after the other; else 1.
int per_node(std::span<const std::int32_t> members, int ranks_per_node) {
  const auto node = [&](std::size_t m) { return members[m] / ranks_per_node; };
  std::size_t size = 1;
  while (size < members.size() && node(size) == node(0)) ++size;
  for (std::size_t m = 0; m < members.size(); ++m)
    if (node(m) != node(m / size * size)) return 1;
  return members.size() % size == 0 ? static_cast<int>(size) : 1;
}

bool is_ring_of_gloo(Op kind, const ProgressModel& model) {
  return model.name == "gloo" &&
         (kind == Op::kAllReduce || kind == Op::kReduceScatter || kind == Op::kReduce || kind == Op::kAllGather);
}

// Where members differ, and the graph has all of them.
void set_uneven(const InFlight& in_flight, const Meeting& meeting, simulate::CollectiveShape& shape) {
  std::vector<std::int64_t> sent, received;
  bool differ = false;
  for (std::uint32_t member = 0; member < meeting.size; ++member) {
    const CommPlan* comm = in_flight.comm_of(meeting, member);
    if (!comm) return;
    sent.push_back(comm->input_bytes);
    received.push_back(comm->output_bytes);
    differ |= sent.back() != shape.bytes || received.back() != shape.bytes;
  }
  if (differ) shape.sent = std::move(sent), shape.received = std::move(received);
}

}  // namespace

bool is_later_first(Op kind, std::uint32_t members, const ProgressModel& model, const NetworkOptions& options) {
  return model.name == "gloo" && (kind == Op::kAllToAll || (kind == Op::kAllGather && members == 2)) &&
         options.algorithms.count(kind) == 0;
}

std::int64_t bytes_of(const Job& job, std::uint32_t entry) {
  const ClassView& view = job.view(job.entry_rank[entry]);
  const std::uint32_t c = job.comm_of(entry);
  return std::max(view.comm_input_bytes[c], view.comm_output_bytes[c]);
}

std::string describe(const Job& job, std::uint32_t entry) {
  const int rank = job.entry_rank[entry];
  const ClassView& view = job.view(rank);
  const std::uint32_t c = job.comm_of(entry);
  return fmt::format("{} {} of group '{}'", name(job.op(entry)), view.comm_seq[c],
                     job.graph->group_name(job.graph->group_of_slot(rank, view.comm_group[c])));
}

// Bytes mean what they do in closed_form_ns() of service_times.cpp: the tensor of an all_reduce, broadcast, reduce or
// all_to_all, all that an all_gather or a gather brings together, a reduce_scatter or scatter spreads. Where members of
// an all_to_all differ (uneven splits), each sends and receives its own; of others every one moves what the largest
// does. Without another choice the algorithms are simulate::default_algorithm()'s, but Gloo's where it was measured:
// rings in segments, a reduce_scatter moves what an all_reduce does, and what starts by a star or a tree is one.
Traffic traffic_of(const InFlight& in_flight, const Meeting& meeting, const NetworkOptions& options) {
  const Job& job = in_flight.job();
  const Op kind = simulate::kind_of(meeting.op);
  Traffic traffic{{.op = kind,
                   .members = static_cast<int>(meeting.size),
                   .bytes = 0,
                   .root = meeting.root,
                   .per_node = per_node(job.graph->group_members(meeting.group), options.per_node)},
                  {}};
  auto& shape = traffic.shape;
  bool has_root = false;
  for (std::uint32_t member = 0; member < meeting.size; ++member) {
    const CommPlan* comm = in_flight.comm_of(meeting, member);
    if (!comm) continue;
    has_root |= member == static_cast<std::uint32_t>(meeting.root);
    shape.bytes = std::max(shape.bytes, comm->bytes());
  }
  if (kind == Op::kAllToAll) set_uneven(in_flight, meeting, shape);
  // Others than the root know only of their own part.
  if (!has_root && (kind == Op::kGather || kind == Op::kScatter) &&
      shape.bytes < (std::int64_t{1} << 60) / shape.members)
    shape.bytes *= shape.members;
  const StartRule rule = job.model.rule(meeting.op);
  if (rule != StartRule::kLastMember) traffic.manner = simulate::Manner::kBothEnds;
  const auto chosen = options.algorithms.find(kind);
  if (chosen != options.algorithms.end()) {
    traffic.algorithm = chosen->second;
  } else if (is_ring_of_gloo(kind, job.model)) {
    if (kind == Op::kReduceScatter) shape.op = Op::kAllReduce;
    traffic.algorithm = "segmented_ring";
    traffic.manner = simulate::Manner::kBuffered;
  } else if (rule == StartRule::kStar) {
    traffic.algorithm = "direct";
  }
  if (is_later_first(kind, meeting.size, job.model, options)) traffic.manner = simulate::Manner::kLaterFirst;
  return traffic;
}

}  // namespace prism::engine
