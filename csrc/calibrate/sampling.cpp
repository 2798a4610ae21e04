#include "calibrate/sampling.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "replay/checks.hpp"
#include "replay/draw.hpp"

namespace prism::calibration {

Result<Sampling> Sampling::make(const engine::Job& job, std::optional<int> asked, std::optional<int> known) {
  Sampling sampling(job);
  for (int cls = 0; cls < static_cast<int>(job.classes.size()); ++cls)
    sampling.classes_.push_back(find_repetitions(job, cls));
  std::size_t common = SIZE_MAX;
  for (const auto& one : sampling.classes_)
    if (!one.iterations.empty()) common = std::min(common, one.iterations.size());
  if (common != SIZE_MAX) sampling.iterations_ = static_cast<int>(common);
  // A trace of one or two iterations is better drawn from with the first than not at all.
  const int usual = known ? (*known < sampling.iterations_ ? *known : 0) : (sampling.iterations_ > 2 ? 1 : 0);
  sampling.warmup_ = asked.value_or(usual);
  if (sampling.warmup_ < 0 || sampling.warmup_ >= std::max(1, sampling.iterations_))
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("{} iterations of warm-up; accepted: 0 to {}, as the trace has {}", sampling.warmup_,
                             std::max(0, sampling.iterations_ - 1), sampling.iterations_)};
  bool open = false;
  for (const auto& one : sampling.classes_) {
    open |= one.iterations.size() == common && !one.closed;
    auto& pools = sampling.pools_.emplace_back(one.structures);
    for (auto i = static_cast<std::size_t>(sampling.warmup_); i < one.iterations.size(); ++i) {
      auto& pool = pools[one.iterations[i].structure];
      pool.push_back(static_cast<int>(i));
      sampling.varies_ |= pool.size() > 1;
    }
  }
  sampling.counted_ = sampling.iterations_ - sampling.warmup_;
  if (open && sampling.counted_ > 1) --sampling.counted_;
  PRISM_RETURN_IF_ERROR(sampling.check_extent());
  return sampling;
}

// Whatever is drawn: the record, and the longest iteration in the place of each.
Result<void> Sampling::check_extent() const {
  engine::Extent extent;
  for (int rank = 0; rank < static_cast<int>(job_->ranks.size()); ++rank) {
    if (job_->ranks[rank].cls < 0) continue;
    extent.begins(*job_, rank);
    extent.takes(job_->timing(rank).duration_ns);
    double longest = 0;
    const auto& iterations = repetitions(rank).iterations;
    for (int i = 0; i < static_cast<int>(iterations.size()); ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < iterations[i].spans.size(); ++k) sum += static_cast<double>(duration(rank, i, k));
      longest = std::max(longest, sum);
    }
    extent.takes(longest * static_cast<double>(iterations.size()));
  }
  return extent.check();
}

std::int64_t Sampling::duration(int rank, int iteration, std::size_t place) const {
  const auto& own = repetitions(rank);
  const auto durations = job_->timing(rank).duration_ns;
  const auto i = static_cast<std::size_t>(iteration);
  const auto span = durations[own.iterations[i].spans[place]];
  if (place != own.open_span || i + 1 != own.iterations.size()) return span;
  return std::min(span, durations[own.iterations[own.open_model].spans[place]]);
}

void Sampling::draw(std::uint64_t seed, int sample, engine::Durations& durations) const {
  for (int rank = 0; rank < static_cast<int>(job_->ranks.size()); ++rank) {
    if (job_->ranks[rank].cls < 0) continue;
    const auto& iterations = repetitions(rank).iterations;
    const auto& pools = pools_[job_->ranks[rank].cls];
    for (auto i = static_cast<std::size_t>(warmup_); i < iterations.size(); ++i) {
      const auto& pool = pools[iterations[i].structure];
      if (pool.size() < 2) continue;
      const int from = pool[engine::drawn(seed, sample, rank, i) % pool.size()];
      auto& own = durations.own(rank);
      const auto& spans = iterations[i].spans;
      for (std::size_t k = 0; k < spans.size(); ++k) own[spans[k]] = duration(rank, from, k);
    }
  }
}

void Sampling::medians(engine::Durations& durations) const {
  std::vector<std::int64_t> values;
  for (int rank = 0; rank < static_cast<int>(job_->ranks.size()); ++rank) {
    if (job_->ranks[rank].cls < 0) continue;
    const auto& iterations = repetitions(rank).iterations;
    for (const auto& pool : pools_[job_->ranks[rank].cls]) {
      if (pool.size() < 2) continue;
      auto& own = durations.own(rank);
      for (std::size_t k = 0; k < iterations[pool.front()].spans.size(); ++k) {
        values.clear();
        for (const int i : pool) values.push_back(duration(rank, i, k));
        const auto median = quantile(values, 0.5);
        for (const int i : pool) own[iterations[i].spans[k]] = median;
      }
    }
  }
}

Quantiles Sampling::busy() const {
  std::vector<std::int64_t> sums;
  for (int rank = 0; rank < static_cast<int>(job_->ranks.size()); ++rank) {
    if (job_->ranks[rank].cls < 0) continue;
    const auto& iterations = repetitions(rank).iterations;
    for (int i = warmup_; i < static_cast<int>(iterations.size()); ++i) {
      std::int64_t sum = 0;
      for (std::size_t k = 0; k < iterations[i].spans.size(); ++k)
        if (job_->view(rank).node_kind[iterations[i].spans[k]] == static_cast<std::uint8_t>(NodeKind::kCompute))
          sum += duration(rank, i, k);
      sums.push_back(sum);
    }
  }
  return sums.empty() ? Quantiles{} : quantiles_of(std::move(sums));
}

std::vector<std::vector<int>> Sampling::pools(int rank) const { return pools_[job_->ranks[rank].cls]; }

}  // namespace prism::calibration
