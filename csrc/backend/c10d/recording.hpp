// What the adapter tells the recorder, and the bookkeeping that c10d makes necessary: waits inside waits, and waits in
// futures, which cannot be hooked. All of it is skipped while nothing is recorded.
#pragma once
#include <cstdint>
#include <exception>
#include <vector>

#include "backend/c10d/call.hpp"
#include "backend/recorder/recorder.hpp"

namespace prism {

// The issue node of one operation: opens where it is made, closes with the scope; none, where an exception leaves the
// scope. Of its own thread.
class IssueScope {
 public:
  IssueScope(const Call& call, const GroupInfo& group, std::int32_t batch);
  ~IssueScope();
  IssueScope(const IssueScope&) = delete;
  IssueScope& operator=(const IssueScope&) = delete;
  CommId comm() const { return comm_; }  // kNoComm while nothing is recorded

 private:
  CommId comm_ = kNoComm;
  const int exceptions_ = std::uncaught_exceptions();
};

// A wait of the calling thread; scopes inside another one belong to the outermost, which is the one recorded.
class WaitScope {
 public:
  WaitScope();
  ~WaitScope();
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;
  void add(CommId comm);

 private:
  Recorder* recorder_;
};

// While it lives, what this thread does is not the program's: its waits, spans and allocations are not recorded. Gloo's
// own threads are in no other state, but for the callbacks that they run.
class NotOfProgram {
 public:
  NotOfProgram();
  ~NotOfProgram();
  NotOfProgram(const NotOfProgram&) = delete;
  NotOfProgram& operator=(const NotOfProgram&) = delete;
};
// The reverse.
class OfProgram {
 public:
  OfProgram();
  ~OfProgram();
  OfProgram(const OfProgram&) = delete;
  OfProgram& operator=(const OfProgram&) = delete;

 private:
  const int others_;
};

// The recorder, for what this thread does now; nullptr also where that is not the program's.
Recorder* recorder_of_program();

// Completion of this member's part, now.
// `at_ns`: on the emulated clock; -1: now.
void record_transfer_done(CommId comm, std::int64_t at_ns = -1);

// Runs `complete`, which runs a future's callbacks: what they do hangs on `cause`.
template <typename Complete>
void record_callbacks(CommId cause, Complete complete) {
  auto* recorder = cause == kNoComm ? nullptr : Recorder::active();
  if (recorder) recorder->begin_callback(cause);
  {
    const OfProgram callbacks;
    complete();
  }
  if (recorder && Recorder::active() == recorder) recorder->end_callback();
}

// Communications whose future was handed out and which nobody has waited for yet. By program order, not by completion,
// so that two runs of a program give the same graph.
void future_taken(CommId comm, const void* future);
void comm_waited(CommId comm);
std::vector<CommId> take_unwaited_futures();
// Of exactly this future; of all, where it is none of ours (a child made by then()).
std::vector<CommId> take_unwaited_futures(const void* future);

}  // namespace prism
