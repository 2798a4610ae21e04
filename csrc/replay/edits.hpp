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
  static Result<Durations> make(const Job& job, const std::vector<SpanEdit>& edits);
  std::span<const std::int64_t> operator[](int rank) const {
    const auto& edited = edited_[rank];
    return edited.empty() ? job_->timing(rank).duration_ns : std::span<const std::int64_t>(edited);
  }

 private:
  const Job* job_ = nullptr;
  std::vector<std::vector<std::int64_t>> edited_;  // [world size]
};

}  // namespace prism::engine
