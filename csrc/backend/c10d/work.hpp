// The Work objects that the routes hand out. A work that nobody keeps still completes.
#pragma once
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <vector>

#include "backend/c10d/route.hpp"
#include "backend/recorder/recorder.hpp"

namespace prism {

// `inner` with its waits and its completion recorded; everything else is inner's answer.
WorkPtr recorded_work(WorkPtr inner, std::vector<CommId> comms, c10d::OpType type);

}  // namespace prism
