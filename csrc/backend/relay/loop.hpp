// Relay::Impl: the event loop that owns all state; methods whose names end in _from_loop are what messages and timers
// call.
#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backend/coordinator/connection.hpp"
#include "backend/coordinator/process_watch.hpp"
#include "backend/protocol/link.hpp"
#include "backend/protocol/messages.hpp"
#include "backend/protocol/window_allocator.hpp"
#include "backend/relay/relay.hpp"

namespace prism {

struct Relay::Impl {
  explicit Impl(Options options);
  Result<void> run();
  bool was_told() const { return told_; }

 private:
  struct Rank {
    std::shared_ptr<Connection> connection;
    std::shared_ptr<ProcessWatch> process;
    bool finished = false, ended = false, stopped = false;
  };
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank - options_.first_rank)]; }
  bool is_ours(std::int64_t rank) const {
    return rank >= options_.first_rank && rank < options_.first_rank + options_.ranks;
  }

  Result<void> listen();
  void accept();
  void connect_link();
  void tick_from_loop();
  void fail_from_loop(Error error);
  void link_closed_from_loop(const Error& why);
  void ended_from_loop(int rank, const std::string& why);
  void flush_from_loop();
  void need_flush();
  template <typename Message>
  void tell(const Message& message);

  // of_ranks.cpp: what the ranks of this host say
  void rank_frame_from_loop(Connection& connection, const wire::Frame& frame);
  void refuse(Connection& connection, const Error& error);
  Result<void> hello(Connection& connection, const wire::Hello& message);
  Result<void> pass_on(int rank, const wire::Frame& frame);
  Result<void> send_inputs(int rank, const wire::Issue& message);

  // for_ranks.cpp: what the coordinator says
  void link_frame_from_loop(const wire::Frame& frame);
  Result<void> handle(const wire::Frame& frame);
  Result<void> on(const wire::LinkWelcome& message);
  Result<void> on(const wire::BlockBegins& message);
  Result<void> on(const wire::BlockBytes& message);
  Result<void> on(const wire::BlockEnds& message);
  Result<void> on(const wire::RanksWaiting& message);
  Result<void> on(const wire::RankFrames& message);
  Result<void> deliver(int rank, const wire::Frame& frame);

  const Options options_;
  boost::asio::io_context io_{1};
  boost::asio::local::stream_protocol::acceptor acceptor_{io_};
  boost::asio::steady_timer tick_timer_{io_}, drain_timer_{io_};
  std::shared_ptr<SharedMemory> memory_;
  std::unique_ptr<WindowAllocator> blocks_memory_;
  std::shared_ptr<Connection> link_;
  std::vector<Rank> ranks_;
  std::unordered_set<std::shared_ptr<Connection>> strangers_;  // have not said who they are
  std::unordered_map<std::uint64_t, Region> blocks_;           // what ranks are going to read, by the link's number
  Region coming_;                                              // what is still to come of the last one
  std::int64_t lend_after_ns_ = 0;
  int finished_ = 0, ticks_ = 0;
  bool welcomed_ = false, told_ = false, flush_posted_ = false;
  std::optional<Error> first_error_;
};

template <typename Message>
void Relay::Impl::tell(const Message& message) {
  if (!link_->is_open()) return;
  wire::append_frame(link_->out(), message);
  need_flush();
}

}  // namespace prism
