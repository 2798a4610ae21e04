#include "backend/device/swap_thread.hpp"

#include <pthread.h>

#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

namespace prism {

struct SwapThread::State {
  struct Order {
    Action action;
    int pid;
    Done done;
  };
  const std::shared_ptr<DeviceSwap> swap;
  const int device;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Order> orders;
  bool started = false, busy = false, stopped = false;

  State(std::shared_ptr<DeviceSwap> swap, int device) : swap(std::move(swap)), device(device) {}

  Outcome carry_out(const Order& order) {
    Outcome outcome;
    if (order.action == Action::kMeasure) {
      outcome.after = swap->memory(device);
      return outcome;
    }
    if (order.action == Action::kSwapOut) outcome.before = swap->memory(device);
    const std::int64_t begin = now_ns();
    outcome.status = order.action == Action::kSwapOut ? swap->swap_out(order.pid) : swap->swap_in(order.pid);
    outcome.duration_ns = now_ns() - begin;
    outcome.after = swap->memory(device);
    return outcome;
  }

  void serve() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stopped || !orders.empty(); });
      if (stopped) return;
      const Order order = std::move(orders.front());
      orders.pop_front();
      busy = true;
      lock.unlock();
      const Outcome outcome = carry_out(order);
      lock.lock();
      busy = false;
      if (!stopped) order.done(outcome);
      changed.notify_all();
    }
  }
};

SwapThread::SwapThread(std::shared_ptr<DeviceSwap> swap, int device)
    : state_(std::make_shared<State>(std::move(swap), device)) {}

SwapThread::~SwapThread() { stop(Deadline::after(std::chrono::nanoseconds(0))); }

void SwapThread::run(Action action, int pid, Done done) {
  const std::lock_guard lock(state_->mutex);
  state_->orders.push_back({action, pid, std::move(done)});
  state_->changed.notify_all();
  if (std::exchange(state_->started, true)) return;
  sigset_t all, before;  // signals are for the threads that expect them
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([state = state_] { state->serve(); }).detach();
  } catch (const std::system_error& refused) {
    Outcome outcome;
    outcome.status = Error{ErrorCode::kIo, std::string("no thread for swapping could be started: ") + refused.what()};
    state_->orders.back().done(outcome);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void SwapThread::stop(Deadline deadline) {
  std::unique_lock lock(state_->mutex);
  state_->stopped = true;
  state_->orders.clear();
  state_->changed.notify_all();
  state_->changed.wait_until(lock, deadline.at(), [this] { return !state_->busy; });
}

}  // namespace prism
