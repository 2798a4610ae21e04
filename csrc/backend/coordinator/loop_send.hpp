// Member templates of the loop that several of its files use.
#pragma once
#include "backend/coordinator/loop.hpp"

namespace prism {

template <typename Message>
void Coordinator::Impl::send(int rank, const Message& message) {
  Rank& r = at(rank);
  if (!r.connection || !r.connection->is_open()) return;
  wire::append_frame(r.connection->out(), message);
  if (!r.dirty) dirty_.push_back(rank);
  r.dirty = true;
  need_turn_end();
}

// A rank without a slot gets it with its next grant, so that no callback computes without one.
template <typename Message>
void Coordinator::Impl::send_or_hold(int rank, WorkId work, const Message& message) {
  if (scheduler_.state(rank) == SlotState::kRunning)
    send(rank, message);
  else
    wire::append_frame(at(rank).held, message);
  answered_from_loop(rank, work);
}

}  // namespace prism
