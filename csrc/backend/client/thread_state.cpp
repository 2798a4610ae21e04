#include "backend/client/thread_state.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace prism {
namespace {

std::int64_t read_clock(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

pid_t this_thread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

std::thread start_thread(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {  // also where the system has no thread to give
    const sigset_t& mask;
    ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } restore{before};
  return std::thread(std::move(body));
}

// /proc/self/task/TID/syscall: "running", or the call's number and its arguments in hexadecimal.
ThreadState thread_state(pid_t thread) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/syscall", thread);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    std::snprintf(path, sizeof path, "/proc/self/task/%d", thread);
    return access(path, F_OK) == 0 ? ThreadState::kOther : ThreadState::kGone;
  }
  char text[256];
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  if (size <= 0) return ThreadState::kGone;
  text[size] = '\0';
  if (std::strncmp(text, "running", 7) == 0) return ThreadState::kRunning;
  char* next = text;
  const long number = std::strtol(next, &next, 10);
  unsigned long args[6];
  for (unsigned long& arg : args) arg = std::strtoul(next, &next, 16);
  switch (number) {
    case SYS_futex: {
      const auto command = args[1] & FUTEX_CMD_MASK;
      const bool waits = command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET || command == FUTEX_LOCK_PI;
      return !waits ? ThreadState::kOther : args[3] == 0 ? ThreadState::kForever : ThreadState::kTimed;
    }
    case SYS_clock_nanosleep:
    case SYS_nanosleep:
      return ThreadState::kTimed;
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
#endif
    case SYS_epoll_pwait:
      return static_cast<int>(args[3]) < 0 ? ThreadState::kServing : ThreadState::kTimed;
    default:
      return ThreadState::kOther;
  }
}

std::vector<pid_t> threads_of_this_process() {
  std::vector<pid_t> threads;
  DIR* folder = opendir("/proc/self/task");
  if (folder == nullptr) return threads;
  while (const dirent* entry = readdir(folder))
    if (entry->d_name[0] != '.') threads.push_back(static_cast<pid_t>(std::atoi(entry->d_name)));
  closedir(folder);
  return threads;
}

std::int64_t cpu_time_of(pid_t thread) {
  // The kernel's encoding of a thread's processor clock (include/linux/posix-timers_types.h: ~TID << 3, per thread,
  // scheduler's time).
  constexpr unsigned kPerThread = 4, kScheduler = 2;
  return read_clock(static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) | kPerThread | kScheduler));
}

std::int64_t cpu_time_of_this_process() { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

std::uint64_t sleeps_of(pid_t thread) {
  char path[64], text[4096];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/status", thread);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  if (size <= 0) return 0;
  text[size] = '\0';
  const char* line = std::strstr(text, "\nvoluntary_ctxt_switches:");
  return line == nullptr ? 0 : std::strtoull(std::strchr(line, ':') + 1, nullptr, 10);
}

}  // namespace prism
