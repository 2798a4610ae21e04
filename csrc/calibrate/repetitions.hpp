// The iterations of a rank class, and which of them are repetitions of each other.
#pragma once
#include <cstdint>
#include <vector>

#include "replay/job.hpp"

namespace prism::calibration {

struct Iteration {
  // Iterations of one structure (the same kinds of nodes and operations, lane by lane) share a number.
  std::uint32_t structure = 0;
  // Compute spans and issues, lane by lane in program order: node k of one iteration stands in the place of node k of
  // every other one of its structure.
  std::vector<std::uint32_t> spans;
};

struct Repetitions {
  std::vector<Iteration> iterations;
  std::uint32_t structures = 0;
  // Whether a mark ends the last iteration. Where none does, the program also leaves the loop in the iteration's last
  // compute span, which therefore counts as no longer than another one in its place.
  bool closed = true;
  std::uint32_t open_span = engine::kNone;  // place in spans of the last iteration; kNone
  std::size_t open_model = 0;               // the iteration that has the other one
};

// Of a class; see engine::iterations_by_cause().
Repetitions find_repetitions(const engine::Job& job, int cls);

}  // namespace prism::calibration
