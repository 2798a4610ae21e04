// The messages between the coordinator and the relay of another host, over TCP: what its ranks say and are told, and
// the bytes of their tensors. A relay's ranks are served at its own shared memory, so that regions which they name are
// of that memory; in what goes to them the offset of a region is the number of a block that was sent before.
#pragma once
#include <string>

#include "backend/protocol/frame.hpp"

namespace prism::wire {

inline constexpr std::uint32_t kLinkVersion = 1;
inline constexpr std::size_t kMaxProofBytes = 32;       // an HMAC-SHA256
inline constexpr std::size_t kTogetherBytes = 1 << 20;  // frames of one rank are joined until they are so many
inline constexpr std::size_t kMaxLinkFrameBytes = kMaxFrameBytes + kTogetherBytes + 64;
inline constexpr std::size_t kMaxGreetingBytes = 1 << 10;  // of whoever has not proved anything yet
inline constexpr std::size_t kChunkBytes = 256 << 10;      // of a tensor, at a time: nobody's heartbeat waits long

// --- the relay speaks

// First. The proof says that it knows the run's secret, without telling it.
struct LinkHello {
  static constexpr auto kType = MessageType::kLinkHello;
  std::uint32_t version = kLinkVersion, host = 0;
  std::string proof;
  void fields(auto& a) { a.value(version), a.value(host), a.blob(proof); }
};

struct RankJoined {
  static constexpr auto kType = MessageType::kRankJoined;
  std::uint32_t rank = 0;
  void fields(auto& a) { a.value(rank); }
};

// The inputs of an operation that is about to be issued, one behind the other; BlockBytes of this number follow.
struct RankInputs {
  static constexpr auto kType = MessageType::kRankInputs;
  std::uint32_t rank = 0;
  std::uint64_t work = 0, bytes = 0;
  void fields(auto& a) { a.value(rank), a.value(work), a.value(bytes); }
};

// The process of a rank has ended, or has been stopped or continued by a signal.
enum class ProcessChange : std::uint8_t { kEnded, kStopped, kContinued, kCount };
struct RankChanged {
  static constexpr auto kType = MessageType::kRankChanged;
  std::uint32_t rank = 0;
  ProcessChange change = ProcessChange::kEnded;
  std::string why;
  void fields(auto& a) { a.value(rank), a.value(change), a.blob(why); }
};

// --- the coordinator speaks

struct LinkWelcome {
  static constexpr auto kType = MessageType::kLinkWelcome;
  std::string proof;
  std::int64_t lend_after_ns = 0;
  void fields(auto& a) { a.blob(proof), a.value(lend_after_ns); }
};

// Bytes that ranks of this host are going to read; BlockBytes of this number follow.
struct BlockBegins {
  static constexpr auto kType = MessageType::kBlockBegins;
  std::uint64_t block = 0, bytes = 0;
  void fields(auto& a) { a.value(block), a.value(bytes); }
};

// Nobody of this host reads it any more.
struct BlockEnds {
  static constexpr auto kType = MessageType::kBlockEnds;
  std::uint64_t block = 0;
  void fields(auto& a) { a.value(block); }
};

// For the host's control block: how many ranks of it wait for a slot.
struct RanksWaiting {
  static constexpr auto kType = MessageType::kRanksWaiting;
  std::uint32_t count = 0;
  void fields(auto& a) { a.value(count); }
};

// --- both

// Whole frames from or for one rank, as they stand on its own socket.
struct RankFrames {
  static constexpr auto kType = MessageType::kRankFrames;
  std::uint32_t rank = 0;
  std::span<const std::uint8_t> frames;
  void fields(auto& a) { a.value(rank), a.rest(frames); }
};

// A piece of a block (or, from a relay, of the inputs that RankInputs announced); pieces come in order.
struct BlockBytes {
  static constexpr auto kType = MessageType::kBlockBytes;
  std::span<const std::uint8_t> bytes;
  void fields(auto& a) { a.rest(bytes); }
};

// Every second, so that the silence of a host that cannot be reached is noticed.
struct Heartbeat {
  static constexpr auto kType = MessageType::kHeartbeat;
  std::uint8_t zero = 0;
  void fields(auto& a) { a.value(zero); }
};

}  // namespace prism::wire
