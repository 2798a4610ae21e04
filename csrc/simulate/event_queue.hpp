// Events by (time, order of posting): equal times come out as they were put in, so that every run is the same.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "simulate/picoseconds.hpp"
#include "simulate/radix_heap.hpp"

namespace prism::simulate {

template <typename Event>
class EventQueue {
 public:
  void post(Picoseconds at, Event event) {
    std::uint32_t slot = static_cast<std::uint32_t>(events_.size());
    if (free_.empty()) {
      events_.push_back(std::move(event));
    } else {
      slot = free_.back();
      free_.pop_back();
      events_[slot] = std::move(event);
    }
    heap_.push({at, posted_++, slot});
  }
  Picoseconds next() const { return heap_.next(); }
  Event pop() {
    const auto slot = heap_.pop().slot;
    free_.push_back(slot);
    return std::move(events_[slot]);
  }

 private:
  struct Entry {
    Picoseconds at;
    std::uint64_t order;
    std::uint32_t slot;
    bool operator<(const Entry& other) const { return at != other.at ? at < other.at : order < other.order; }
  };
  RadixHeap<Entry> heap_;
  std::vector<Event> events_;  // by slot, so that entries are small where they move
  std::vector<std::uint32_t> free_;
  std::uint64_t posted_ = 0;
};

}  // namespace prism::simulate
