// The flows under way by (time of their end, slot), where the times change often: a heap that knows each one's place.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "simulate/picoseconds.hpp"

namespace prism::simulate {

class FinishHeap {
 public:
  using Slot = std::uint32_t;
  bool empty() const { return heap_.empty(); }
  Slot top() const { return heap_.front().slot; }
  Picoseconds next() const { return heap_.empty() ? kNever : heap_.front().at; }

  void put(Slot slot, Picoseconds at) {  // in, or to another time
    if (slot >= place_.size()) place_.resize(slot + 1, kOut);
    if (place_[slot] == kOut) {
      place_[slot] = static_cast<std::uint32_t>(heap_.size());
      heap_.push_back({at, slot});
    } else {
      heap_[place_[slot]].at = at;
    }
    down(up(place_[slot]));
  }
  void remove(Slot slot) {
    const auto hole = std::exchange(place_[slot], kOut);
    const auto last = heap_.back();
    heap_.pop_back();
    if (hole == heap_.size()) return;
    set(hole, last);
    down(up(hole));
  }

 private:
  static constexpr std::uint32_t kOut = 0xffffffffu, kWays = 4;
  struct Entry {
    Picoseconds at;
    Slot slot;
    bool operator<(const Entry& other) const { return at != other.at ? at < other.at : slot < other.slot; }
  };
  void set(std::uint32_t index, Entry entry) {
    heap_[index] = entry;
    place_[entry.slot] = index;
  }
  std::uint32_t up(std::uint32_t index) {
    const auto entry = heap_[index];
    while (index > 0) {
      const auto parent = (index - 1) / kWays;
      if (!(entry < heap_[parent])) break;
      set(index, heap_[parent]);
      index = parent;
    }
    set(index, entry);
    return index;
  }
  void down(std::uint32_t index) {
    const auto entry = heap_[index];
    for (;;) {
      const auto first = index * kWays + 1;
      if (first >= heap_.size()) break;
      auto least = first;
      for (auto child = first + 1; child < first + kWays && child < heap_.size(); ++child)
        if (heap_[child] < heap_[least]) least = child;
      if (!(heap_[least] < entry)) break;
      set(index, heap_[least]);
      index = least;
    }
    set(index, entry);
  }
  std::vector<Entry> heap_;
  std::vector<std::uint32_t> place_;  // by slot
};

}  // namespace prism::simulate
