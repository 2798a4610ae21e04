// What ranks say. Every message is checked before it changes anything; a bad one ends the run with the rank's number.
#include <fmt/format.h>

#include <algorithm>

#include "backend/coordinator/loop_send.hpp"
#include "backend/protocol/socket.hpp"
#include "core/log.hpp"

namespace prism {

using wire::MessageType;

void Coordinator::Impl::frame_from_loop(Connection& connection, const wire::Frame& frame) {
  if (stopping_) return;
  ++messages_;
  need_turn_end();
  if (connection.rank >= 0) return rank_frame_from_loop(connection.rank, frame);
  const auto message = frame.type == MessageType::kHello ? wire::decode<wire::Hello>(frame) : std::nullopt;
  if (!message)
    refuse(connection, {ErrorCode::kInvalidInput, "the first message is not a greeting"});
  else if (auto welcomed = hello(connection, *message); !welcomed)
    refuse(connection, welcomed.error());
}

// A stranger does not end the run; it is told why, if it listens.
void Coordinator::Impl::refuse(Connection& connection, const Error& error) {
  log(LogLevel::kInfo, "process {} is not let in: {}", connection.pid(), error.message);
  wire::append_frame(connection.out(), wire::Abort{error});
  connection.flush();
  connection.close();
  strangers_.erase(connection.shared_from_this());
}

void Coordinator::Impl::rank_frame_from_loop(int rank, const wire::Frame& frame) {
  if (stopping_) return;
  if (auto handled = handle(rank, frame); !handled)
    fail_from_loop({handled.error().code, fmt::format("rank {}: {}", rank, handled.error().message)});
}

template <typename Message>
Result<void> Coordinator::Impl::read(int rank, const wire::Frame& frame) {
  auto message = wire::decode<Message>(frame);
  if (!message)
    return Error{ErrorCode::kInvalidInput, fmt::format("a malformed message of type {} and {} bytes",
                                                       static_cast<int>(frame.type), frame.body.size())};
  if (frame.type != MessageType::kProbeReply) quiet_watch_.disturb();
  return on(rank, std::move(*message));
}

Result<void> Coordinator::Impl::handle(int rank, const wire::Frame& frame) {
  if (at(rank).finished) return {};
  switch (frame.type) {
    case MessageType::kJoinGroup:
      return read<wire::JoinGroup>(rank, frame);
    case MessageType::kLeaveGroup:
      return read<wire::LeaveGroup>(rank, frame);
    case MessageType::kIssue:
      return read<wire::Issue>(rank, frame);
    case MessageType::kReadDone:
      return read<wire::ReadDone>(rank, frame);
    case MessageType::kRelease:
      return read<wire::Release>(rank, frame);
    case MessageType::kRequestSlot:
      return read<wire::RequestSlot>(rank, frame);
    case MessageType::kProbeReply:
      return read<wire::ProbeReply>(rank, frame);
    case MessageType::kStoreRequest:
      return read<wire::StoreRequest>(rank, frame);
    case MessageType::kStoreCancel:
      return read<wire::StoreCancel>(rank, frame);
    case MessageType::kFinish:
      return read<wire::Finish>(rank, frame);
    default:
      return Error{ErrorCode::kInvalidInput,
                   fmt::format("a message of type {}, which ranks do not send", static_cast<int>(frame.type))};
  }
}

Result<void> Coordinator::Impl::hello(Connection& connection, const wire::Hello& message) {
  const auto world = static_cast<std::uint32_t>(options_.world_size);
  if (message.version != wire::kProtocolVersion || message.world_size != world || message.rank >= world)
    return Error{
        ErrorCode::kInvalidInput,
        fmt::format("rank {} of {} with protocol {}; accepted: ranks 0 to {} of {} with protocol {}", message.rank,
                    message.world_size, message.version, world - 1, world, wire::kProtocolVersion)};
  const int rank = static_cast<int>(message.rank);
  Rank& r = at(rank);
  if (r.host != 0)
    return Error{ErrorCode::kInvalidInput, fmt::format("rank {} belongs to {}", rank, host(r.host).name)};
  if (r.joined) return Error{ErrorCode::kInvalidInput, fmt::format("rank {} is connected already", rank)};
  if (matcher_.is_virtual(rank)) return Error{ErrorCode::kInvalidInput, fmt::format("rank {} is a virtual one", rank)};
  wire::Buffer welcome;
  wire::append_frame(welcome, wire::Welcome{memory_->window_bytes(), memory_->spill_window_bytes(),
                                            options_.lend_after.count(), residency_.has_value(), emulator_ != nullptr});
  const int fds[] = {memory_->fd(), memory_->spill_fd()};
  if (!send_with_fds(connection.fd(), welcome, std::span(fds).first(memory_->spill_fd() >= 0 ? 2 : 1)))
    return Error{ErrorCode::kIo, fmt::format("rank {} does not take its welcome", rank)};
  r.joined = true;
  r.connection = connection.shared_from_this();
  strangers_.erase(r.connection);
  connection.rank = rank;
  connection.frame_limit = wire::kMaxFrameBytes;
  if (++joined_ == options_.world_size) join_timer_.cancel();
  // A process that its own children outlive does not close the connection by dying.
  r.process = ProcessWatch::start(io_, connection.pid(), [this, rank] {
    if (stopping_) return;
    at(rank).connection->read_what_is_there();
    if (!at(rank).finished) died_from_loop(rank, "its process has ended");
  });
  if (!emulator_) {
    scheduler_.make_ready(rank, true);
  } else if (joined_ == expected_) {  // all begin at once
    emulator_->start();
    for (const int real : options_.emulation->sandbox()) scheduler_.make_ready(real, true);
  }
  return {};
}

Result<void> Coordinator::Impl::on(int rank, wire::JoinGroup message) {
  return matcher_.join(rank, message.handle, message.key, std::move(message.members));
}

Result<void> Coordinator::Impl::on(int rank, wire::LeaveGroup message) { return matcher_.leave(rank, message.handle); }

Result<void> Coordinator::Impl::on(int rank, wire::Issue message) {
  Rank& r = at(rank);
  if (message.work <= r.last_work)
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("operation {} after operation {}; accepted: rising numbers", message.work, r.last_work)};
  r.last_work = message.work;
  ++operations_;
  if (r.host != 0) PRISM_RETURN_IF_ERROR(take_copy(rank, message.work, message.operation.inputs));
  for (const Region region : message.operation.inputs)
    if (!memory_->contains(region, rank))
      return Error{ErrorCode::kInvalidInput,
                   fmt::format("an input of {} bytes at {} lies outside of its window", region.bytes, region.offset)};
  const auto timeout = message.operation.timeout;
  PRISM_ASSIGN_OR_RETURN(const auto exchange, matcher_.arrive(rank, message.work, std::move(message.operation)));
  if (emulator_) {
    r.outstanding.emplace(message.work, exchange);
    return emulate_from_loop(rank, message.work, message.emulated_ns, exchange);
  }
  exchange->isolated = exchange->isolated && r.outstanding.empty();
  r.outstanding.emplace(message.work, exchange);
  if (exchange->failed) {
    for (const Arrival& arrival : exchange->arrivals)
      if (arrival.rank == rank && arrival.work == message.work)
        deliver_to(arrival, wire::Completion{.work = arrival.work, .error = exchange->failed});
    return {};
  }
  if (exchange->complete()) return complete_from_loop(exchange);
  start_timeout(exchange, timeout);
  return {};
}

