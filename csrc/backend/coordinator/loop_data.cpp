// Operations that are complete: arithmetic, and who reads what until when.
#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "backend/coordinator/loop_send.hpp"
#include "backend/coordinator/process_state.hpp"
#include "backend/coordinator/rules.hpp"

namespace prism {

Coordinator::Impl::Readable::~Readable() {
  for (const auto& [place, block] : sent) loop.end_block(std::get<0>(place), block);
}

Coordinator::Impl::Inputs::Inputs(Impl& loop, const Exchange& exchange) : Readable(loop) {
  for (const Arrival& arrival : exchange.arrivals)
    if (!arrival.operation.inputs.empty()) owners.emplace_back(arrival.rank, arrival.work);
}

Coordinator::Impl::Inputs::~Inputs() {
  for (const auto& [rank, work] : owners) {
    loop.drop_copy(rank, work);
    if (!loop.at(rank).finished) loop.at(rank).freed.push_back(work);
  }
}

Result<void> Coordinator::Impl::complete_from_loop(const std::shared_ptr<Exchange>& exchange) {
  timeouts_.cancel(std::exchange(exchange->timeout, 0));
  // Each member had given its slot back for this operation alone, but for those that held one when it completed: that
  // many ranks had to be switched in again, however one schedules.
  if (exchange->isolated) {
    std::vector<int> members;
    for (const Arrival& arrival : exchange->arrivals) members.push_back(arrival.rank);
    switches_lower_bound_ += static_cast<std::uint64_t>(scheduler_.switches_needed(members));
  }
  if (recorder_ && (recorder_->behind() || !postponed_.empty())) {
    postponed_.push_back(exchange);  // until the disk has caught up: memory is bounded
    return {};
  }
  return serve_from_loop(exchange);
}

Result<void> Coordinator::Impl::serve_from_loop(const std::shared_ptr<Exchange>& exchange) {
  auto inputs = std::make_shared<Inputs>(*this, *exchange);
  if (is_reduction(exchange->operation().op)) return start_reduction(exchange, std::move(inputs));
  if (recorder_) record_from_loop(*exchange, inputs, nullptr);
  deliver_from_loop(exchange, {}, inputs);
  return {};
}

// Regions of these sizes one behind the other in a new block.
Result<std::shared_ptr<Coordinator::Impl::Block>> Coordinator::Impl::new_block(std::span<const std::uint64_t> bytes,
                                                                               std::vector<Region>& regions) {
  std::uint64_t total = 0;
  for (const std::uint64_t size : bytes) total += padded(size);
  PRISM_ASSIGN_OR_RETURN(const Region region, results_->allocate(total));
  std::uint64_t offset = region.offset;
  for (const std::uint64_t size : bytes) {
    regions.push_back({offset, size});
    offset += padded(size);
  }
  return std::make_shared<Block>(*this, region);
}

Result<std::shared_ptr<Coordinator::Impl::Reduction>> Coordinator::Impl::prepare_reduction(const Exchange& exchange) {
  auto reduction = std::make_shared<Reduction>();
  const Operation& o = exchange.operation();
  const std::size_t element = element_size(o.dtype);
  PRISM_ASSIGN_OR_RETURN(reduction->block, new_block(rules::result_bytes(exchange), reduction->results));
  if (recorder_) PRISM_RETURN_IF_ERROR(prepare_parts(exchange, *reduction));
  std::size_t part = 0;
  for (std::size_t i = 0; i < reduction->results.size(); ++i) {
    ReducePiece piece;
    if (part < reduction->part_indices.size() && reduction->part_indices[part] == i) {
      piece.part = memory_->at(reduction->parts[part++].offset);
      piece.in_part = reduction->virtual_members;
    }
    if (reduction->results[i].bytes == 0) continue;
    for (const Arrival& arrival : exchange.arrivals)
      if (arrival.work != 0) piece.inputs.push_back(memory_->at(arrival.operation.inputs[i].offset));
    if (exchange.expected < exchange.arrivals.size())
      PRISM_RETURN_IF_ERROR(add_virtual(exchange, i, piece, *reduction));
    piece.output = memory_->at(reduction->results[i].offset);
    piece.numel = reduction->results[i].bytes / element;
    reduction->pieces.push_back(std::move(piece));
  }
  return reduction;
}

Result<void> Coordinator::Impl::start_reduction(const std::shared_ptr<Exchange>& exchange,
                                                std::shared_ptr<Inputs> inputs) {
  PRISM_ASSIGN_OR_RETURN(auto reduction, prepare_reduction(*exchange));
  ++reducing_;
  boost::asio::post(
      executor_thread_, [this, exchange, reduction = std::move(reduction), inputs = std::move(inputs)]() mutable {
        const Operation& operation = exchange->operation();
        auto reduced = executor_->reduce(operation.dtype, operation.reduce_op, reduction->pieces);
        boost::asio::post(io_, [this, exchange = std::move(exchange), reduction = std::move(reduction),
                                inputs = std::move(inputs), reduced = std::move(reduced)]() mutable {
          --reducing_;
          need_turn_end();
          if (stopping_) return;
          if (reduced && recorder_) record_from_loop(*exchange, inputs, reduction.get());
          inputs.reset();
          if (reduced && exchange->emulated) return reduced_emulated(exchange, reduction);
          if (reduced) return deliver_from_loop(exchange, reduction->results, reduction->block);
          const Error error{reduced.error().code, fmt::format("{}: {}", exchange->describe(), reduced.error().message)};
          fail_exchange_from_loop(exchange, error);
        });
      });
  return {};
}

void Coordinator::Impl::deliver_from_loop(const std::shared_ptr<Exchange>& exchange, std::span<const Region> results,
                                          const Held& held) {
  for (std::size_t i = 0; i < exchange->arrivals.size(); ++i) {
    const Arrival& arrival = exchange->arrivals[i];
    wire::Completion completion;
    completion.work = arrival.work;
    completion.regions = rules::outcome(*exchange, i, results);
    if (arrival.operation.op == Op::kRecv) completion.source = exchange->arrivals[0].member;
    Rank& reader = at(arrival.rank);
    if (!completion.regions.empty() && !reader.finished) {
      reader.unread.emplace(arrival.work, held);
      if (reader.host != 0) completion.regions = placed(reader.host, held, std::move(completion.regions));
    }
    deliver_to(arrival, std::move(completion));
  }
}

void Coordinator::Impl::fail_exchange_from_loop(const std::shared_ptr<Exchange>& exchange, const Error& error) {
  for (const Arrival& arrival : exchange->arrivals)
    if (arrival.work != 0) deliver_to(arrival, wire::Completion{.work = arrival.work, .error = error});
}

void Coordinator::Impl::deliver_to(const Arrival& arrival, wire::Completion completion) {
  if (completion.error) drop_copy(arrival.rank, arrival.work);
  if (at(arrival.rank).finished) return;
  send_or_hold(arrival.rank, arrival.work, completion);
}

// An operation or a store request has its answer: whoever waits for it may run.
void Coordinator::Impl::answered_from_loop(int rank, WorkId work) {
  Rank& r = at(rank);
  r.outstanding.erase(work);
  need_turn_end();
  switch (scheduler_.state(rank)) {
    case SlotState::kBlocked:
      if (r.awaited.erase(work) != 0) scheduler_.make_ready(rank, r.awaited.empty());
      break;
    case SlotState::kReady:
      if (scheduler_.polls(rank))
        scheduler_.make_ready(rank, true);
      else if (r.awaited.erase(work) != 0 && r.awaited.empty())
        scheduler_.make_ready(rank, true);
      break;
    case SlotState::kLent:
      scheduler_.make_ready(rank, true);
      break;
    default:
      break;
  }
}

void Coordinator::Impl::start_timeout(const std::shared_ptr<Exchange>& exchange, std::chrono::nanoseconds own) {
  if (exchange->timeout != 0) return;
  const bool has_own = own.count() > 0;
  const std::int64_t span = has_own ? own.count() : options_.operation_timeout.count();
  exchange->timeout = timeouts_.add(span, [this, exchange, has_own, span] {
    Error error{ErrorCode::kTimeout, fmt::format("{} was not complete after {}{:.1f} s; missing: ranks {}",
                                                 exchange->describe(), has_own ? "its timeout of " : "",
                                                 static_cast<double>(span) * 1e-9, ranges_text(exchange->missing()))};
    if (!has_own) {
      error.message += "\n" + waiting_report();
      return fail_from_loop(std::move(error));
    }
    matcher_.expire(exchange, error);
    fail_exchange_from_loop(exchange, error);
  });
}

}  // namespace prism
