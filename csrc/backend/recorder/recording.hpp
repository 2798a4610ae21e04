// The state of one recording, private to the recorder's two files: recorder.cpp fills it, fragment.cpp reads it.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/recorder/comm_table.hpp"
#include "backend/recorder/lane.hpp"
#include "backend/recorder/memory_meter.hpp"
#include "backend/recorder/recorder.hpp"
#include "core/deadline.hpp"

namespace prism {

struct Recorder::Impl {
  explicit Impl(Options o) : options(std::move(o)), comms(options.rank), meter(options.memory_limit) {}

  std::int64_t now() const { return options.clock ? options.clock() : now_ns(); }
  // The calling thread's lane; a new one begins at `at_ns`.
  recorder::Lane& lane(std::int64_t at_ns);
  recorder::Lane& add_lane(std::string name, std::int64_t at_ns);

  // Ends what the lane is in the middle of at `at_ns`.
  void cut(recorder::Lane& lane, std::int64_t at_ns);
  void emit(recorder::Lane& lane, NodeKind kind, std::int64_t at_ns, std::int32_t comm);
  void emit_issue(recorder::Lane& lane, std::int64_t at_ns);
  void emit_wait(recorder::Lane& lane, std::int64_t at_ns, std::span<const CommId> comms);

  void close(std::int64_t at_ns);  // ends all lanes
  RankRecord record() const;       // after close()
  Result<void> write(RankRecord record) const;

  const Options options;
  std::uint64_t generation = 0;
  std::int64_t closed_ns = 0;
  recorder::CommTable comms;
  recorder::MemoryMeter meter;
  std::atomic<std::int32_t> batches{0};

  std::mutex mutex;  // guards what follows; the lanes themselves belong to their threads
  std::vector<std::unique_ptr<recorder::Lane>> lanes;
  std::vector<recorder::Lane*> idle_callback_lanes;
  int autograd_lanes = 0, callback_lanes = 0, other_lanes = 0;
  std::deque<std::string> names;
};

}  // namespace prism
