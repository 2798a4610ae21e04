// Parts of a job that have nothing to do with each other.
#pragma once
#include <vector>

#include "replay/job.hpp"
#include "replay/network_options.hpp"

namespace prism::engine {

// The recorded ranks, cut where no communication and nothing of the network is shared between the parts, each of some
// hundred ranks or more where the job has as many: one part after the other stays in the processor's cache, where all
// at once do not (16,384 ranks in 16 parts take a third of the time). Ascending within a part; `network`: of the
// replay, or nullptr.
std::vector<std::vector<int>> independent_parts(const Job& job, const NetworkOptions* network);

}  // namespace prism::engine
