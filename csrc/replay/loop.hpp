// Beyond the record: the iterations with which it ends are repeated, in the same order, until the job is over.
//
// The record of each rank has three regions: what is before the period; the period, which is the last k iterations,
// where they are a repetition of the k before them; and what is after. A rank goes through the period again and again,
// in rounds; round 0 is the one of the record. What a node of the period needs from the same round, or from the round
// before, it needs in each; what was there once and for all before the period, it has. The numbers of collectives and
// messages count on. What is after the period follows the last round, if the job ends.
//
// Communications have numbers beyond those of the record: where a class has n in its record, of which the period has c,
// the j-th of the period (as they are numbered in the record) is n + (q - 1) c + j in round q > 0.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "replay/job.hpp"

namespace prism::engine {

struct LoopOptions {
  // Iterations of the whole job, recorded and repeated. Nothing: without end.
  std::optional<int> iterations = {};
  // The period: the iterations [first, second) of the record. Nothing: it is found.
  std::optional<std::pair<int, int>> period = {};
  // Compute spans and issues of repeated iterations last as they do in one that the rank draws of its own iterations of
  // this structure, without the first `warmup` ones (as calibration's samples do); transfers and waking up, as in the
  // period. Nothing: all as in the period.
  std::optional<std::uint64_t> seed = {};
  std::optional<int> warmup = {};  // by default 1, where there are more than two
};

class Loop {
 public:
  static constexpr std::int64_t kEndless = INT64_MAX;

  // kInvalidInput: the job is not periodic, and where it is not; ranks whose communications in a period do not meet;
  // iterations that are no whole number of periods.
  static Result<Loop> make(const Job& job, const LoopOptions& options);

  int first() const { return first_; }    // iteration of the period
  int length() const { return length_; }  // iterations
  std::int64_t rounds() const { return rounds_; }
  // Rounds until the end of this iteration. kInvalidInput: that is no whole number of them, or none.
  Result<std::int64_t> rounds_of(int iterations) const;
  const std::vector<ClassProgram>& programs() const { return programs_; }  // [classes]

  // Of a class: which communication of the record a number stands for, and in which round; and back (kNone: that is
  // beyond 2^32 - 2).
  std::pair<std::uint32_t, std::uint32_t> place(int cls, std::uint32_t number) const;
  std::uint32_t number(int cls, std::uint32_t comm, std::uint32_t round) const;
  // Of a rank's collectives in one group, ascending, or messages of one kind: the recorded sequence number that `seq`
  // repeats, and in which of `rounds`.
  static std::pair<std::int64_t, std::uint32_t> recorded(const std::vector<CommPlan>& plans,
                                                         std::span<const std::uint32_t> comms, std::int64_t seq,
                                                         std::int64_t rounds);

  // The iteration of the record in whose durations a rank goes through one of the period again, which begins with this
  // step; and how long a step lasts in it.
  std::uint32_t repetition(int cls, int rank, std::uint32_t round, const Step& step) const;
  std::int64_t duration(int cls, std::uint32_t repetition, const Step& step,
                        std::span<const std::int64_t> durations) const;

 private:
  struct OfClass {
    std::vector<std::uint32_t> comms;                     // of the period
    std::vector<std::uint32_t> period_place;              // [comms of the record] among them
    std::vector<std::vector<std::uint32_t>> pools;        // [iterations of the period] repetitions to draw from
    std::vector<std::vector<std::uint32_t>> nodes;        // [iterations] by Step::place, of those
    std::uint32_t open_span = kNone, open_model = kNone;  // nodes
  };
  Result<void> find_period(const Job& job, const LoopOptions& options);
  Result<void> check_that_ranks_meet(const Job& job) const;

  int first_ = 0, length_ = 0;
  std::int64_t rounds_ = kEndless;
  std::optional<std::uint64_t> seed_;
  std::vector<ClassProgram> programs_;
  std::vector<OfClass> classes_;
};

}  // namespace prism::engine
