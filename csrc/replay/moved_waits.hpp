// One rank whose waits move in its program order.
#pragma once
#include "graph/builder.hpp"
#include "replay/what_if.hpp"

namespace prism::engine {

// `record` is extract(graph, its rank). False where the edit moves none of its waits.
bool move_waits(const ExecutionGraph& graph, RankRecord& record, const OverlapEdit& edit);

}  // namespace prism::engine
