// The members of a group that are real, by group rank.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace prism::pruning {

class Sandbox {
 public:
  // `chosen`: ascending, distinct, at least one, each below `members`.
  Sandbox(int members, std::span<const std::int32_t> chosen)
      : chosen_(chosen.begin(), chosen.end()), index_(static_cast<std::size_t>(members), -1) {
    for (std::size_t i = 0; i < chosen_.size(); ++i) index_[chosen_[i]] = static_cast<int>(i);
  }
  const std::vector<std::int32_t>& chosen() const { return chosen_; }
  bool has(int member) const { return index_[member] >= 0; }
  // Among the chosen ones; -1 of others.
  int index(int member) const { return index_[member]; }
  // The chosen one that comes after, or before, a chosen one around the group; itself where it is alone.
  int after(int member) const {
    const auto next = static_cast<std::size_t>(index_[member]) + 1;
    return chosen_[next == chosen_.size() ? 0 : next];
  }
  int before(int member) const {
    const auto own = static_cast<std::size_t>(index_[member]);
    return chosen_[(own == 0 ? chosen_.size() : own) - 1];
  }

 private:
  std::vector<std::int32_t> chosen_;
  std::vector<int> index_;
};

}  // namespace prism::pruning
