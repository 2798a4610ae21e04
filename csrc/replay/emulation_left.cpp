// What of a trace a real rank has issued, and has yet to issue.
#include <fmt/format.h>

#include <algorithm>

#include "replay/emulation_calls.hpp"
#include "replay/emulation_words.hpp"

namespace prism {

using engine::Period;

bool EmulationCalls::is_repeated(int rank, std::uint32_t number) const {
  if (!beyond_.loop) return false;
  const auto [comm, round] = loop_->place(job_.ranks[rank].cls, number);
  return round > 0 || (plan(rank, comm).region == Period::kAfter && rounds_of(rank) > 1);
}

std::string EmulationCalls::describe(int rank, std::uint32_t number) const {
  if (!beyond_.loop) return describe(rank, Place{number, 0});
  const auto [comm, round] = loop_->place(job_.ranks[rank].cls, number);
  return describe(rank, Place{comm, round});
}

std::string EmulationCalls::describe(int rank, Place place) const {
  auto number = job_.view(rank).comm_seq[place.comm];
  if (loop_) {
    const auto& own = plan(rank, place.comm);
    number += std::int64_t{own.region == Period::kAfter ? rounds_of(rank) - 1 : place.round} * own.seq_per_round;
  }
  return in_words(job_, rank, place.comm, number);
}

// Whether the round that the rank has begun last is none: all that it has issued of it is also all that there is behind
// the period, after one round less. Who ends like this could not be told from who goes on.
bool EmulationCalls::ends_like_a_round(int rank) const {
  const auto& own = ranks_.at(rank);
  const ClassView& view = job_.view(rank);
  const auto rounds = rounds_of(rank);
  if (!beyond_.loop || beyond_.iterations > 0 || rounds < 2) return false;
  std::size_t of_round = 0, of_end = 0;
  for (const auto& [key, stream] : own.streams)
    for (const auto c : stream) {
      of_end += plan(rank, c).region == Period::kAfter;
      if (plan(rank, c).region != Period::kRepeated || own.found[c] < rounds) continue;
      ++of_round;
      const auto number = view.comm_seq[c] + std::int64_t{rounds - 1} * plan(rank, c).seq_per_round;
      const auto is_it = [&](auto d) {
        const auto same = [&](const auto& column) { return column[c] == column[d]; };
        return plan(rank, d).region == Period::kAfter &&
               view.comm_seq[d] + std::int64_t{rounds - 2} * plan(rank, d).seq_per_round == number &&
               same(view.comm_op) && same(view.comm_dtype) && same(view.comm_reduce_op) && same(view.comm_peer) &&
               same(view.comm_input_bytes) && same(view.comm_output_bytes);
      };
      if (std::none_of(stream.begin(), stream.end(), is_it)) return false;
    }
  return of_round == of_end;
}

// Communications that a rank that ends now would still have to issue, each with how often it has.
std::vector<EmulationCalls::Place> EmulationCalls::left(int rank) const {
  const auto& found = ranks_.at(rank).found;
  const bool ended = ends_like_a_round(rank);
  std::vector<Place> left;
  for (std::uint32_t c = 0; c < found.size(); ++c) {
    const auto region = beyond_.loop ? plan(rank, c).region : Period::kBefore;
    auto due = region == Period::kRepeated ? rounds_of(rank) : 1;
    if (ended) due -= region == Period::kBefore ? 0 : 1;
    if (found[c] < due) left.push_back({c, found[c]});
  }
  return left;
}

std::size_t EmulationCalls::left_of(int rank) const { return left(rank).size(); }

std::string EmulationCalls::first_left(int rank) const {
  const auto left = this->left(rank);
  return left.empty() ? "" : fmt::format("rank {} has not issued {}", rank, describe(rank, left.front()));
}

}  // namespace prism
