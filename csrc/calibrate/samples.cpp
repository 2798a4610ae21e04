#include "calibrate/samples.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>

namespace prism::calibration {
namespace {

class Samples {
 public:
  Samples(const Plan& plan, const Sampling& sampling, const engine::Durations& medians, std::uint64_t seed, int count)
      : times(static_cast<std::size_t>(count)), plan_(plan), sampling_(sampling), medians_(medians), seed_(seed) {}

  Result<void> run(int threads) {
    std::vector<std::thread> others;
    try {
      for (int i = 1; i < threads; ++i) others.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // No more threads to be had: those that there are do the work.
    }
    work();
    for (auto& other : others) other.join();
    if (error_) return *error_;
    return {};
  }

  std::vector<std::vector<std::int64_t>> times;  // [samples][counted iterations]

 private:
  // One thread's share. Balanced ways depend on the order in which a topology is asked for them: every thread first
  // executes the medians, which ask for all.
  void work() {
    auto executor = Executor::make(plan_);
    auto ready = executor ? Result<void>() : Result<void>(executor.error());
    if (ready && plan_.network) ready = executor->execute(medians_);
    if (!ready) return fail(-1, ready.error());
    engine::Durations durations(*plan_.job);
    for (int sample = next_++; sample < static_cast<int>(times.size()); sample = next_++) {
      sampling_.draw(seed_, sample, durations);
      if (auto done = executor->execute(durations); !done) return fail(sample, done.error());
      times[static_cast<std::size_t>(sample)] = executor->iteration_times(durations);
    }
  }
  void fail(int sample, const Error& what) {
    const std::lock_guard lock(mutex_);
    if (!error_ || sample < failed_) failed_ = sample, error_ = what;
    next_ = static_cast<int>(times.size());
  }

  const Plan& plan_;
  const Sampling& sampling_;
  const engine::Durations& medians_;
  const std::uint64_t seed_;
  std::atomic<int> next_ = 0;
  std::mutex mutex_;
  int failed_ = 0;  // the lowest sample that did
  std::optional<Error> error_;
};

}  // namespace

Result<std::vector<std::vector<std::int64_t>>> run_samples(const Plan& plan, const Sampling& sampling,
                                                           const engine::Durations& medians, std::uint64_t seed,
                                                           int samples, int threads) {
  const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  Samples all(plan, sampling, medians, seed, samples);
  PRISM_RETURN_IF_ERROR(all.run(std::min(threads > 0 ? threads : cores, samples)));
  return std::move(all.times);
}

}  // namespace prism::calibration
