// Member templates of the loop that several of its files use.
#pragma once
#include <fmt/format.h>

#include "backend/coordinator/loop.hpp"

namespace prism {

template <typename Message>
void Coordinator::Impl::send(int rank, const Message& message) {
  wire::Buffer* const to = out(rank);
  if (to == nullptr) return;
  wire::append_frame(*to, message);
  mark_dirty(rank);
}

// Accepts until the run ends.
template <typename Acceptor, typename Made>
void Coordinator::Impl::accept(Acceptor& acceptor, Made made) {
  acceptor.async_accept([this, &acceptor, made](boost::system::error_code error, auto socket) {
    if (stopping_ || error == boost::asio::error::operation_aborted) return;
    if (error == boost::asio::error::no_descriptors) {  // strangers may hold them; some will go
      accept_timer_.expires_after(std::chrono::milliseconds(100));
      return accept_timer_.async_wait([this, &acceptor, made](boost::system::error_code) { accept(acceptor, made); });
    }
    if (error && error != boost::asio::error::connection_aborted)
      return fail_from_loop({ErrorCode::kIo, "accepting a connection: " + error.message()});
    if (!error) made(Connection::Socket(std::move(socket)));
    accept(acceptor, made);
  });
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
