// A network for the communication of a replay, and what it was used for.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/vocabulary.hpp"
#include "simulate/network.hpp"

namespace prism {

struct NetworkOptions {
  const simulate::Topology* topology = nullptr;  // outlives the replay; used by nobody else meanwhile
  simulate::NetworkKind kind = simulate::NetworkKind::kFlowLevel;
  std::string program = {};  // of kPacketLevel
  // By operation (any of its variants), as simulate::make_schedule() names them. For others what the progress model's
  // backend does, see traffic.cpp.
  std::map<Op, std::string> algorithms = {};
  int per_node = 1;                          // consecutive ranks on one node, for the algorithm "hierarchical"
  std::vector<std::int32_t> placement = {};  // [world size] endpoint of each rank; empty: rank i is endpoint i
  bool use = true;                           // count what links carry; nothing that goes on for long needs to
  int bins = 0;        // > 0: bytes of each link over time, in `bins` to 2 x `bins` equal parts of the run
  bool flows = false;  // keep each message's times
};

struct NetworkUse {
  std::vector<std::int64_t> link_bytes, link_busy_ps;  // [links]
  std::int64_t bin_ps = 0;
  std::vector<std::vector<double>> link_bytes_by_bin;  // [links]; up to the last bin in which anything passed
  // Messages in the order in which they left: from ready to leave to delivered.
  struct Flows {
    std::vector<std::int64_t> start_ps, end_ps, bytes;
    std::vector<std::int32_t> source, destination;  // ranks
    std::vector<std::int32_t> comm;  // communication of the source (index in its class); -1: it is not in the graph
  } flows;
};

}  // namespace prism
