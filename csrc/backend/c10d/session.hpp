// The process's connection to the coordinator: one RankClient per logical rank, made after fork. Null outside capture.
#pragma once
#include <algorithm>
#include <chrono>
#include <string>

#include "backend/client/rank_client.hpp"
#include "core/deadline.hpp"

namespace prism {

RankClient* session_client();
// Throws, with rank and address, where the coordinator does not answer.
void session_connect(const std::string& address, int rank, int world_size);
void session_finish(const std::string& error_text);
// In a forked child: forgets the parent's connection without touching it.
void session_abandon();

// A program that sets a timeout this short may mean it to pass (in a test of who is there, say); it is kept, counted
// while no rank waits for its turn. Longer ones guard against hangs, and deadlocks are found without them.
inline constexpr std::chrono::seconds kShortTimeout{60};
inline bool is_short(std::chrono::milliseconds timeout) { return timeout.count() > 0 && timeout < kShortTimeout; }

// Until when a rank under capture waits for something whose own timeout is `timeout`: that where it is short, otherwise
// not less than half an hour, because wall time says little about a rank that shares its slot.
inline Deadline capture_deadline(std::chrono::milliseconds timeout) {
  using std::chrono::minutes;
  if (is_short(timeout)) return Deadline::after(timeout);
  return Deadline::after(std::clamp<std::chrono::milliseconds>(timeout, minutes(30), std::chrono::hours(24 * 365)));
}

// Whether this process has initialised an accelerator.
void session_note_device_use();
bool session_uses_device();

// Futures of operations under capture that were handed out and are not complete.
void future_handed_out();
void future_completed();
bool futures_outstanding();

// c10d's edge: errors become torch.distributed's exceptions.
[[noreturn]] void throw_distributed(const Error& error);
[[noreturn]] void throw_store(const Error& error);

}  // namespace prism
