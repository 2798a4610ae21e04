// Where a rank's memory ends: an allocation beyond the limit, or a communicator's first communication, raises
// torch.OutOfMemoryError, and nothing else has happened. See docs/memory.md.
#pragma once
#include <cstdint>
#include <functional>

#include "backend/c10d/call.hpp"
#include "backend/recorder/communicator_memory.hpp"
#include "backend/recorder/recorder.hpp"

namespace prism {

// From now on this rank's communicators count; once per process, before the first group.
void count_communicators(CommunicatorMemory::Options options);
// Of a rank whose tensors are on an accelerator, whose allocator has its own limit: called with what communicators will
// hold in all, each time before this changes, without Python's lock. What it throws is the communication's exception.
void tell_communicator_memory(std::function<void(std::int64_t bytes)> changed);

// Throw c10::OutOfMemoryError. The first where `bytes` more are beyond the limit now; nothing is counted.
void expect_room(const Recorder& recorder, std::int64_t bytes);
[[noreturn]] void throw_out_of_memory(const MemoryInUse& in_use, std::int64_t bytes);
// What comes with this use of the group's communicator.
void use_communicator(Recorder& recorder, const Call& call, const GroupInfo& group, bool batched);
void drop_communicator(const GroupInfo& group);

}  // namespace prism
