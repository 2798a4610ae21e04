// From a finished replay to the figures that people read.
#pragma once
#include "replay/execution.hpp"
#include "replay/replay.hpp"

namespace prism::engine {

ReplayReport make_report(const Job& job, Execution execution, bool with_analysis = false);

}  // namespace prism::engine
