// Operations that are complete: arithmetic, and who reads what until when.
#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "backend/coordinator/loop_send.hpp"
#include "backend/coordinator/process_state.hpp"
#include "backend/coordinator/rules.hpp"

namespace prism {

Coordinator::Impl::Transfer::~Transfer() {
  if (result) loop.results_->free(*result);
  for (const auto& [rank, work] : owners) loop.free_inputs(rank, work);
  for (const auto& [place, block] : sent) loop.end_block(std::get<0>(place), block);
}

// Nobody reads what this operation took.
void Coordinator::Impl::free_inputs(int rank, WorkId work) {
  drop_copy(rank, work);
  if (!at(rank).finished) at(rank).freed.push_back(work);
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
  if (is_reduction(exchange->operation().op)) return start_reduction(exchange);
  auto transfer = std::make_shared<Transfer>(*this);
  for (const Arrival& arrival : exchange->arrivals)
    if (!arrival.operation.inputs.empty()) transfer->owners.emplace_back(arrival.rank, arrival.work);
  deliver_from_loop(exchange, {}, transfer);
  return {};
}

Result<void> Coordinator::Impl::start_reduction(const std::shared_ptr<Exchange>& exchange) {
  constexpr std::uint64_t kAlignment = 64;
  const auto bytes = rules::result_bytes(*exchange);
  std::uint64_t total = 0;
  for (const std::uint64_t size : bytes) total += (size + kAlignment - 1) / kAlignment * kAlignment;
  PRISM_ASSIGN_OR_RETURN(const Region block, results_->allocate(total));
  auto transfer = std::make_shared<Transfer>(*this, block.offset);
  std::vector<Region> results;
  std::vector<ReducePiece> pieces;
  const Operation& o = exchange->operation();
  const std::size_t element = element_size(o.dtype);
  std::uint64_t offset = block.offset;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    results.push_back({offset, bytes[i]});
    if (bytes[i] != 0) {
      ReducePiece& piece = pieces.emplace_back();
      for (const Arrival& arrival : exchange->arrivals)
        piece.inputs.push_back(memory_->at(arrival.operation.inputs[i].offset));
      piece.output = memory_->at(offset);
      piece.numel = bytes[i] / element;
    }
    offset += (bytes[i] + kAlignment - 1) / kAlignment * kAlignment;
  }
  ++reducing_;
  boost::asio::post(
      executor_thread_, [this, exchange, transfer, results = std::move(results), pieces = std::move(pieces)]() mutable {
        const Operation& operation = exchange->operation();
        auto reduced = executor_->reduce(operation.dtype, operation.reduce_op, pieces);
        boost::asio::post(io_, [this, exchange = std::move(exchange), transfer = std::move(transfer),
                                results = std::move(results), reduced = std::move(reduced)] {
          --reducing_;
          need_turn_end();
          if (stopping_) return;
          for (const Arrival& arrival : exchange->arrivals) free_inputs(arrival.rank, arrival.work);
          if (reduced) return deliver_from_loop(exchange, results, transfer);
          const Error error{reduced.error().code, fmt::format("{}: {}", exchange->describe(), reduced.error().message)};
          fail_exchange_from_loop(exchange, error);
        });
      });
  return {};
}

void Coordinator::Impl::deliver_from_loop(const std::shared_ptr<Exchange>& exchange, std::span<const Region> results,
                                          const std::shared_ptr<Transfer>& transfer) {
  for (std::size_t i = 0; i < exchange->arrivals.size(); ++i) {
    const Arrival& arrival = exchange->arrivals[i];
    wire::Completion completion;
    completion.work = arrival.work;
    completion.regions = rules::outcome(*exchange, i, results);
    if (arrival.operation.op == Op::kRecv) completion.source = exchange->arrivals[0].member;
    Rank& reader = at(arrival.rank);
    if (!completion.regions.empty() && !reader.finished) {
      reader.unread.emplace(arrival.work, transfer);
      if (reader.host != 0) completion.regions = placed(reader.host, transfer, std::move(completion.regions));
    }
    deliver_to(arrival, std::move(completion));
  }
}

void Coordinator::Impl::fail_exchange_from_loop(const std::shared_ptr<Exchange>& exchange, const Error& error) {
  for (const Arrival& arrival : exchange->arrivals)
    if (arrival.work != 0) deliver_to(arrival, wire::Completion{arrival.work, -1, error, {}});
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
