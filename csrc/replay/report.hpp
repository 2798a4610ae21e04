// From a finished replay to the figures that people read.
#pragma once
#include "replay/engine.hpp"
#include "replay/replay.hpp"

namespace prism::engine {

ReplayReport make_report(const Job& job, Engine engine);

}  // namespace prism::engine
