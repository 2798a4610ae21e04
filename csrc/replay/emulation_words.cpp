#include "replay/emulation_words.hpp"

#include <fmt/format.h>

namespace prism {

std::string in_words(const Emulation::Call& call) {
  std::string text = fmt::format("{} {} of group '{}' (", name(call.op), call.number, call.group);
  if (is_point_to_point(call.op))
    text += fmt::format("peer {}, tag {}, ", call.peer < 0 ? "any" : fmt::format("rank {}", call.peer), call.tag);
  else if (call.root >= 0)
    text += fmt::format("root {}, ", call.root);
  if (call.dtype != DType::kNone) text += fmt::format("{}, ", name(call.dtype));
  if (call.reduce_op != ReduceOp::kNone) text += fmt::format("{}, ", name(call.reduce_op));
  return text + fmt::format("{} bytes in, {} out)", call.input_bytes, call.output_bytes);
}

std::string in_words(const engine::Job& job, int rank, std::uint32_t comm, std::int64_t number) {
  const ClassView& view = job.view(rank);
  const auto op = static_cast<Op>(view.comm_op[comm]);
  const auto peer = view.comm_peer[comm];
  return in_words({.group = job.graph->group_name(job.graph->group_of_slot(rank, view.comm_group[comm])),
                   .op = op,
                   .dtype = static_cast<DType>(view.comm_dtype[comm]),
                   .reduce_op = static_cast<ReduceOp>(view.comm_reduce_op[comm]),
                   .root = is_rooted(op) ? peer : -1,
                   .peer = is_point_to_point(op) && peer >= 0
                               ? job.graph->rank_of_peer_slot(rank, static_cast<std::uint32_t>(peer))
                               : -1,
                   .tag = view.comm_tag[comm],
                   .number = number,
                   .input_bytes = view.comm_input_bytes[comm],
                   .output_bytes = view.comm_output_bytes[comm]});
}

}  // namespace prism
