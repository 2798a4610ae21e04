// The messages between a rank and the coordinator; docs/design/capture_protocol.md tells when each is sent. One struct
// per message; fields() serves writing and reading alike.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "backend/protocol/frame.hpp"
#include "backend/protocol/operation.hpp"

namespace prism::wire {

inline constexpr std::uint32_t kProtocolVersion = 3;

// --- a rank speaks

struct Hello {
  static constexpr auto kType = MessageType::kHello;
  std::uint32_t version = kProtocolVersion, rank = 0, world_size = 0;
  void fields(auto& a) { a.value(version), a.value(rank), a.value(world_size); }
};

struct JoinGroup {
  static constexpr auto kType = MessageType::kJoinGroup;
  GroupHandle handle = 0;  // chosen by the rank
  std::string key;
  std::vector<std::int32_t> members;
  void fields(auto& a) {
    a.value(handle), a.blob(key);
    a.list(members, kMaxIds, [](auto& b, auto& member) { b.value(member); });
  }
};

struct LeaveGroup {
  static constexpr auto kType = MessageType::kLeaveGroup;
  GroupHandle handle = 0;
  void fields(auto& a) { a.value(handle); }
};

struct Issue {
  static constexpr auto kType = MessageType::kIssue;
  WorkId work = 0;
  std::int64_t emulated_ns = -1;  // when, on the rank's emulated clock; -1: it has none
  Operation operation;
  void fields(auto& a) {
    auto& o = operation;
    a.value(work), a.value(emulated_ns), a.value(o.group), a.value(o.op), a.value(o.dtype), a.value(o.reduce_op);
    a.value(o.root), a.value(o.peer), a.value(o.tag), a.value(o.seq), a.value(o.number);
    a.sizes(o.output_bytes);
    a.list(o.shapes, kMaxPieces,
           [](auto& b, auto& shape) { b.list(shape, kMaxDimensions, [](auto& c, auto& extent) { c.value(extent); }); });
    a.list(o.inputs, kMaxPieces, [](auto& b, auto& region) { b.value(region.offset), b.value(region.bytes); });
    std::int64_t timeout = o.timeout.count();
    a.value(timeout);
    if constexpr (std::decay_t<decltype(a)>::kReads) o.timeout = std::chrono::nanoseconds(timeout);
  }
};

// Outcomes whose regions this rank will not read again.
struct ReadDone {
  static constexpr auto kType = MessageType::kReadDone;
  std::vector<WorkId> works;
  void fields(auto& a) {
    a.list(works, kMaxIds, [](auto& b, auto& work) { b.value(work); });
  }
};

enum class ReleaseKind : std::uint8_t {
  kBlock,  // every thread waits for one of `works`
  kLend,   // asleep in something else; any outstanding operation may wake it
  kYield,  // a poll answered "not yet"
  kCount
};

// Gives the slot of grant number `grant` back; ignored when another grant is under way to the rank.
struct Release {
  static constexpr auto kType = MessageType::kRelease;
  ReleaseKind kind = ReleaseKind::kBlock;
  std::uint64_t grant = 0;
  bool polls_store = false;      // kYield: a change of the store is what the rank looks for
  bool uses_device = false;      // the process has state on an accelerator
  std::int64_t patience_ns = 0;  // kBlock: ready again, unanswered, after so long; 0: never
  std::vector<WorkId> works;     // kBlock
  void fields(auto& a) {
    a.value(kind), a.value(grant), a.value(polls_store), a.value(uses_device), a.value(patience_ns);
    a.list(works, kMaxIds, [](auto& b, auto& work) { b.value(work); });
  }
};

// The rank wants a slot although nothing that it waits for is complete.
struct RequestSlot {
  static constexpr auto kType = MessageType::kRequestSlot;
  std::uint64_t grant = 0;  // the last one received
  void fields(auto& a) { a.value(grant); }
};

enum class Quietness : std::uint8_t {
  kAwake,   // some thread computes, or sleeps in what is none of ours
  kTimed,   // threads that never issued anything sleep with a time limit
  kAsleep,  // every thread waits for an operation or for another thread
  kCount
};

struct ProbeReply {
  static constexpr auto kType = MessageType::kProbeReply;
  std::uint64_t probe = 0;
  Quietness quietness = Quietness::kAwake;
  std::int64_t cpu_ns = 0;  // processor time used so far
  void fields(auto& a) { a.value(probe), a.value(quietness), a.value(cpu_ns); }
};

enum class StoreVerb : std::uint8_t {
  kSet,
  kGet,
  kAdd,
  kCompareSet,
  kAppend,
  kCheck,
  kWait,
  kDelete,
  kNumKeys,
  kListKeys,
  kQueuePush,
  kQueuePop,
  kQueueLength,
  kCount
};

struct StoreRequest {
  static constexpr auto kType = MessageType::kStoreRequest;
  WorkId work = 0;  // 0: no answer wanted
  StoreVerb verb = StoreVerb::kSet;
  bool block = false;  // kQueuePop: wait for an item
  std::int64_t amount = 0;
  std::vector<std::string> keys;  // one, but for kCheck and kWait; kListKeys: the prefix
  Buffer value, expected;
  void fields(auto& a) {
    a.value(work), a.value(verb), a.value(block), a.value(amount);
    a.list(keys, kMaxIds, [](auto& b, auto& key) { b.blob(key); });
    a.blob(value), a.blob(expected);
  }
};

struct StoreCancel {
  static constexpr auto kType = MessageType::kStoreCancel;
  WorkId work = 0;
  void fields(auto& a) { a.value(work); }
};

struct Finish {
  static constexpr auto kType = MessageType::kFinish;
  std::string error_text;  // empty: ended well
  void fields(auto& a) { a.blob(error_text); }
};

// --- the coordinator speaks

// Carries the descriptors of the shared memory, and of the file for what is spilled where there is one.
struct Welcome {
  static constexpr auto kType = MessageType::kWelcome;
  std::uint64_t window_bytes = 0, spill_window_bytes = 0;
  std::int64_t lend_after_ns = 0;
  bool swaps_devices = false;  // device state may be moved to the host while the rank has no slot
  bool emulated = false;       // the rank is a real one among virtual ones: it keeps an emulated clock
  void fields(auto& a) {
    a.value(window_bytes), a.value(spill_window_bytes), a.value(lend_after_ns), a.value(swaps_devices);
    a.value(emulated);
  }
};

struct Grant {
  static constexpr auto kType = MessageType::kGrant;
  std::uint64_t grant = 0;  // counts up from 1 per rank
  void fields(auto& a) { a.value(grant); }
};

struct Completion {
  static constexpr auto kType = MessageType::kCompletion;
  WorkId work = 0;
  std::int32_t source = -1;
  std::int64_t due_ns = -1;  // when, on the emulated clock; -1: no such time
  bool unchanged = false;    // no regions: what is in the buffers stays
  std::optional<Error> error = {};
  std::vector<Region> regions = {};
  void fields(auto& a) {
    a.value(work), a.value(source), a.value(due_ns), a.value(unchanged);
    bool failed = error.has_value();
    a.value(failed);
    if (failed) {
      if (!error) error.emplace();
      a.value(error->code), a.blob(error->message);
    }
    a.list(regions, kMaxPieces, [](auto& b, auto& region) { b.value(region.offset), b.value(region.bytes); });
  }
};

// Operations of this rank whose inputs nobody reads any more.
struct Freed {
  static constexpr auto kType = MessageType::kFreed;
  std::vector<WorkId> works;
  void fields(auto& a) {
    a.list(works, kMaxIds, [](auto& b, auto& work) { b.value(work); });
  }
};

struct Probe {
  static constexpr auto kType = MessageType::kProbe;
  std::uint64_t probe = 0;
  void fields(auto& a) { a.value(probe); }
};

enum class StoreStatus : std::uint8_t { kDone, kPending, kAbsent, kWrongUse, kCount };

struct StoreReply {
  static constexpr auto kType = MessageType::kStoreReply;
  WorkId work = 0;
  StoreStatus status = StoreStatus::kDone;
  std::int64_t number = 0;
  Buffer value;
  std::vector<std::string> keys;
  void fields(auto& a) {
    a.value(work), a.value(status), a.value(number), a.blob(value);
    a.list(keys, kMaxIds, [](auto& b, auto& key) { b.blob(key); });
  }
};

// The rank's device state is moved to the host; from then on, until the next grant, calls to the driver block.
struct Swap {
  static constexpr auto kType = MessageType::kSwap;
  bool done = false;  // begins, is done
  void fields(auto& a) { a.value(done); }
};

struct Abort {
  static constexpr auto kType = MessageType::kAbort;
  Error error;
  void fields(auto& a) { a.value(error.code), a.blob(error.message); }
};

}  // namespace prism::wire
