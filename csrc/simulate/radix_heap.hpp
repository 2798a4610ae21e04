// A priority queue for times that do not go back: entries lie in buckets by the highest bit in which their time differs
// from that of the last one that came out, and move to a lower bucket only when time gets there.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace prism::simulate {

// `Entry` has an integer `at` >= 0, and < orders by it first. An entry before the last one that came out is taken, too,
// only slower.
template <typename Entry>
class RadixHeap {
 public:
  bool empty() const { return used_ == 0 && now_.empty(); }
  std::int64_t next() const {
    if (!now_.empty()) return now_.front().at;
    return used_ == 0 ? std::numeric_limits<std::int64_t>::max() : buckets_[std::countr_zero(used_)].least;
  }
  std::size_t bytes() const {
    auto entries = now_.capacity();
    for (const auto& bucket : buckets_) entries += bucket.entries.capacity();
    for (const auto& room : spare_) entries += room.capacity();
    return entries * sizeof(Entry);
  }
  void push(const Entry& entry) {
    if (empty()) last_ = 0;
    place(entry);
  }
  Entry pop() {
    return pop([](const Entry&) {});
  }
  // soon(entry) of entries that will come out before long: what they need can be fetched from memory meanwhile.
  template <typename Soon>
  Entry pop(Soon&& soon) {
    if (now_.empty()) open_first(soon);
    std::pop_heap(now_.begin(), now_.end(), comes_after);
    const Entry entry = now_.back();
    now_.pop_back();
    return entry;
  }

 private:
  struct Bucket {
    std::int64_t least;
    std::vector<Entry> entries;
  };
  static bool comes_after(const Entry& a, const Entry& b) { return b < a; }
  void place(const Entry& entry) {
    if (entry.at <= last_) {
      now_.push_back(entry);
      std::push_heap(now_.begin(), now_.end(), comes_after);
      return;
    }
    const auto index = std::bit_width(static_cast<std::uint64_t>(entry.at ^ last_)) - 1;
    auto& bucket = buckets_[index];
    if (bucket.entries.empty()) {
      bucket.least = entry.at;
      if (!spare_.empty()) {
        bucket.entries.swap(spare_.back());
        spare_.pop_back();
      }
    }
    bucket.least = std::min(bucket.least, entry.at);
    bucket.entries.push_back(entry);
    used_ |= std::uint64_t{1} << index;
  }
  template <typename Soon>
  void open_first(Soon&& soon) {
    const auto index = std::countr_zero(used_);
    auto& bucket = buckets_[index];
    used_ &= used_ - 1;
    last_ = bucket.least;
    const bool few = bucket.entries.size() <= 64;
    for (const auto& entry : bucket.entries) {
      if (few) soon(entry);
      place(entry);  // into lower ones
    }
    bucket.entries.clear();
    spare_.emplace_back().swap(bucket.entries);
  }

  std::array<Bucket, 64> buckets_;
  std::uint64_t used_ = 0;                 // bit i: bucket i is not empty
  std::vector<std::vector<Entry>> spare_;  // room of buckets that were emptied, for those that are filled next
  std::vector<Entry> now_;                 // heap of those at `last_`
  std::int64_t last_ = 0;
};

}  // namespace prism::simulate
