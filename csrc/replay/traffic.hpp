// What a communication of a graph moves, and by which algorithm, in the terms of csrc/simulate.
#pragma once
#include "replay/in_flight.hpp"
#include "replay/replay.hpp"
#include "simulate/collectives.hpp"

namespace prism::engine {

struct Traffic {
  simulate::CollectiveShape shape;
  std::string algorithm;
  simulate::Manner manner = simulate::Manner::kInSteps;
};

// Whether the manner of an operation of this kind is kLaterFirst: Gloo's all-to-alls, and gathers of two, post what
// they send before what they receive.
bool is_later_first(Op kind, std::uint32_t members, const ProgressModel& model, const NetworkOptions& options);
Traffic traffic_of(const InFlight& in_flight, const Meeting& meeting, const NetworkOptions& options);
// Of an entry: the larger of what its member puts in and gets out.
std::int64_t bytes_of(const Job& job, std::uint32_t entry);
// "all_reduce 7 of group 'dp'"
std::string describe(const Job& job, std::uint32_t entry);

}  // namespace prism::engine
