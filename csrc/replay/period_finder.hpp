// Which iterations of a rank class are repetitions of others, and what of it is repeated with a period.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replay/class_program.hpp"
#include "replay/job.hpp"

namespace prism::engine {

class PeriodFinder {
 public:
  // `open`: the last mark begins an iteration, whatever there is in it.
  PeriodFinder(const ClassView& view, const ClassPlan& plan, bool open);

  std::size_t iterations() const { return lanes_.size(); }
  // Whether a mark ends the last iteration. Else the program ends in it: what follows the last node that a repetition
  // has is after it, and its last compute span, Period::open_span, counts as no longer than the one in its place.
  bool closed() const { return closed_; }

  // The period of the iterations [first, first + length), which are repetitions of as many before: the same kinds of
  // nodes on each lane, communications that differ in sizes alone, waits and hand-overs for what is in the same
  // iterations, or in those before, or was there before both. Otherwise the first difference.
  std::optional<std::string> find(std::size_t first, std::size_t length, Period& period) const;
  // That of any iterations, in which nothing is waited for that was before them; else what that is.
  std::optional<std::string> take(std::size_t first, std::size_t length, Period& period) const;
  // Nodes of lanes of iteration i by Period::place, where it has the kinds of nodes and operations of an iteration of
  // the period; else none.
  std::vector<std::uint32_t> repetition(std::size_t i, std::size_t of, const Period& period) const;

 private:
  using Lanes = std::vector<std::vector<std::uint32_t>>;  // nodes
  enum Area : std::uint8_t { kEarlier, kPeriodBefore, kInPeriod, kLater };
  NodeKind kind(std::uint32_t node) const { return static_cast<NodeKind>(view_.node_kind[node]); }
  std::vector<std::uint32_t> posts(std::uint32_t issue) const;  // transfers
  std::optional<std::string> compare(std::size_t i, std::size_t earlier, std::vector<std::uint32_t>& before) const;
  bool same_communications(std::uint32_t issue, std::uint32_t earlier, std::vector<std::uint32_t>& before) const;
  bool same_sources(std::uint32_t node, const std::vector<Area>& area, const std::vector<std::uint32_t>& before,
                    std::vector<bool>& carried) const;
  Period laid_out(std::size_t first, std::size_t length, const std::vector<bool>& repeated) const;
  void note_open_span(Period& period) const;

  const ClassView& view_;
  const ClassPlan& plan_;
  std::vector<Lanes> lanes_;    // [iterations] transfers left out
  std::vector<int> iteration_;  // [nodes]
  bool closed_ = true;
  std::uint32_t open_span_ = kNone, open_model_ = kNone;
};

}  // namespace prism::engine