Result<void> Coordinator::Impl::on(int rank, wire::ReadDone message) {
  for (const WorkId work : message.works) at(rank).unread.erase(work);
  return {};
}

// Whether nothing that the rank gives its slot back for is missing. Somebody who lends or polls may wait for any.
bool Coordinator::Impl::answers(int rank, const wire::Release& message) const {
  const auto& outstanding = at(rank).outstanding;
  return message.kind != wire::ReleaseKind::kBlock ||
         std::none_of(message.works.begin(), message.works.end(),
                      [&](WorkId work) { return outstanding.count(work) != 0; });
}

Result<void> Coordinator::Impl::on(int rank, wire::Release message) {
  Rank& r = at(rank);
  // Another grant is under way: the rank will think again when it has it.
  const SlotState state = scheduler_.state(rank);
  if (residency_ && message.uses_device) residency_->uses_device(rank);
  if (message.grant != r.grants || state == SlotState::kReady || r.admitting) return {};
  if (state == SlotState::kRunning && holding_.count(rank) != 0 && answers(rank, message)) {
    send_grant(rank);  // what it waits for is here: it keeps its slot
    return {};
  }
  if (residency_) residency_->rests(rank);
  switch (message.kind) {
    case wire::ReleaseKind::kBlock: {
      forget_block(rank);
      for (const WorkId work : message.works)
        if (r.outstanding.count(work) != 0) r.awaited.insert(work);
      const bool some_complete = r.awaited.size() < message.works.size();
      scheduler_.release(rank, SlotState::kBlocked);
      if (some_complete) {
        scheduler_.make_ready(rank, r.awaited.empty());
        break;
      }
      if (message.patience_ns <= 0) break;
      // Somebody who waits for a short while expects that it may be in vain: no deadlock before that.
      constexpr std::int64_t kShort = 60'000'000'000;
      r.impatient = message.patience_ns < kShort;
      impatient_ += r.impatient;
      r.patience = timeouts_.add(message.patience_ns, [this, rank] {
        at(rank).patience = 0;
        scheduler_.make_ready(rank, true);
        need_turn_end();
      });
      break;
    }
    case wire::ReleaseKind::kLend:
      forget_block(rank);
      scheduler_.release(rank, SlotState::kLent);
      break;
    case wire::ReleaseKind::kYield:
      if (state != SlotState::kRunning) break;
      forget_block(rank);
      scheduler_.yield(rank, now_ns());
      r.polls_store = message.polls_store;
      if (r.polls_store) store_pollers_.insert(rank);
      break;
    case wire::ReleaseKind::kCount:
      break;
  }
  return {};
}

