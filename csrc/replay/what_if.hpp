// What-ifs: a job in which spans, transfers or waits are others. What is not given matches all; names are patterns as
// of file names (`*`, `?`, `[ab]`), or exact.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace prism {

struct RankRange {
  int first = 0, last = 0;  // both included
};

// The duration d of every compute span that matches, or set_ns, becomes scale * d + add_ns. `node` names one node of
// one rank by its index and may also be an issue.
struct SpanEdit {
  std::optional<int> rank = {}, iteration = {};
  std::optional<std::string> name = {};
  std::optional<std::uint32_t> node = {};  // needs `rank`
  double scale = 1.0;
  std::int64_t add_ns = 0;
  std::vector<RankRange> ranks = {};  // none: all
  std::optional<int> cls = {};
  std::optional<std::int64_t> set_ns = {};
};

// The same for what a transfer takes once it can start, by the record or the closed form. A collective in which a rank
// that matches takes part changes for all its members, a message for both ends.
struct CommunicationEdit {
  std::vector<RankRange> ranks = {};
  std::optional<int> cls = {}, iteration = {};
  std::optional<std::string> op = {}, group = {};
  double scale = 1.0;
  std::int64_t add_ns = 0;
  std::optional<std::int64_t> set_ns = {};
};

// Where the ranks that match wait for a collective:
//   kIssue         right after its issue, on the issuing lane: nothing overlaps with it any more
//   kIterationEnd  at the end of the iteration in which they wait for it, on the lane on which they do
//   kSpan          there before the next compute span called `span` of the same iteration
// The wait takes the time that it took to wake up along. Collectives that nobody waits for, or (kSpan) behind whose
// wait there is no such span, are left alone. Data are not looked at: whoever lets a collective overlap says that
// nothing needs its result until then.
struct OverlapEdit {
  enum class Until { kIssue, kIterationEnd, kSpan } until = Until::kIssue;
  std::string span = {};
  std::vector<RankRange> ranks = {};
  std::optional<int> cls = {}, iteration = {};
  std::optional<std::string> op = {}, group = {};
};

// The graph with the waits moved, edit after edit; its nodes are numbered anew. kInvalidInput: an edit that moves none.
Result<ExecutionGraph> overlapped(const ExecutionGraph& graph, const std::vector<OverlapEdit>& edits);

}  // namespace prism
