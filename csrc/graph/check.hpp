// The checks that stand between a file (or a recorder) and everyone who trusts indices. Pure functions, any thread.
#pragma once
#include <fmt/format.h>

#include "graph/columns.hpp"

namespace prism {

// Where the checked values come from, for messages: "job.prism: class 3", and what an error there means.
struct Where {
  std::string place;
  ErrorCode code = ErrorCode::kCorruptFile;

  template <typename Value>
  Error bad(std::string_view field, std::size_t index, const Value& value, std::string_view accepted) const {
    return {code, fmt::format("{}: {}[{}] is {}; accepted: {}", place, field, index, value, accepted)};
  }
  Error bad(std::string text) const { return {code, place + ": " + std::move(text)}; }
  Where in(std::string_view part) const { return {fmt::format("{}: {}", place, part), code}; }
};

// What the indices of a class may refer to.
struct ClassLimits {
  std::size_t strings = 0;
  std::vector<std::size_t> group_sizes;  // [group slots]
  std::size_t peers = 0;                 // peer slots
};

// Everything that is as large as the job, not as its nodes: offsets, classes, groups, slots. O(ranks + members +
// slots).
Result<void> check_tables(const GraphHeader& header, const ColumnSet<View>& columns, const Where& where);
// One class: values in range, and no cycle in lane order and edges together. O(nodes + edges).
Result<void> check_structure(const ClassView& view, const ClassLimits& limits, const Where& where);
// One rank: times not negative, ends representable, nodes of a lane (but transfers, which overlap) in order of start.
Result<void> check_timing(const ClassView& view, const TimingView& timing, const Where& where);
Result<void> check_memory(const ClassView& view, const MemoryView& memory, const Where& where);

}  // namespace prism
