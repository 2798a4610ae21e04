// Private side of ExecutionGraph.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "graph/check.hpp"

namespace prism {

struct ExecutionGraph::Impl {
  GraphHeader header;
  ColumnSet<View> columns;
  std::shared_ptr<const void> storage;  // what the columns look into
  Where where;
  std::vector<ClassView> classes;
  std::vector<int> first_rank;   // [classes] lowest rank of each class: gives group sizes of its slots
  std::vector<int> first_timed;  // [classes] lowest rank that has times, or -1

  // Checks the tables, cuts the columns into classes.
  static Result<std::shared_ptr<const Impl>> create(GraphHeader header, ColumnSet<View> columns,
                                                    std::shared_ptr<const void> storage, Where where);

  Result<void> check_class(int cls) const;
  Result<void> check_rank(int rank) const;
  // From a builder, which checks what it adds.
  void trust_all() const;
  bool has_own_times(int rank) const { return columns.rank_timing_offset[rank + 1] > columns.rank_timing_offset[rank]; }
  // The rank whose times and memory stand for this one's.
  int measured(int rank) const;
  TimingView timing(int rank) const;
  MemoryView memory(int rank) const;
  template <typename T>
  static View<T> cut(View<T> column, View<std::uint64_t> offset, std::size_t owner) {
    return column.subspan(offset[owner], offset[owner + 1] - offset[owner]);
  }

 private:
  enum State : std::uint8_t { kUnchecked, kGood };
  // A failed check is repeated on each call, two threads may both run the first one: the outcome is the same.
  mutable std::unique_ptr<std::atomic<std::uint8_t>[]> class_state_, rank_state_;
};

}  // namespace prism
