// Member templates of the loop that several of its files use.
#pragma once
#include "backend/coordinator/loop.hpp"

namespace prism {

template <typename Message>
void Coordinator::Impl::send(int rank, const Message& message) {
  Rank& r = at(rank);
  if (!r.connection || !r.connection->is_open()) return;
  wire::append_frame(r.connection->out(), message);
  mark_dirty(rank);
}

// A rank gets it when it next waits: no callback computes without a slot, and whether an operation is complete does not
// change under the program's hands, however many slots there are.
template <typename Message>
void Coordinator::Impl::send_or_hold(int rank, WorkId work, const Message& message) {
  wire::append_frame(at(rank).held, message);
  holding_.insert(rank);
  answered_from_loop(rank, work);
}

}  // namespace prism
