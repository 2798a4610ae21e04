// How messages stand in a stream. A frame is: u32 bytes of the body, u8 MessageType, body.
#pragma once
#include <optional>

#include "backend/protocol/wire.hpp"

namespace prism::wire {

inline constexpr std::size_t kFrameHeaderBytes = 5;
inline constexpr std::size_t kMaxFrameBytes = 80u << 20;
inline constexpr std::size_t kMaxHelloBytes = 64;  // before a rank is let in, no frame may be longer

enum class MessageType : std::uint8_t {
  kHello,
  kJoinGroup,
  kLeaveGroup,
  kIssue,
  kReadDone,
  kRelease,
  kRequestSlot,
  kProbeReply,
  kStoreRequest,
  kStoreCancel,
  kFinish,
  kWelcome,
  kGrant,
  kCompletion,
  kFreed,
  kProbe,
  kStoreReply,
  kAbort,
  kSwap,
  // protocol/link.hpp
  kLinkHello,
  kLinkWelcome,
  kRankJoined,
  kRankInputs,
  kRankChanged,
  kRankFrames,
  kBlockBegins,
  kBlockBytes,
  kBlockEnds,
  kRanksWaiting,
  kHeartbeat,
  kCount
};

template <typename Message>
void append_frame(Buffer& out, const Message& message) {
  const std::size_t start = out.size();
  out.resize(start + kFrameHeaderBytes);
  Writer writer(out);
  const_cast<Message&>(message).fields(writer);  // a Writer only looks
  const auto body = static_cast<std::uint32_t>(out.size() - start - kFrameHeaderBytes);
  std::memcpy(out.data() + start, &body, sizeof body);
  out[start + 4] = static_cast<std::uint8_t>(Message::kType);
}

struct Frame {
  MessageType type = MessageType::kCount;
  std::span<const std::uint8_t> body;
};

// The first frame of `bytes`: nullopt when it is not all there yet, an error when it cannot be one.
Result<std::optional<Frame>> first_frame(std::span<const std::uint8_t> bytes, std::size_t limit = kMaxFrameBytes);

// Reads the message of a frame whose type was looked at.
template <typename Message>
std::optional<Message> decode(const Frame& frame) {
  Message message;
  Reader reader(frame.body);
  message.fields(reader);
  return reader.complete() ? std::optional(std::move(message)) : std::nullopt;
}

}  // namespace prism::wire
