// A hash table for what comes and goes: keys and values in one array, so that a look takes one miss of the cache; it
// grows to twice what was ever in it at once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "replay/draw.hpp"

namespace prism::engine {

// `Key` has ==, hash() and none(), which is no key. Pointers to values hold until the next change of the table.
template <typename Key, typename Value>
class FlatMap {
 public:
  std::size_t size() const { return used_; }
  std::size_t bytes() const { return slots_.capacity() * sizeof(Slot); }
  Value* find(const Key& key) {
    if (used_ == 0) return nullptr;
    const auto slot = place_of(key);
    return slots_[slot].key == key ? &slots_[slot].value : nullptr;
  }
  const Value* find(const Key& key) const { return const_cast<FlatMap*>(this)->find(key); }
  // Value() where it is new.
  Value& operator[](const Key& key) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    auto& slot = slots_[place_of(key)];
    if (slot.key != key) {
      slot = {key, Value()};
      ++used_;
    }
    return slot.value;
  }
  // What find() gave. Those behind it that would not be found any more take its place, one after the other.
  void erase(const Value* value) {
    auto hole = static_cast<std::size_t>(reinterpret_cast<const char*>(value) -
                                         reinterpret_cast<const char*>(&slots_[0].value)) /
                sizeof(Slot);
    const auto mask = slots_.size() - 1;
    for (auto next = (hole + 1) & mask; slots_[next].key != Key::none(); next = (next + 1) & mask) {
      if (((next - home(slots_[next].key)) & mask) < ((next - hole) & mask)) continue;
      slots_[hole] = slots_[next];
      hole = next;
    }
    slots_[hole].key = Key::none();
    --used_;
  }
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const auto& slot : slots_)
      if (slot.key != Key::none()) visit(slot.key, slot.value);
  }

 private:
  struct Slot {
    Key key = Key::none();
    Value value{};
  };
  std::size_t home(const Key& key) const { return key.hash() & (slots_.size() - 1); }
  std::size_t place_of(const Key& key) const {
    auto at = home(key);
    while (slots_[at].key != key && slots_[at].key != Key::none()) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : 2 * slots_.size());
    old.swap(slots_);
    for (const auto& slot : old)
      if (slot.key != Key::none()) slots_[place_of(slot.key)] = slot;
  }
  std::vector<Slot> slots_;  // a power of two
  std::size_t used_ = 0;
};

}  // namespace prism::engine
