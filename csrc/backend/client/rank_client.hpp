// RankClient: a logical rank's side of the capture protocol. Free of torch.
//
// Threads: any thread of the rank may call; a reader thread owns the socket's receiving side; completions run on a
// small pool that grows when callbacks block (a callback may itself issue and wait). One client per process, made after
// fork. The rank holds its slot from connect() (which waits for the first grant) on, and gives it back in wait(), in
// blocking store calls and in polls that answer "not yet".
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/protocol/operation.hpp"
#include "core/deadline.hpp"
#include "core/result.hpp"

namespace prism {

// A completed operation. The regions may be read until the completion callback returns.
struct Outcome {
  Result<void> status;
  std::vector<Region> regions;
  std::int32_t source = -1;  // recv: group rank of the sender
  std::int64_t due_ns = -1;  // when it was due on the emulated clock; -1: there is none
  bool unchanged = false;    // no regions: outputs stay as they are
};

class RankClient {
 public:
  struct Options {
    std::string address;  // name of the coordinator's abstract Unix socket
    int rank = 0, world_size = 1;
    std::chrono::nanoseconds connect_timeout = std::chrono::minutes(5);  // until the coordinator answers
    bool alone_in_process = true;  // false: other threads of this process are none of this rank's (several per process)
  };
  // Connects, maps the shared memory, and waits for a slot.
  static Result<std::unique_ptr<RankClient>> connect(const Options& options);
  ~RankClient();

  // --- shared memory: contiguous, 64-byte aligned, zero-copy for the readers; freed by the client once all have read
  // it. An input may be a part of a staged region, and parts of one region may be inputs of several operations.
  Result<Region> stage(std::size_t bytes);
  std::byte* data(Region region) const;
  void discard(Region region);  // of a staged region that was never issued

  // --- process groups: `key` is unique per group in the job and equal on its members
  Result<GroupHandle> join_group(const std::string& key, std::span<const std::int32_t> members);
  void leave_group(GroupHandle group);

  // --- operations. `inputs` must come from stage(); they belong to the client from here on. `done` runs exactly once,
  // on a completion thread, also when the run is aborted.
  using Completion = std::function<void(const Outcome&)>;
  Result<WorkId> issue(const Operation& operation, Completion done);
  // An operation that is complete already, for whoever must learn it on a completion thread.
  Result<WorkId> complete_at_once(Completion done);
  // Blocks until all are complete and their callbacks have returned; the slot is given back meanwhile. An operation's
  // own error is not wait()'s: it returns kTimeout at the deadline and the run's first error when the run is aborted.
  Result<void> wait(std::span<const WorkId> works, Deadline deadline);
  // Whether the operation is complete (callback returned); "no" gives the slot to whoever can use it first.
  bool poll(WorkId work);
  // The calling thread is about to sleep in something that cannot be hooked (ivalue::Future::wait): lend the slot now,
  // ask for it again when an outstanding operation completes.
  void lend_slot();
  // The same where nobody can be asked to run something: between the two the calling thread sleeps in futures.
  void sleep_outside();
  void wake_outside();
  // Runs `blocking` (which sleeps in something that is not ours) with the slot given back.
  void without_slot(const std::function<void()>& blocking);

  // --- the coordinator's key-value store; every blocking call gives the slot back
  using Bytes = std::vector<std::uint8_t>;
  Result<void> store_set(const std::string& key, const Bytes& value);
  Result<Bytes> store_get(const std::string& key, Deadline deadline);  // waits for the key
  Result<std::int64_t> store_add(const std::string& key, std::int64_t amount);
  Result<Bytes> store_compare_set(const std::string& key, const Bytes& expected, const Bytes& desired);
  Result<void> store_append(const std::string& key, const Bytes& value);
  Result<bool> store_check(const std::vector<std::string>& keys);  // a poll: "no" yields the slot
  Result<void> store_wait(const std::vector<std::string>& keys, Deadline deadline);
  Result<bool> store_delete(const std::string& key);
  Result<std::int64_t> store_num_keys();
  Result<std::vector<std::string>> store_list_keys(const std::string& prefix);
  Result<void> store_queue_push(const std::string& key, const Bytes& value);
  Result<Bytes> store_queue_pop(const std::string& key, bool block, Deadline deadline);
  Result<std::int64_t> store_queue_length(const std::string& key);

  // The process has state on an accelerator from now on.
  void note_device_use();

  // Nanoseconds since connect() during which this rank had no slot; lets the recorder count on-slot time only.
  std::int64_t off_slot_ns() const;
  // The same, but for what it has slept in something of its own (a timed sleep, a file), its slot lent.
  std::int64_t waiting_ns() const;
  // --- emulation: this rank is real, others are virtual
  bool is_emulated() const;
  // Of this rank's emulated clock, ns. Where there is none: CLOCK_MONOTONIC less off_slot_ns().
  std::int64_t emulated_now_ns() const;
  // Between the two this process's time is ours and does not count.
  void stand_clock();
  void go_on_clock();
  // A thread of the program is about to run although its rank was asleep.
  void wake_clock();

  // Says that the program ended well (empty) or with this error text (a traceback), then closes.
  void finish(const std::string& error_text);

  struct Impl;

 private:
  explicit RankClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace prism
