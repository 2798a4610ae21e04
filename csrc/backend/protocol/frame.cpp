#include "backend/protocol/frame.hpp"

#include <fmt/format.h>

namespace prism::wire {

Result<std::optional<Frame>> first_frame(std::span<const std::uint8_t> bytes, std::size_t limit) {
  if (bytes.size() < kFrameHeaderBytes) return std::optional<Frame>();
  std::uint32_t body = 0;
  std::memcpy(&body, bytes.data(), sizeof body);
  const std::uint8_t type = bytes[4];
  if (body > limit)
    return Error{ErrorCode::kInvalidInput, fmt::format("a frame of {} bytes; accepted: at most {}", body, limit)};
  if (type >= static_cast<std::uint8_t>(MessageType::kCount))
    return Error{ErrorCode::kInvalidInput, fmt::format("a frame of unknown type {}", type)};
  if (bytes.size() < kFrameHeaderBytes + body) return std::optional<Frame>();
  return std::optional(Frame{static_cast<MessageType>(type), bytes.subspan(kFrameHeaderBytes, body)});
}

}  // namespace prism::wire
