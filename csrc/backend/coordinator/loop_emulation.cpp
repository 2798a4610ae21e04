// Operations of real ranks among virtual ones. What an operation brings is there when its real members have come, from
// them and from what was recorded of the others; when a member gets it the emulator says.
#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include <algorithm>

#include "backend/coordinator/loop_send.hpp"
#include "backend/coordinator/process_state.hpp"
#include "backend/coordinator/rules.hpp"

namespace prism {

using rules::Family;

namespace {

template <typename Range>
std::uint64_t total(const Range& sizes) {
  std::uint64_t bytes = 0;
  for (const auto& size : sizes) {
    if constexpr (requires { size.bytes; })
      bytes += size.bytes;
    else
      bytes += size;
  }
  return bytes;
}

}  // namespace

Result<void> Coordinator::Impl::start_emulation() {
  const auto& sandbox = options_.emulation->sandbox();
  if (options_.emulation->graph().world_size() != options_.world_size)
    return Error{ErrorCode::kInvalidInput, fmt::format("the trace has {} ranks, the job {}",
                                                       options_.emulation->graph().world_size(), options_.world_size)};
  for (const int rank : sandbox)
    PRISM_RETURN_IF_ERROR(memory_->reserve({memory_->window_begin(rank), sizeof(RankClock)}));
  if (!options_.emulation_data.empty()) {
    PRISM_ASSIGN_OR_RETURN(values_, VirtualValues::open(options_.emulation_data, sandbox));
  }
  expected_ = static_cast<int>(sandbox.size());
  const auto on_loop = [this](auto then) {
    boost::asio::post(io_, [this, then = std::move(then)] {
      if (!stopping_) then();
    });
  };
  emulator_ = std::make_unique<Emulator>(
      options_.emulation, [this](int rank) -> const RankClock& { return memory_->clock(rank); },
      Emulator::Handlers{
          [this, on_loop](std::vector<Emulation::Released> due) {
            on_loop([this, due = std::move(due)] { due_from_loop(due); });
          },
          [this, on_loop](Error error) { on_loop([this, error = std::move(error)] { fail_from_loop(error); }); }});
  return {};
}

Result<void> Coordinator::Impl::emulate_from_loop(int rank, WorkId work, std::int64_t emulated_ns,
                                                  const std::shared_ptr<Exchange>& exchange) {
  if (!exchange->emulated) {
    exchange->emulated = std::make_shared<Emulated>();
    exchange->emulated->parts.resize(exchange->arrivals.size());
    exchange->emulated->held = std::make_shared<MixedInputs>(*this);
  }
  Emulated& emulated = *exchange->emulated;
  const auto place = std::find_if(exchange->arrivals.begin(), exchange->arrivals.end(),
                                  [&](const Arrival& one) { return one.rank == rank && one.work == work; });
  const auto index = static_cast<std::size_t>(place - exchange->arrivals.begin());
  const Operation& o = place->operation;
  if (!o.inputs.empty()) std::static_pointer_cast<MixedInputs>(emulated.held)->owners.emplace_back(rank, work);
  std::uint32_t comm = Emulator::kNoCommunication;
  if (o.number < kNotInTrace) {
    if (o.op == Op::kRecv && o.peer < 0)
      return Error{ErrorCode::kInvalidInput, "a receive from any source cannot be emulated yet; accepted: a named one"};
    const auto& members = exchange->group->members;
    const Emulation::Call call{exchange->group->key,
                               o.op,
                               o.dtype,
                               o.reduce_op,
                               o.root,
                               o.peer < 0 ? -1 : members[static_cast<std::size_t>(o.peer)],
                               o.tag,
                               static_cast<std::int64_t>(o.number),
                               static_cast<std::int64_t>(total(o.inputs)),
                               static_cast<std::int64_t>(total(o.output_bytes))};
    PRISM_ASSIGN_OR_RETURN(comm, emulator_->emulation().find(rank, call));
    due_places_[{rank, comm}] = {exchange, index};
    emulated.recorded = emulated.recorded && emulator_->emulation().is_recorded(rank, comm);
    if (options_.check_values && emulated.recorded) check_values(*exchange, *place, comm);
  } else {
    emulated.parts[index].due_ns = 0;
  }
  emulated.parts[index].comm = comm;
  emulator_->issued(rank, comm, emulated_ns);
  // Who gets something from the root alone need not wait for others who do.
  const auto family = rules::family(o.op);
  if (family == Family::kBroadcast || family == Family::kScatter) PRISM_RETURN_IF_ERROR(fill_virtual(*exchange));
  if (exchange->complete()) PRISM_RETURN_IF_ERROR(complete_emulated(exchange));
  deliver_due(exchange);
  return {};
}

Result<void> Coordinator::Impl::complete_emulated(const std::shared_ptr<Exchange>& exchange) {
  Emulated& emulated = *exchange->emulated;
  if (is_reduction(exchange->operation().op))
    return start_reduction(exchange, std::static_pointer_cast<MixedInputs>(std::exchange(emulated.held, nullptr)));
  PRISM_RETURN_IF_ERROR(fill_virtual(*exchange));
  emulated.complete = true;
  return {};
}

// As VirtualValues::find(). Beyond the record nobody knows: what has the number there is something else.
std::optional<RecordedData::Tensor> Coordinator::Impl::value_of(const Exchange& exchange, std::int32_t member,
                                                                std::uint32_t index, DType dtype,
                                                                std::uint64_t bytes) const {
  if (!exchange.emulated->recorded) return std::nullopt;
  return values_.find(exchange, member, index, dtype, bytes);
}

// What the virtual members put into result number `result`: each one's tensor, or their virtual part.
Result<void> Coordinator::Impl::add_virtual(const Exchange& exchange, std::size_t result, ReducePiece& piece,
                                            Reduction& reduction) {
  const Operation& o = exchange.operation();
  const auto index = static_cast<std::uint32_t>(result);
  const std::uint64_t bytes = reduction.results[result].bytes;
  std::vector<const std::byte*> inputs;  // of all, in rank order
  std::size_t real = 0;
  for (std::size_t m = 0; m < exchange.arrivals.size(); ++m) {
    if (exchange.arrivals[m].work != 0) {
      inputs.push_back(piece.inputs[real++]);
      continue;
    }
    auto tensor = value_of(exchange, static_cast<std::int32_t>(m), index, o.dtype, bytes);
    if (!tensor) break;
    inputs.push_back(tensor->bytes.data());
    reduction.files.push_back(tensor->file);
  }
  if (inputs.size() == exchange.arrivals.size()) {
    piece.inputs = std::move(inputs);
    return {};
  }
  const DType accumulated = executor_->accumulation_type(o.dtype, o.reduce_op);
  auto part =
      value_of(exchange, kVirtualPart, index, accumulated, bytes / element_size(o.dtype) * element_size(accumulated));
  if (part) {
    piece.initial = part->bytes.data();
    piece.members = exchange.arrivals.size();
    reduction.files.push_back(part->file);
    return {};
  }
  // Results that no real member gets need none.
  const auto family = rules::family(o.op);
  std::size_t receiver = static_cast<std::size_t>(exchange.first);
  if (family == Family::kReduce) receiver = static_cast<std::size_t>(o.root);
  if (family == Family::kReduceScatter) receiver = result / o.output_bytes.size();
  if (exchange.arrivals[receiver].work != 0) exchange.emulated->invented = true;
  return {};
}

// Of an operation that moves: what its virtual members put in, as far as those who have come get it and it is not
// there.
Result<void> Coordinator::Impl::fill_virtual(Exchange& exchange) {
  if (exchange.expected == exchange.arrivals.size()) return {};
  const Operation first = exchange.operation();
  const Arrival& peer = exchange.arrivals[static_cast<std::size_t>(exchange.first)];
  std::vector<std::uint64_t> bytes;
  std::vector<std::pair<std::size_t, std::uint32_t>> wanted;  // (arrival, input)
  for (std::size_t m = 0; m < exchange.arrivals.size(); ++m) {
    Arrival& one = exchange.arrivals[m];
    if (one.work != 0 || (exchange.collective && !matcher_.is_virtual(exchange.group->members[m]))) continue;
    one.operation.op = exchange.collective ? first.op : Op::kSend;
    one.operation.root = first.root;
    const auto expected = rules::expected_of(exchange, m);
    one.operation.inputs.resize(expected.size());
    for (std::uint32_t i = 0; i < expected.size(); ++i)
      if (one.operation.inputs[i].bytes == 0 && expected[i] > 0)
        wanted.emplace_back(m, i), bytes.push_back(expected[i]);
  }
  if (wanted.empty()) return {};
  Emulated& emulated = *exchange.emulated;
  std::vector<Region> regions;
  PRISM_ASSIGN_OR_RETURN(auto block, new_block(bytes, regions));
  for (std::size_t w = 0; w < wanted.size(); ++w) {
    const auto [m, i] = wanted[w];
    exchange.arrivals[m].operation.inputs[i] = regions[w];
    std::byte* const to = memory_->at(regions[w].offset);
    const int member = exchange.collective ? static_cast<int>(m) : peer.operation.peer;
    if (const auto tensor = value_of(exchange, member, i, DType::kNone, regions[w].bytes)) {
      std::copy(tensor->bytes.begin(), tensor->bytes.end(), to);
      continue;
    }
    emulated.invented = true;
    const auto family = rules::family(first.op);
    emulated.unchanged = emulated.unchanged || family == Family::kBroadcast;
    // A peer is taken to put in what the first real member does; what else is received is made up.
    const auto& own = peer.operation.inputs;
    if (family == Family::kAllGather && own[i].bytes == regions[w].bytes)
      std::copy_n(memory_->at(own[i].offset), own[i].bytes, to);
    else
      executor_->make_up(first.dtype, {to, regions[w].bytes});
  }
  if (!exchange.collective) values_.taken(exchange);
  std::static_pointer_cast<MixedInputs>(emulated.held)->blocks.push_back(std::move(block));
  return {};
}

void Coordinator::Impl::check_values(const Exchange& exchange, const Arrival& arrival, std::uint32_t comm) {
  const auto same = values_.is_same(exchange, arrival, *memory_);
  if (!same) return;
  ++checked_;
  if (*same || different_++ > 0) return;
  first_different_ = fmt::format("rank {}, {}", arrival.rank, emulator_->emulation().describe(arrival.rank, comm));
}

void Coordinator::Impl::reduced_emulated(const std::shared_ptr<Exchange>& exchange,
                                         const std::shared_ptr<Reduction>& reduction) {
  Emulated& emulated = *exchange->emulated;
  emulated.results = reduction->results;
  emulated.held = reduction->block;
  emulated.complete = true;
  deliver_due(exchange);
}

// Whether all that the member gets is there.
bool Coordinator::Impl::is_ready(const Exchange& exchange, std::size_t index) const {
  if (exchange.emulated->complete) return true;
  const Operation& o = exchange.arrivals[index].operation;
  if (o.output_bytes.empty() && o.op != Op::kBarrier)
    return true;  // sends, roots of what is spread, who gives to a root
  const auto family = rules::family(o.op);
  if (family != Family::kBroadcast && family != Family::kScatter) return false;
  const Arrival& root = exchange.arrivals[static_cast<std::size_t>(o.root)];
  return root.work != 0 || !root.operation.inputs.empty();
}

void Coordinator::Impl::deliver_due(const std::shared_ptr<Exchange>& exchange) {
  Emulated& emulated = *exchange->emulated;
  bool all = emulated.complete;
  for (std::size_t i = 0; i < exchange->arrivals.size(); ++i) {
    const Arrival& arrival = exchange->arrivals[i];
    auto& part = emulated.parts[i];
    if (arrival.work == 0 || part.delivered) continue;
    if (part.due_ns < 0 || !is_ready(*exchange, i)) {
      all = false;
      continue;
    }
    part.delivered = true;
    wire::Completion completion{.work = arrival.work};
    if (part.comm != Emulator::kNoCommunication) completion.due_ns = part.due_ns;
    completion.unchanged = emulated.unchanged && !arrival.operation.output_bytes.empty();
    if (!completion.unchanged) completion.regions = rules::outcome(*exchange, i, emulated.results);
    if (arrival.operation.op == Op::kRecv) completion.source = arrival.operation.peer;
    if (!completion.regions.empty())
      at(arrival.rank).unread.emplace(arrival.work, std::static_pointer_cast<Readable>(emulated.held));
    answered_from_loop(arrival.rank, arrival.work);
    send(arrival.rank, completion);
  }
  if (!all) return;
  emulated.held.reset();
  if (exchange->expected == exchange->arrivals.size()) return;
  if (emulated.invented)
    ++invented_[{std::string(name(exchange->operation().op)), exchange->group->key}];
  else
    ++known_;
}

void Coordinator::Impl::due_from_loop(const std::vector<Emulation::Released>& due) {
  need_turn_end();
  for (const auto& one : due) {
    const auto place = due_places_.find({one.rank, one.comm});
    if (place == due_places_.end()) continue;  // the rank has gone
    const auto [exchange, index] = place->second;
    due_places_.erase(place);
    exchange->emulated->parts[index].due_ns = one.at_ns;
    if (!at(one.rank).finished) deliver_due(exchange);
  }
}

}  // namespace prism
