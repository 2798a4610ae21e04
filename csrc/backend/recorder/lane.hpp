// What one thread of the program did, in its order. Written by one thread at a time, without locks; read by finish().
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/builder.hpp"

namespace prism::recorder {

// A vector whose elements never move and that allocates once every few thousand elements.
template <typename T>
class ChunkedVector {
 public:
  void push_back(const T& value) {
    if (size_ % kChunk == 0) chunks_.push_back(std::make_unique<std::array<T, kChunk>>());
    (*chunks_.back())[size_++ % kChunk] = value;
  }
  const T& operator[](std::size_t i) const { return (*chunks_[i / kChunk])[i % kChunk]; }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t kChunk = 4096;
  std::vector<std::unique_ptr<std::array<T, kChunk>>> chunks_;
  std::size_t size_ = 0;
};

struct Lane {
  struct Event {
    std::int64_t start_ns, end_ns;
    std::int32_t comm;   // the first one concerned, or -1
    std::uint32_t name;  // index into the recorder's names, or kNoName
    NodeKind kind;       // compute, issue or wait; transfers are made from the table of communications
  };
  // An event and a communication that belong together: issued in it, waited for in it, or the cause of it.
  struct Link {
    std::uint32_t event;
    std::int32_t comm;
  };
  struct MemoryStep {
    std::uint32_t event;
    std::int64_t bytes, peak;
  };

  explicit Lane(std::string lane_name, std::int64_t now_ns) : name(std::move(lane_name)), free_since_ns(now_ns) {}

  std::string name;
  int callback_number = -1;  // k of "callback-k"; such a lane is idle between callbacks
  ChunkedVector<Event> events;
  ChunkedVector<Link> issued, waited;
  std::vector<Link> caused;
  std::vector<std::uint32_t> marks;  // events with which iterations begin
  ChunkedVector<MemoryStep> memory;

  // What the lane is in the middle of: issuing while `open` is not empty, else waiting while wait_depth > 0, else
  // computing; since the end of the last event.
  std::int64_t free_since_ns;
  int issue_depth = 0, wait_depth = 0;
  std::vector<std::int32_t> open;     // communications of the issue in progress
  std::vector<std::int32_t> awaited;  // communications of the wait in progress, from nested waits
  std::uint32_t next_name = kNoName;
  bool mark_next = false;
  std::vector<std::int32_t> causes;  // communications whose callback begins with the next event
  // Where a callback began on this thread that has not done anything to be recorded yet; else kNoCallback.
  static constexpr std::int64_t kNoCallback = INT64_MIN;
  std::int64_t callback_since_ns = kNoCallback;
};

}  // namespace prism::recorder
