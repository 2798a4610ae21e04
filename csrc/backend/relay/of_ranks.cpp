// What the ranks of this host say: passed on as it stands, the inputs of an operation before it.
#include <fmt/format.h>

#include <array>

#include "backend/protocol/socket.hpp"
#include "backend/relay/loop.hpp"

namespace prism {

void Relay::Impl::rank_frame_from_loop(Connection& connection, const wire::Frame& frame) {
  if (first_error_) return;
  if (connection.rank >= 0) {
    if (auto passed = pass_on(connection.rank, frame); !passed)
      ended_from_loop(connection.rank, "it sent " + passed.error().message);
    return;
  }
  const auto message = frame.type == wire::MessageType::kHello ? wire::decode<wire::Hello>(frame) : std::nullopt;
  if (!message)
    refuse(connection, {ErrorCode::kInvalidInput, "the first message is not a greeting"});
  else if (auto welcomed = hello(connection, *message); !welcomed)
    refuse(connection, welcomed.error());
}

void Relay::Impl::refuse(Connection& connection, const Error& error) {
  wire::append_frame(connection.out(), wire::Abort{error});
  connection.flush();
  connection.close();
  strangers_.erase(connection.shared_from_this());
}

Result<void> Relay::Impl::hello(Connection& connection, const wire::Hello& message) {
  if (message.version != wire::kProtocolVersion ||
      message.world_size != static_cast<std::uint32_t>(options_.world_size) || !is_ours(message.rank))
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("rank {} of {} with protocol {}; accepted: ranks {} to {} of {} with protocol {}",
                             message.rank, message.world_size, message.version, options_.first_rank,
                             options_.first_rank + options_.ranks - 1, options_.world_size, wire::kProtocolVersion)};
  const int rank = static_cast<int>(message.rank);
  Rank& r = at(rank);
  if (r.connection) return Error{ErrorCode::kInvalidInput, fmt::format("rank {} is connected already", rank)};
  wire::Buffer welcome;
  wire::append_frame(welcome, wire::Welcome{memory_->window_bytes(), memory_->spill_window_bytes(), lend_after_ns_});
  const int fds[] = {memory_->fd(), memory_->spill_fd()};
  if (!send_with_fds(connection.fd(), welcome, std::span(fds).first(memory_->spill_fd() >= 0 ? 2 : 1)))
    return Error{ErrorCode::kIo, fmt::format("rank {} does not take its welcome", rank)};
  r.connection = connection.shared_from_this();
  strangers_.erase(r.connection);
  connection.rank = rank;
  connection.frame_limit = wire::kMaxFrameBytes;
  // A process that its own children outlive does not close the connection by dying.
  r.process = ProcessWatch::start(io_, connection.pid(), [this, rank] {
    if (first_error_) return;
    at(rank).connection->read_what_is_there();
    ended_from_loop(rank, "its process has ended");
  });
  tell(wire::RankJoined{message.rank});
  return {};
}

Result<void> Relay::Impl::pass_on(int rank, const wire::Frame& frame) {
  Rank& r = at(rank);
  if (r.finished) return {};
  if (frame.type == wire::MessageType::kIssue) {
    const auto message = wire::decode<wire::Issue>(frame);
    if (!message) return Error{ErrorCode::kInvalidInput, "a malformed operation"};
    PRISM_RETURN_IF_ERROR(send_inputs(rank, *message));
  } else if (frame.type == wire::MessageType::kFinish) {
    r.finished = true;
    r.process.reset();
    ++finished_;
  }
  // The frame as it stood: its header lies in front of its body.
  const auto* begin = frame.body.data() - wire::kFrameHeaderBytes;
  append_rank_frames(link_->out(), rank, {begin, wire::kFrameHeaderBytes + frame.body.size()});
  need_flush();
  return {};
}

Result<void> Relay::Impl::send_inputs(int rank, const wire::Issue& message) {
  static constexpr std::array<std::uint8_t, padded(1)> kPadding{};
  std::uint64_t total = 0;
  for (const Region input : message.operation.inputs) {
    if (!memory_->contains(input, rank))
      return Error{ErrorCode::kInvalidInput,
                   fmt::format("an input of {} bytes at {} outside of its window", input.bytes, input.offset)};
    total += padded(input.bytes);
  }
  if (total == 0) return {};
  tell(wire::RankInputs{static_cast<std::uint32_t>(rank), message.work, total});
  for (const Region input : message.operation.inputs) {
    // The rank's staging keeps them until the coordinator says that nobody reads them.
    send_block(*link_, {reinterpret_cast<const std::uint8_t*>(memory_->at(input.offset)), input.bytes}, memory_);
    if (const auto over = input.bytes % kPadding.size(); over != 0)
      wire::append_frame(link_->out(), wire::BlockBytes{std::span(kPadding).subspan(over)});
  }
  return {};
}

}  // namespace prism
