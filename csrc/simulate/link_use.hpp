// What links have carried: bytes, how long, and when.
#pragma once
#include <vector>

#include "simulate/flow_observer.hpp"

namespace prism::simulate {

class LinkUse final : public FlowObserver {
 public:
  // `bins` > 0: also when, in bins of one width that doubles as time goes on: `bins` to 2 x `bins` of them in the end.
  LinkUse(std::size_t links, int bins) : links_(links), most_bins_(2 * static_cast<std::size_t>(bins)) {}

  void began(Picoseconds at, const Message& message, std::span<const LinkId> route) override;
  void passed(Picoseconds from, Picoseconds to, double bytes, std::span<const LinkId> route) override;
  void ended(Picoseconds at, const Message& message, std::span<const LinkId> route) override;

  std::int64_t bytes(LinkId link) const { return links_[link].bytes; }  // of all that began
  Picoseconds busy(LinkId link) const { return links_[link].busy; }     // while anything passed
  Picoseconds bin_width() const { return width_; }
  const std::vector<double>& bytes_by_bin(LinkId link) const { return links_[link].by_bin; }  // up to the last used

 private:
  struct State {
    std::int64_t bytes = 0;
    Picoseconds busy = 0, since = 0;
    int flows = 0;
    std::vector<double> by_bin;
  };
  void widen();

  std::vector<State> links_;
  std::size_t most_bins_;
  Picoseconds width_ = 1'000;
};

}  // namespace prism::simulate
