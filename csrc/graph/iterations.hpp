// Training iterations found by periodicity of the communication structure, and agreed between the ranks of a job.
#pragma once
#include <string_view>

#include "graph/builder.hpp"

namespace prism {

// The name of compute spans in which an optimizer steps.
inline constexpr std::string_view kOptimizerSpan = "optimizer";

// The repetitions of one rank: the first communication (index into comms) of each, ascending. Fewer than two is none.
struct Periods {
  std::vector<std::uint32_t> first_comm;
  bool communicates = false;  // a rank without communication has no say in an agreement
};

// The heaviest repetition in the rank's sequence of communications, and where its period occurs once more apart from it
// (the iterations of another epoch); set-up before it and another ending after it are left out. What tells tokens
// apart, finest first, as long as the finer ones explain nearly as much of the run: communications and waits in order
// of time; communications; communications without the sizes that data decide (MoE). Where optimizers are seen to step,
// a repetition that is no iteration (micro-batches of a single one) does not count.
Periods find_periods(const RankRecord& record);

// Gives all ranks the same number of iterations: the smallest that a rank found. A rank that found m times as many
// repeats m times in an iteration (one all-reduce per equal bucket, say); a remainder is set-up that looks alike. When
// a rank that communicates found none, none has iterations.
void agree_on_iterations(std::vector<Periods>& ranks);

// First node of each iteration: on the lane that communicates most, what follows the last communication or optimizer
// step before it.
std::vector<std::uint32_t> iteration_marks(const RankRecord& record, const Periods& periods);

}  // namespace prism
