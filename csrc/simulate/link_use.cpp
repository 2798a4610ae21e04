#include "simulate/link_use.hpp"

#include <algorithm>

namespace prism::simulate {

void LinkUse::began(Picoseconds at, const Message& message, std::span<const LinkId> route) {
  for (const auto id : route) {
    auto& link = links_[id];
    link.bytes += message.bytes;
    if (link.flows++ == 0) link.since = at;
  }
}

void LinkUse::ended(Picoseconds at, const Message&, std::span<const LinkId> route) {
  for (const auto id : route) {
    auto& link = links_[id];
    if (--link.flows == 0) link.busy += at - link.since;
  }
}

void LinkUse::passed(Picoseconds from, Picoseconds to, double bytes, std::span<const LinkId> route) {
  if (most_bins_ == 0 || to == kNever) return;
  while (static_cast<std::size_t>(to / width_) >= most_bins_) widen();
  const auto first = static_cast<std::size_t>(from / width_), last = static_cast<std::size_t>(to / width_);
  const double per_picosecond = to > from ? bytes / static_cast<double>(to - from) : 0;
  for (const auto id : route) {
    auto& bins = links_[id].by_bin;
    if (bins.size() <= last) bins.resize(last + 1);
    if (first == last) {
      bins[first] += bytes;
      continue;
    }
    for (auto bin = first; bin <= last; ++bin) {
      const auto begin = std::max(from, static_cast<Picoseconds>(bin) * width_);
      const auto end = std::min(to, static_cast<Picoseconds>(bin + 1) * width_);
      bins[bin] += per_picosecond * static_cast<double>(end - begin);
    }
  }
}

void LinkUse::widen() {
  width_ *= 2;
  for (auto& link : links_) {
    auto& bins = link.by_bin;
    for (std::size_t bin = 0; bin < bins.size(); ++bin) {
      const double bytes = bins[bin];
      bins[bin] = 0;
      bins[bin / 2] += bytes;
    }
    bins.resize((bins.size() + 1) / 2);
  }
}

}  // namespace prism::simulate
