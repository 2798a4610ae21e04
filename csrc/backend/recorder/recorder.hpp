// Recorder: writes down what one rank does, as it does it. Free of torch; one per process.
//
// Threads: any. Each thread of the program has a lane of its own, appended to without locks; communications have a
// table behind a mutex that is held for nanoseconds. finish() is called when the program's threads are quiet; calls
// that come later, from threads that still hold the old recorder, are harmless.
// Overhead: two clock reads and two stores per event, no allocation on the hot path (chunks).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/recorder/memory_in_use.hpp"
#include "core/result.hpp"
#include "core/vocabulary.hpp"
#include "graph/builder.hpp"

namespace prism {

using CommId = std::int32_t;
inline constexpr CommId kNoComm = -1;

struct CommInfo {
  Op op = Op::kNone;
  DType dtype = DType::kNone;
  ReduceOp reduce_op = ReduceOp::kNone;
  bool async = false;
  std::uint32_t group = 0;  // from Recorder::group()
  std::int32_t peer = -1;   // messages: GLOBAL rank of the peer; rooted: root's group rank
  std::int32_t tag = 0;
  std::int32_t batch = -1;  // from Recorder::next_batch() for coalesced operations
  std::int64_t input_bytes = 0, output_bytes = 0;
};

class Recorder {
 public:
  struct Options {
    int rank = 0, world_size = 1;
    std::string path = {};  // fragment to write: a .prism of this one rank
    bool timed = true;      // false under capture
    std::string progress_model = "conservative";
    std::string metadata_json = "{}";
    std::function<std::int64_t()> clock =
        {};  // default CLOCK_MONOTONIC ns; under capture minus the time without a slot
    std::int64_t memory_limit = kNoMemoryLimit;  // bytes
  };
  // The process's recorder, or nullptr when nothing is recorded: one relaxed load.
  static Recorder* active();
  static Result<void> start(Options options);
  // Writes the fragment (complete or absent) and makes active() null.
  static Result<void> finish();
  // The same without a file: the recording itself. Node names point into memory that is never freed.
  static Result<RankRecord> take();
  // In a forked child of a rank (DataLoader worker, ...): forget the recording, never write it.
  static void abandon();
  ~Recorder();

  // A process group by its unique name and members (global ranks); idempotent by name.
  std::uint32_t group(const std::string& name, std::span<const std::int32_t> members);
  std::int32_t next_batch();

  // --- on the thread that issues: ends the lane's compute span, opens an issue node; sequence numbers are counted
  // here. Calls may nest (a coalesced batch): one issue node, one transfer per communication.
  CommId begin_issue(const CommInfo& info);
  void end_issue(CommId comm);
  // In the place of end_issue(), where the backend refused the call: no operation, on no member.
  void withdraw_issue(CommId comm);
  // --- when this member's part is done; any thread; `at_ns` on the recorder's clock (now() below). First call wins.
  // Without it a transfer ends with the first wait for it, or with the recording.
  void transfer_done(CommId comm, std::int64_t at_ns);
  // --- on the thread that waits: ends its compute span; the wait node depends on all `comms`. Where a thread sleeps in
  // futures (DDP at the end of backward), call begin_wait() from an engine callback queued before that sleep and
  // end_wait() with the communications whose futures were handed out from one queued behind it.
  void begin_wait();
  void end_wait(std::span<const CommId> comms);
  // --- hand-over between threads: a callback that runs because `cause` completed (edge transfer -> first node of the
  // callback). On a thread of the program it stays on that thread's lane; on any other it gets a lane "callback-k",
  // k the number of callbacks already running. A callback without communications leaves no nodes: its time shows as
  // wake-up time of whoever waits for it.
  void begin_callback(CommId cause);
  void end_callback();
  // --- ends the compute span here; the next node begins an iteration, or the next compute span has this name
  void mark_iteration();
  void name_next_span(std::string name);
  // --- memory: called by the allocator hook with +bytes or -bytes; lock-free. False: it would exceed the limit, and
  // nothing is counted. The same of what communicators hold, which is not in the trace.
  bool memory(std::int64_t delta) noexcept;
  bool communicator_memory(std::int64_t delta) noexcept;
  MemoryInUse memory_in_use() const noexcept;
  void set_memory_limit(std::int64_t bytes) noexcept;

  std::int64_t now() const;

 private:
  struct Impl;
  explicit Recorder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace prism
