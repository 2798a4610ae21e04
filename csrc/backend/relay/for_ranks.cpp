// What the coordinator says: blocks of bytes are placed in this host's memory, and what goes to a rank names them
// there.
#include <fmt/format.h>

#include "backend/coordinator/process_state.hpp"
#include "backend/relay/loop.hpp"

namespace prism {

void Relay::Impl::link_frame_from_loop(const wire::Frame& frame) {
  if (first_error_) return;
  if (auto handled = handle(frame); !handled) fail_from_loop(handled.error());
}

Result<void> Relay::Impl::handle(const wire::Frame& frame) {
  using wire::MessageType;
  const auto read = [&]<typename Message>(std::optional<Message> message) -> Result<void> {
    if (message) return on(*message);
    return Error{ErrorCode::kPeerFailed,
                 fmt::format("the coordinator sent a malformed message of type {}", static_cast<int>(frame.type))};
  };
  if (frame.type == MessageType::kAbort) {
    auto abort = wire::decode<wire::Abort>(frame);
    if (!welcomed_)
      return Error{ErrorCode::kPeerFailed,
                   "the coordinator does not let it in" + (abort ? ": " + abort->error.message : std::string())};
    told_ = true;
    return abort ? std::move(abort->error) : Error{ErrorCode::kPeerFailed, "the coordinator ended the run"};
  }
  if (!welcomed_ && frame.type != MessageType::kLinkWelcome)
    return Error{ErrorCode::kPeerFailed, "what answers is no coordinator"};
  switch (frame.type) {
    case MessageType::kLinkWelcome:
      return read(wire::decode<wire::LinkWelcome>(frame));
    case MessageType::kBlockBegins:
      return read(wire::decode<wire::BlockBegins>(frame));
    case MessageType::kBlockBytes:
      return read(wire::decode<wire::BlockBytes>(frame));
    case MessageType::kBlockEnds:
      return read(wire::decode<wire::BlockEnds>(frame));
    case MessageType::kRanksWaiting:
      return read(wire::decode<wire::RanksWaiting>(frame));
    case MessageType::kRankFrames:
      return read(wire::decode<wire::RankFrames>(frame));
    case MessageType::kHeartbeat:
      return {};
    default:
      return Error{ErrorCode::kPeerFailed,
                   fmt::format("the coordinator sent a message of type {}", static_cast<int>(frame.type))};
  }
}

// Only now ranks are let in: until then whoever is at the other end could be anybody.
Result<void> Relay::Impl::on(const wire::LinkWelcome& message) {
  if (welcomed_ || options_.coordinators_proof.empty() || message.proof != options_.coordinators_proof)
    return Error{ErrorCode::kPeerFailed, "what answers does not know this run's secret"};
  welcomed_ = true;
  link_->frame_limit = wire::kMaxLinkFrameBytes;
  lend_after_ns_ = message.lend_after_ns;
  accept();
  return {};
}

Result<void> Relay::Impl::on(const wire::BlockBegins& message) {
  if (coming_.bytes != 0 || message.bytes == 0 || blocks_.count(message.block) != 0)
    return Error{ErrorCode::kPeerFailed, fmt::format("the coordinator sent block {} out of turn", message.block)};
  auto block = blocks_memory_->allocate(message.bytes);
  if (!block) return Error{block.error().code, "what ranks of this host are to read: " + block.error().message};
  coming_ = {block->offset, message.bytes};
  blocks_.emplace(message.block, coming_);
  return {};
}

Result<void> Relay::Impl::on(const wire::BlockBytes& message) {
  if (message.bytes.size() > coming_.bytes)
    return Error{ErrorCode::kPeerFailed, fmt::format("the coordinator sent {} bytes of a block of which {} are missing",
                                                     message.bytes.size(), coming_.bytes)};
  std::memcpy(memory_->at(coming_.offset), message.bytes.data(), message.bytes.size());
  coming_.offset += message.bytes.size();
  coming_.bytes -= message.bytes.size();
  return {};
}

Result<void> Relay::Impl::on(const wire::BlockEnds& message) {
  const auto block = blocks_.find(message.block);
  if (block == blocks_.end()) return {};
  blocks_memory_->free(block->second.offset);
  blocks_.erase(block);
  return {};
}

Result<void> Relay::Impl::on(const wire::RanksWaiting& message) {
  memory_->control().ranks_waiting.store(message.count, std::memory_order_relaxed);
  return {};
}

Result<void> Relay::Impl::on(const wire::RankFrames& message) {
  if (!is_ours(message.rank) || !at(static_cast<int>(message.rank)).connection)
    return Error{ErrorCode::kPeerFailed,
                 fmt::format("the coordinator speaks to rank {}, which is not here", message.rank)};
  for (auto rest = message.frames; !rest.empty();) {
    PRISM_ASSIGN_OR_RETURN(const auto frame, wire::first_frame(rest));
    if (!frame) return Error{ErrorCode::kPeerFailed, "half a message of the coordinator"};
    PRISM_RETURN_IF_ERROR(deliver(static_cast<int>(message.rank), *frame));
    rest = rest.subspan(wire::kFrameHeaderBytes + frame->body.size());
  }
  return {};
}

Result<void> Relay::Impl::deliver(int rank, const wire::Frame& frame) {
  Connection& connection = *at(rank).connection;
  if (!connection.is_open() || at(rank).finished) return {};
  need_flush();
  if (frame.type != wire::MessageType::kCompletion) {
    const auto* begin = frame.body.data() - wire::kFrameHeaderBytes;
    connection.out().insert(connection.out().end(), begin, begin + wire::kFrameHeaderBytes + frame.body.size());
    return {};
  }
  auto completion = wire::decode<wire::Completion>(frame);
  if (!completion) return Error{ErrorCode::kPeerFailed, "the coordinator sent a malformed completion"};
  for (Region& region : completion->regions) {
    if (region.bytes == 0) {
      region.offset = memory_->window_begin(memory_->coordinator());
      continue;
    }
    const auto block = blocks_.find(region.offset);
    if (block == blocks_.end() || block->second.bytes != region.bytes)
      return Error{ErrorCode::kPeerFailed, fmt::format("the coordinator named block {} of {} bytes, which is not here",
                                                       region.offset, region.bytes)};
    region.offset = block->second.offset;
  }
  wire::append_frame(connection.out(), *completion);
  return {};
}

}  // namespace prism
