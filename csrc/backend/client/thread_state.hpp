// What a thread of this process does right now, as the system sees it. Only ever looked at, never hooked.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace prism {

enum class ThreadState {
  kGone,     // has ended
  kRunning,  // on a processor, or about to be
  kTimed,    // sleeps with a time limit
  kForever,  // waits for another thread (a futex) without a limit
  kServing,  // waits for events (epoll) without a limit: I/O threads of libraries
  kOther,    // in another system call, or not known
};

pid_t this_thread();
// A thread that takes no signals: they are for the program's own.
std::thread start_thread(std::function<void()> body);
ThreadState thread_state(pid_t thread);
std::vector<pid_t> threads_of_this_process();
// Processor time used so far, in ns; 0 when the thread is gone.
std::int64_t cpu_time_of(pid_t thread);
std::int64_t cpu_time_of_this_process();
// How often it has gone to sleep by itself; 0 when the thread is gone.
std::uint64_t sleeps_of(pid_t thread);

}  // namespace prism
