// Sampled executions: what each rank draws for each of its iterations.
#pragma once
#include <cstdint>
#include <vector>

#include "calibrate/calibrate.hpp"
#include "calibrate/repetitions.hpp"
#include "replay/edits.hpp"

namespace prism::calibration {

class Sampling {
 public:
  // Finds the iterations of every class. Those of warm-up, the first ones of each rank, keep their own durations: so
  // many as are asked for, else as the trace says that there are, one by default, and none where few are left.
  // kInvalidInput: no iteration would be left, durations that add up to more than the clock can show.
  static Result<Sampling> make(const engine::Job& job, std::optional<int> asked, std::optional<int> known);

  int warmup() const { return warmup_; }
  int iterations() const { return iterations_; }  // that all ranks with marks have; 0: nothing is marked
  // Those whose times count: after warm-up, and ended by a mark where there are such.
  int first_counted() const { return warmup_; }
  int counted() const { return counted_; }
  bool varies() const { return varies_; }  // some rank has two repetitions of one structure

  // Each rank draws for each iteration after warm-up one of its own whole repetitions of that structure. What is drawn
  // depends on the seed, the sample, the rank and the iteration alone.
  void draw(std::uint64_t seed, int sample, engine::Durations& durations) const;
  // Each span takes its median over the repetitions.
  void medians(engine::Durations& durations) const;
  // Computing of each rank in each iteration after warm-up.
  Quantiles busy() const;
  // The duration of span `place` of a rank's iteration as a repetition.
  std::int64_t duration(int rank, int iteration, std::size_t place) const;
  // Of a rank: repetitions [structures][iterations] after warm-up.
  std::vector<std::vector<int>> pools(int rank) const;
  const Repetitions& repetitions(int rank) const { return classes_[job_->ranks[rank].cls]; }

 private:
  explicit Sampling(const engine::Job& job) : job_(&job) {}
  Result<void> check_extent() const;

  const engine::Job* job_;
  std::vector<Repetitions> classes_;
  std::vector<std::vector<std::vector<int>>> pools_;  // [classes][structures]
  int warmup_ = 0, iterations_ = 0, counted_ = 0;
  bool varies_ = false;
};

}  // namespace prism::calibration
