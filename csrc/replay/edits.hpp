// What-ifs: the durations that a replay uses, after ReplayOptions::edits.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "replay/job.hpp"
#include "replay/replay.hpp"

namespace prism::engine {

// Durations of a rank's nodes: the graph's own where nothing was edited.
class Durations {
 public:
  explicit Durations(const Job& job) : job_(&job), edited_(job.ranks.size()) {}
  static Result<Durations> make(const Job& job, const std::vector<SpanEdit>& edits);
  // To be changed; at first the graph's.
  std::vector<std::int64_t>& own(int rank) {
    auto& edited = edited_[rank];
    if (edited.empty()) edited.assign(job_->timing(rank).duration_ns.begin(), job_->timing(rank).duration_ns.end());
    return edited;
  }
  std::span<const std::int64_t> operator[](int rank) const {
    const auto& edited = edited_[rank];
    return edited.empty() ? job_->timing(rank).duration_ns : std::span<const std::int64_t>(edited);
  }

 private:
  const Job* job_;
  std::vector<std::vector<std::int64_t>> edited_;  // [world size]
};

}  // namespace prism::engine
