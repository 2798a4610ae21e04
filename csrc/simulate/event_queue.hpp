// Events by (time, order of posting): equal times come out as they were put in, so that every run is the same.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "simulate/picoseconds.hpp"

namespace prism::simulate {

template <typename Event>
class EventQueue {
 public:
  void post(Picoseconds at, Event event) {
    heap_.push_back({at, posted_++, std::move(event)});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }
  Picoseconds next() const { return heap_.empty() ? kNever : heap_.front().at; }
  Event pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Event event = std::move(heap_.back().event);
    heap_.pop_back();
    return event;
  }

 private:
  struct Entry {
    Picoseconds at;
    std::uint64_t order;
    Event event;
  };
  static bool later(const Entry& a, const Entry& b) { return a.at != b.at ? a.at > b.at : a.order > b.order; }
  std::vector<Entry> heap_;
  std::uint64_t posted_ = 0;
};

}  // namespace prism::simulate
