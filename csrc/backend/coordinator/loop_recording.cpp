// The tensors of complete operations, on their way to --data.
#include <fmt/format.h>

#include <algorithm>

#include "backend/coordinator/loop_send.hpp"
#include "backend/coordinator/rules.hpp"
#include "data/index.hpp"

namespace prism {
namespace {

constexpr std::uint64_t kLargestBacklog = 1u << 30;

}  // namespace

Result<void> Coordinator::Impl::start_recording(std::uint64_t memory_budget) {
  const auto& ranks = options_.data_for_ranks;
  if (ranks)
    for (const auto rank : *ranks)
      if (rank < 0 || rank >= options_.world_size)
        return Error{ErrorCode::kInvalidInput, fmt::format("tensors are to be recorded for rank {}; accepted: 0 to {}",
                                                           rank, options_.world_size - 1)};
  selection_.emplace(options_.world_size, ranks);
  recorder_ = std::make_unique<DataRecorder>(
      io_, DataWriter::Options{options_.data_directory, options_.world_size, ranks, options_.data_limit_bytes},
      options_.data_of_whole_numbers, std::min(memory_budget / 4, kLargestBacklog),
      [this](const Result<void>& written) { recorded_from_loop(written); });
  return {};
}

Result<void> Coordinator::Impl::prepare_parts(const Exchange& exchange, Reduction& reduction) {
  const Operation& o = exchange.operation();
  reduction.part_indices = selection_->parts(exchange);
  reduction.part_dtype = executor_->accumulation_type(o.dtype, o.reduce_op);
  if (reduction.part_dtype == DType::kNone) reduction.part_indices.clear();  // reduce() will say what is wrong
  if (reduction.part_indices.empty()) return {};
  reduction.virtual_members = selection_->virtual_members(exchange);
  std::vector<std::uint64_t> bytes;
  for (const auto i : reduction.part_indices)
    bytes.push_back(reduction.results[i].bytes / element_size(o.dtype) * element_size(reduction.part_dtype));
  PRISM_ASSIGN_OR_RETURN(reduction.parts_block, new_block(bytes, reduction.parts));
  return {};
}

// `reduction` is done; nullptr for operations that only move.
void Coordinator::Impl::record_from_loop(const Exchange& exchange, const std::shared_ptr<Inputs>& inputs,
                                         const Reduction* reduction) {
  const auto bytes_at = [&](Region region) {
    return std::span<const std::byte>(memory_->at(region.offset), region.bytes);
  };
  std::vector<RecordedBlock> blocks;
  std::vector<std::shared_ptr<void>> holds{inputs};
  if (reduction && !reduction->parts.empty()) {
    holds.push_back(reduction->parts_block);
    for (std::size_t i = 0; i < reduction->parts.size(); ++i)
      blocks.push_back({kVirtualPart, reduction->part_indices[i], reduction->part_dtype, bytes_at(reduction->parts[i]),
                        true, false});
  }
  for (const auto& input : selection_->inputs(exchange)) {
    const Arrival& arrival = exchange.arrivals[input.arrival];
    const bool sent = !options_.data_for_ranks || !input.keep;
    blocks.push_back({arrival.member, input.index, arrival.operation.dtype,
                      bytes_at(arrival.operation.inputs[input.index]), input.keep, sent});
  }
  recorder_->record(exchange, std::move(blocks), std::move(holds));
}

void Coordinator::Impl::recorded_from_loop(const Result<void>& written) {
  need_turn_end();
  if (stopping_) return;
  if (!written) return fail_from_loop(written.error());
  // A rank that is short of memory waits for what has been let go.
  for (int rank = 0; rank < options_.world_size; ++rank)
    if (!at(rank).freed.empty()) mark_dirty(rank);
  while (!postponed_.empty() && !recorder_->behind()) {
    const auto exchange = postponed_.front();
    postponed_.pop_front();
    if (auto served = serve_from_loop(exchange); !served)
      return fail_from_loop({served.error().code, fmt::format("{}: {}", exchange->describe(), served.error().message)});
  }
}

Result<void> Coordinator::Impl::finish_recording() {
  recorder_->join();
  return recorder_->finish();
}

}  // namespace prism