Result<void> Coordinator::Impl::on(int rank, wire::RequestSlot message) {
  if (message.grant == at(rank).grants) scheduler_.make_ready(rank, true);
  return {};
}

Result<void> Coordinator::Impl::on(int rank, wire::ProbeReply message) {
  quiet_watch_.reply(rank, message);
  return {};
}

Result<void> Coordinator::Impl::on(int rank, wire::StoreRequest message) {
  const WorkId work = message.work;
  const auto verb = message.verb;
  Rank& r = at(rank);
  if (work != 0) {
    if (work <= r.last_work) return Error{ErrorCode::kInvalidInput, fmt::format("store request {} came twice", work)};
    r.last_work = work;
  }
  wire::StoreReply answer = store_.serve(rank, std::move(message));
  if (work == 0) {
    if (answer.status == wire::StoreStatus::kWrongUse)
      return Error{ErrorCode::kInvalidInput, fmt::format("wrong use of the store (verb {})", static_cast<int>(verb))};
    return {};
  }
  if (answer.status == wire::StoreStatus::kPending) r.outstanding.emplace(work, store_.waiting(rank, work));
  send(rank, answer);  // at once: the asker sleeps in the call, and will see whether it has to give its slot back
  return {};
}

Result<void> Coordinator::Impl::on(int rank, wire::StoreCancel message) {
  store_.cancel(rank, message.work);
  at(rank).outstanding.erase(message.work);
  return {};
}

Result<void> Coordinator::Impl::on(int rank, wire::Finish message) {
  if (!message.error_text.empty()) return Error{ErrorCode::kPeerFailed, message.error_text};
  Rank& r = at(rank);
  r.finished = true;
  ++finished_;
  if (emulator_) {
    emulator_->finished(rank);
    const auto left = options_.emulation->first_left(rank);
    if (!left.empty() && !options_.emulation->warns_on_divergence())
      return Error{ErrorCode::kMismatch, "the program has ended, and the trace goes on: " + left};
  }
  forget_block(rank);
  for (const auto& entry : r.outstanding) store_.cancel(rank, entry.first);
  r.unread.clear();
  if (residency_)
    residency_->ended(rank);
  else
    r.process.reset();
  scheduler_.release(rank, SlotState::kFinished);
  return {};
}

}  // namespace prism
