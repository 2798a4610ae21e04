#include "backend/device/residency.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace prism {
namespace {

constexpr std::uint64_t kHeadroomParts = 16;

}  // namespace

Residency::Residency(SwapMode mode, std::vector<int> device_of_rank, int devices)
    : mode_(mode), ranks_(device_of_rank.size()), devices_(static_cast<std::size_t>(std::max(devices, 1))) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    ranks_[rank].device = std::clamp(device_of_rank[rank], 0, static_cast<int>(devices_.size()) - 1);
}

void Residency::uses_device(int rank) {
  at(rank).used = true;
  device(at(rank).device).used = true;
}

void Residency::runs(int rank) {
  Rank& r = at(rank);
  Device& d = device(r.device);
  r.running = r.ran = true;
  d.fresh = false;
  d.last = rank;
  for (Rank& other : ranks_)
    if (other.device == r.device) other.busy = false;
}

void Residency::rests(int rank) { at(rank).running = false; }

void Residency::ended(int rank) {
  Rank& r = at(rank);
  r.running = r.away = false;
  r.ended = r.used;
  r.used = false;
}

std::uint64_t Residency::needed(int rank) const {
  const Rank& r = at(rank);
  const Device& d = device(r.device);
  const std::uint64_t total = std::max(r.bytes, d.peak);
  return total - (on_device(rank) ? r.bytes : 0) + d.memory->total / kHeadroomParts;
}

bool Residency::others_may_make_room(int rank) const {
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& other) {
    return &other != &at(rank) && other.device == at(rank).device && ((other.running && other.used) || other.ended);
  });
}

Residency::Step Residency::next(int rank, std::span<const int> victims) const {
  using enum Step::Kind;
  const Rank& r = at(rank);
  const Device& d = device(r.device);
  const Step enter = r.away ? Step{kSwapIn, rank} : Step{kRun, rank};
  if (mode_ == SwapMode::kNever || !d.used) return enter;
  if (!r.away && d.last == rank) return enter;
  const auto victim = std::find_if(victims.begin(), victims.end(), [&](int v) {
    return v != rank && on_device(v) && at(v).device == r.device && !at(v).running && !at(v).busy;
  });
  if (!d.fresh) return {kMeasure, rank};
  const bool unknown = !d.memory;
  if (mode_ == SwapMode::kAlways || unknown) return victim != victims.end() ? Step{kSwapOut, *victim} : enter;
  if (d.memory->free >= needed(rank)) return enter;
  if (victim != victims.end()) return {kSwapOut, *victim};
  if (others_may_make_room(rank)) return {kWait, rank};
  // More than what it held is a wish; what it held it must have.
  if (r.away && d.memory->free < r.bytes) return {kNoRoom, rank};
  return enter;
}

void Residency::measured(int index, std::optional<DeviceMemory> memory) {
  Device& d = device(index);
  const std::uint64_t before = d.memory ? d.memory->free : 0, now = memory ? memory->free : 0;
  const std::uint64_t taken = before > now ? before - now : 0;
  for (Rank& r : ranks_) {
    if (r.device != index || !r.ran) continue;
    // Of several that ran, any may have taken it: at most all of it.
    if (d.memory && memory && r.used) r.bytes += taken;
    r.ran = r.running;
    d.peak = std::max(d.peak, r.bytes);
  }
  d.memory = memory;
  d.fresh = true;
}

void Residency::swapped_out(int rank, std::optional<DeviceMemory> before, std::optional<DeviceMemory> after) {
  Rank& r = at(rank);
  Device& d = device(r.device);
  r.away = true;
  if (before && after && after->free > before->free) r.bytes = after->free - before->free;
  d.peak = std::max(d.peak, r.bytes);
  if (d.last == rank) d.last = -1;
  d.memory = after;
}

void Residency::swapped_in(int rank, std::optional<DeviceMemory> after) {
  at(rank).away = false;
  device(at(rank).device).memory = after;
}

std::string Residency::describe_lack(int rank) const {
  const Device& d = device(at(rank).device);
  const auto gib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1u << 30); };
  return fmt::format(
      "the {:.2f} GiB that rank {} had on device {} do not fit back: {:.2f} GiB of {:.2f} are free, and no "
      "other rank holds any that could be swapped out",
      gib(at(rank).bytes), rank, at(rank).device, gib(d.memory ? d.memory->free : 0),
      gib(d.memory ? d.memory->total : 0));
}

}  // namespace prism
