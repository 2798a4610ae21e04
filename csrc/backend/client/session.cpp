// Connecting, receiving, ending.
#include "backend/client/session.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "backend/client/fork_guard.hpp"
#include "backend/client/thread_state.hpp"

namespace prism {

Result<void> RankClient::Impl::connect() {
  const Deadline deadline = Deadline::after(options_.connect_timeout);
  PRISM_ASSIGN_OR_RETURN(socket_, connect_to(options_.address, deadline));
  Lock lock(mutex_);
  send(lock, wire::Hello{wire::kProtocolVersion, static_cast<std::uint32_t>(options_.rank),
                         static_cast<std::uint32_t>(options_.world_size)});
  // The welcome comes with the shared memory's descriptors, in one piece and alone.
  std::uint8_t bytes[4096];
  pollfd ready{socket_.get(), POLLIN, 0};
  int events = 0;
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    events = ::poll(&ready, 1, static_cast<int>(std::min<std::int64_t>(left, 1 << 30)));
  } while (events < 0 && errno == EINTR);  // a signal for the program
  if (events <= 0)
    return Error{ErrorCode::kTimeout, fmt::format("the coordinator at '{}' does not answer", options_.address)};
  std::vector<UniqueFd> memory;
  const std::ptrdiff_t got = receive_with_fds(socket_.get(), bytes, memory);
  if (got <= 0) return Error{ErrorCode::kPeerFailed, "the coordinator has closed the connection"};
  auto frame = wire::first_frame(std::span(bytes).first(static_cast<std::size_t>(got)));
  if (frame && *frame && (*frame)->type == wire::MessageType::kAbort)
    if (const auto abort = wire::decode<wire::Abort>(**frame)) return abort->error;
  const auto welcome = frame && *frame && (*frame)->type == wire::MessageType::kWelcome
                           ? wire::decode<wire::Welcome>(**frame)
                           : std::nullopt;
  const std::size_t used = welcome ? wire::kFrameHeaderBytes + (*frame)->body.size() : 0;
  if (!welcome || memory.size() != (welcome->spill_window_bytes != 0 ? 2u : 1u))
    return Error{ErrorCode::kInvalidInput, fmt::format("what answers at '{}' is no coordinator", options_.address)};
  PRISM_ASSIGN_OR_RETURN(memory_,
                         SharedMemory::attach(memory[0].release(), memory.size() > 1 ? memory[1].release() : -1,
                                              options_.world_size, welcome->window_bytes, welcome->spill_window_bytes));
  staging_ = std::make_unique<Staging>(*memory_, options_.rank);
  lend_after_ns_ = std::max<std::int64_t>(welcome->lend_after_ns, 100'000);
  swaps_devices_ = welcome->swaps_devices;
  if (welcome->emulated) clock_.emplace(memory_->clock(options_.rank));
  if (swaps_devices_) allow_tracing_by_peer_of(socket_.get());
  off_slot_since_ns_ = now_ns();
  requested_ = true;
  activity_here(lock) = Activity::kRuns;
  early_bytes_.assign(bytes + used, bytes + got);
  reader_ = start_thread([this] {
    {
      Lock own(mutex_);
      reader_id_ = this_thread();
    }
    read_loop();
  });
  // Not under our lock: fork() takes the guard's lock first.
  lock.unlock();
  ForkGuard::add(*this);
  lock.lock();
  // The wait for a turn has no limit of its own: all others may be before this one.
  PRISM_RETURN_IF_ERROR(need_slot(lock));
  off_slot_ns_ = 0;
  if (clock_) clock_->begin(0);
  return {};
}

void RankClient::Impl::read_loop() {
  wire::Buffer buffer;
  {
    Lock lock(mutex_);
    buffer.swap(early_bytes_);
  }
  while (true) {
    int timeout = -1;
    {
      Lock lock(mutex_);
      if (error_ || inert_) return;
      timeout = poll_timeout_ms(lock);
    }
    pollfd ready{socket_.get(), POLLIN, 0};
    const int events = ::poll(&ready, 1, timeout);
    if (events > 0 && !receive(buffer)) return;
    Lock lock(mutex_);
    if (events < 0 && errno != EINTR)
      return fail(lock, {ErrorCode::kPeerFailed, fmt::format("poll() of the coordinator: {}", std::strerror(errno))});
    if (!error_) watch(lock);
  }
}

// False at the end of the connection.
bool RankClient::Impl::receive(wire::Buffer& buffer) {
  constexpr std::size_t kChunk = 64u << 10;
  const std::size_t before = buffer.size();
  buffer.resize(before + kChunk);
  const ssize_t got = recv(socket_.get(), buffer.data() + before, kChunk, MSG_DONTWAIT);
  buffer.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  Lock lock(mutex_);
  if (got <= 0) {
    fail(lock, {ErrorCode::kPeerFailed, "the coordinator has gone"});
    return false;
  }
  std::span<const std::uint8_t> rest = buffer;
  while (!error_) {
    const auto frame = wire::first_frame(rest);
    if (!frame) {
      fail(lock, {ErrorCode::kPeerFailed, "the coordinator sent " + frame.error().message});
      return false;
    }
    if (!*frame) break;
    handle(lock, **frame);
    rest = rest.subspan(wire::kFrameHeaderBytes + (*frame)->body.size());
  }
  buffer.erase(buffer.begin(), buffer.end() - static_cast<std::ptrdiff_t>(rest.size()));
  // Completions without a grant behind them crossed with our giving the slot back.
  if (!early_.empty() && slot_ != Slot::kHeld) request_slot(lock);
  return !error_;
}

void RankClient::Impl::handle(Lock& lock, const wire::Frame& frame) {
  using wire::MessageType;
  bool understood = false;
  const auto read = [&]<typename Message>(std::optional<Message> message, auto then) {
    understood = message.has_value();
    if (understood) then(*message);
  };
  switch (frame.type) {
    case MessageType::kGrant:
      read(wire::decode<wire::Grant>(frame), [&](wire::Grant& grant) { granted(lock, grant.grant); });
      break;
    case MessageType::kCompletion:
      read(wire::decode<wire::Completion>(frame), [&](wire::Completion& completion) {
        if (clock_ && completion.due_ns >= 0) clock_->saw(completion.due_ns);
        if (slot_ == Slot::kHeld)
          deliver(lock, std::move(completion));
        else
          early_.push_back(std::move(completion));
      });
      break;
    case MessageType::kFreed:
      read(wire::decode<wire::Freed>(frame), [&](wire::Freed& freed) { staging_->freed(freed.works); });
      break;
    case MessageType::kProbe:
      read(wire::decode<wire::Probe>(frame), [&](wire::Probe& probe) {
        unpark(lock);  // the whole job is silent
        send(lock, wire::ProbeReply{probe.probe, quietness(lock), cpu_ns(lock)});
      });
      break;
    case MessageType::kStoreReply:
      read(wire::decode<wire::StoreReply>(frame), [&](wire::StoreReply& reply) {
        const auto work = works_.find(reply.work);
        if (work == works_.end() || !work->second.from_store) return;
        const bool pending = reply.status == wire::StoreStatus::kPending;
        work->second.reply = std::move(reply);
        slot_granted_.notify_all();  // the asker looks at the first answer
        if (!pending) complete(lock, work->first);
      });
      break;
    case MessageType::kSwap:
      read(wire::decode<wire::Swap>(frame), [&](wire::Swap& moved) { swap(lock, moved.done); });
      break;
    case MessageType::kAbort:
      read(wire::decode<wire::Abort>(frame), [&](wire::Abort& abort) { fail(lock, std::move(abort.error)); });
      break;
    default:
      break;
  }
  if (!understood)
    fail(lock, {ErrorCode::kPeerFailed,
                fmt::format("the coordinator sent a malformed message of type {}", static_cast<int>(frame.type))});
}

// From here on nothing waits: every operation completes with the error, every sleeper returns it.
void RankClient::Impl::fail(Lock& lock, Error error) {
  if (error_) return;
  error_ = std::move(error);
  unpark(lock);
  for (auto& completion : std::exchange(early_, {}))
    deliver(lock, wire::Completion{.work = completion.work, .error = error_});
  std::vector<WorkId> open;
  for (const auto& [id, work] : works_)
    if (!work.delivered && !work.from_store) open.push_back(id);
  std::sort(open.begin(), open.end());
  for (const WorkId work : open) deliver(lock, wire::Completion{.work = work, .error = error_});
  for (Waiter* waiter : waiters_) waiter->wake.notify_all();
  slot_granted_.notify_all();
}

Result<void> RankClient::Impl::enter(Lock& lock) {
  if (inert_) return Error{ErrorCode::kAborted, "this process was forked from a rank and is none itself"};
  if (error_) return *error_;
  activity_here(lock) = Activity::kRuns;
  PRISM_RETURN_IF_ERROR(need_slot(lock));
  if (clock_) clock_->wake();
  return {};
}

void RankClient::Impl::finish(const std::string& error_text) {
  Lock lock(mutex_);
  if (inert_ || finished_) return;
  finished_ = true;
  if (!error_) {
    send(lock, wire::Finish{error_text.substr(0, wire::kMaxValueBytes)});
    fail(lock, {ErrorCode::kAborted, "this rank has finished"});
  } else if (!error_text.empty()) {
    send(lock, wire::Finish{error_text.substr(0, wire::kMaxValueBytes)});
  }
  shutdown(socket_.get(), SHUT_RDWR);  // what was sent is still read at the other end
}

RankClient::Impl::~Impl() {
  {
    Lock lock(mutex_);
    fail(lock, {ErrorCode::kAborted, "this rank's session has ended"});
    if (socket_.get() >= 0) shutdown(socket_.get(), SHUT_RDWR);
  }
  if (reader_.joinable()) reader_.join();
  ForkGuard::remove(*this);
  {
    Lock lock(mutex_);
    stop_pool_ = true;
    callback_queued_.notify_all();
  }
  for (auto& thread : pool_) thread.join();
}

}  // namespace prism
