#include "replay/matching.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>

namespace prism::engine {

bool matches(const std::optional<std::string>& pattern, std::string_view name) {
  return !pattern || *pattern == name || fnmatch(pattern->c_str(), std::string(name).c_str(), 0) == 0;
}

bool matches(const std::vector<RankRange>& ranks, const std::optional<int>& cls, const ExecutionGraph& graph,
             int rank) {
  if (cls && *cls != graph.class_of(rank)) return false;
  return ranks.empty() || std::any_of(ranks.begin(), ranks.end(), [&](const RankRange& range) {
           return range.first <= rank && rank <= range.last;
         });
}

int iteration_of(const ClassView& view, TimingView timing, std::uint32_t node) {
  auto marks = view.mark_node;
  auto begun = std::partition_point(marks.begin(), marks.end(), [&](std::uint32_t mark) {
    return view.node_lane[mark] == view.node_lane[node] ? mark <= node : timing.start_ns[mark] <= timing.start_ns[node];
  });
  return static_cast<int>(begun - marks.begin()) - 1;
}

std::int64_t edited(std::int64_t duration_ns, double scale, std::int64_t add_ns,
                    const std::optional<std::int64_t>& set_ns) {
  const double changed = static_cast<double>(set_ns.value_or(duration_ns)) * scale + static_cast<double>(add_ns);
  return changed > 9e18 ? -1 : std::max<std::int64_t>(0, std::llround(changed));
}

std::string describe(const std::vector<RankRange>& ranks, const std::optional<int>& cls,
                     const std::optional<int>& iteration) {
  std::string text;
  for (const auto& [first, last] : ranks)
    text += fmt::format("{}{}", text.empty() ? (ranks.size() == 1 && first == last ? " rank " : " ranks ") : ",",
                        first == last ? std::to_string(first) : fmt::format("{}-{}", first, last));
  if (cls) text += fmt::format(" class {}", *cls);
  if (iteration) text += fmt::format(" iteration {}", *iteration);
  return text;
}

}  // namespace prism::engine
