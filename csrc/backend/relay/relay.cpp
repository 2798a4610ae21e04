#include "backend/relay/relay.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>

#include "backend/coordinator/process_state.hpp"
#include "backend/protocol/socket.hpp"
#include "backend/relay/loop.hpp"
#include "core/deadline.hpp"

namespace prism {
namespace {

constexpr int kBacklog = 4096;
constexpr auto kTick = std::chrono::milliseconds(500);
constexpr int kTicksPerHeartbeat = 2;
constexpr auto kDrain = std::chrono::seconds(2);  // for the last words to reach the ranks

}  // namespace

Relay::Impl::Impl(Options options) : options_(std::move(options)), ranks_(static_cast<std::size_t>(options_.ranks)) {}

Result<void> Relay::Impl::listen() {
  PRISM_ASSIGN_OR_RETURN(const auto address, abstract_address(options_.address));
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0 || bind(fd.get(), address.get(), address.length) != 0 || ::listen(fd.get(), kBacklog) != 0)
    return Error{ErrorCode::kIo, fmt::format("listening at '{}': {}", options_.address, std::strerror(errno))};
  acceptor_.assign(boost::asio::local::stream_protocol(), fd.release());
  return {};
}

Result<void> Relay::Impl::run() {
  PRISM_ASSIGN_OR_RETURN(auto memory, SharedMemory::create(options_.world_size, options_.address_space_bytes,
                                                           options_.spill_directory, options_.must_spill));
  memory_ = std::move(memory);
  memory_->control().budget_bytes.store(options_.memory_budget_bytes != 0 ? options_.memory_budget_bytes
                                                                          : available_memory_bytes() / 4 * 3);
  blocks_memory_ = std::make_unique<WindowAllocator>(*memory_, memory_->coordinator());
  PRISM_RETURN_IF_ERROR(listen());
  connect_link();
  tick_from_loop();
  io_.run();
  if (link_) link_->close();
  for (Rank& rank : ranks_)
    if (rank.connection) rank.connection->close();
  if (first_error_) return *first_error_;
  return {};
}

void Relay::Impl::connect_link() {
  const int on = 1;
  setsockopt(options_.link_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  Connection::Socket socket(io_);
  socket.assign(boost::asio::generic::stream_protocol(boost::asio::ip::tcp::v4()), options_.link_fd);
  link_ = std::make_shared<Connection>(
      std::move(socket),
      Connection::Handlers{[this](Connection&, const wire::Frame& frame) { link_frame_from_loop(frame); },
                           [this](Connection&, const Error& why) { link_closed_from_loop(why); }});
  link_->frame_limit = wire::kMaxGreetingBytes;
  link_->start();
  tell(wire::LinkHello{wire::kLinkVersion, static_cast<std::uint32_t>(options_.host), options_.proof});
}

void Relay::Impl::accept() {
  acceptor_.async_accept([this](boost::system::error_code error, boost::asio::local::stream_protocol::socket socket) {
    if (!acceptor_.is_open() || error == boost::asio::error::operation_aborted) return;
    if (error && error != boost::asio::error::connection_aborted)
      return fail_from_loop({ErrorCode::kIo, "accepting a rank: " + error.message()});
    if (!error) {
      auto connection = std::make_shared<Connection>(
          Connection::Socket(std::move(socket)),
          Connection::Handlers{[this](Connection& c, const wire::Frame& frame) { rank_frame_from_loop(c, frame); },
                               [this](Connection& c, const Error& why) {
                                 strangers_.erase(c.shared_from_this());
                                 if (c.rank >= 0) ended_from_loop(c.rank, why.message);
                               }});
      if (connection->is_of_this_user()) {
        strangers_.insert(connection);
        connection->start();
      }
    }
    accept();
  });
}

void Relay::Impl::need_flush() {
  if (std::exchange(flush_posted_, true)) return;
  boost::asio::post(io_, [this] { flush_from_loop(); });
}

void Relay::Impl::flush_from_loop() {
  flush_posted_ = false;
  link_->flush();
  bool flushed = true;
  for (Rank& rank : ranks_) {
    if (!rank.connection || !rank.connection->is_open()) continue;
    rank.connection->flush();
    flushed = flushed && rank.connection->flushed();
  }
  if (first_error_ && link_->flushed()) link_->close();
  if (!link_->is_open() && flushed) io_.stop();
}

// Signs of life to the coordinator, and of it; and which ranks have been stopped by a signal.
void Relay::Impl::tick_from_loop() {
  for (int rank = options_.first_rank; is_ours(rank); ++rank) {
    Rank& r = at(rank);
    if (!r.connection || r.finished || r.ended) continue;
    const bool stopped = is_stopped(r.connection->pid());
    if (stopped != std::exchange(r.stopped, stopped))
      tell(wire::RankChanged{static_cast<std::uint32_t>(rank),
                             stopped ? wire::ProcessChange::kStopped : wire::ProcessChange::kContinued, ""});
  }
  // Until it greets, it may be importing torch.
  const auto limit = welcomed_ ? options_.host_timeout : options_.join_timeout;
  const auto is_silent = [&] { return link_->is_open() && link_->heard_ns < now_ns() - limit.count(); };
  if (is_silent()) link_->read_what_is_there();  // it may be us who were slow
  if (is_silent()) {
    link_->close();
    link_closed_from_loop({ErrorCode::kPeerFailed, fmt::format("nothing was heard of it for {:.0f} s",
                                                               std::chrono::duration<double>(limit).count())});
  }
  if (++ticks_ % kTicksPerHeartbeat == 0) tell(wire::Heartbeat{});
  tick_timer_.expires_after(kTick);
  tick_timer_.async_wait([this](boost::system::error_code error) {
    if (!error) tick_from_loop();
  });
}

void Relay::Impl::fail_from_loop(Error error) {
  if (first_error_) return;
  first_error_ = std::move(error);
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  for (const auto& stranger : strangers_) stranger->close();
  strangers_.clear();
  for (Rank& rank : ranks_)
    if (rank.connection && rank.connection->is_open())
      wire::append_frame(rank.connection->out(), wire::Abort{*first_error_});
  drain_timer_.expires_after(kDrain);
  drain_timer_.async_wait([this](boost::system::error_code) { io_.stop(); });
  if (link_->is_open()) {
    wire::append_frame(link_->out(), wire::Abort{*first_error_});
    link_->flush();
  }
  need_flush();
}

void Relay::Impl::link_closed_from_loop(const Error& why) {
  if (finished_ == options_.ranks && welcomed_) return io_.stop();
  fail_from_loop({why.code, "the coordinator is lost: " + why.message});
}

void Relay::Impl::ended_from_loop(int rank, const std::string& why) {
  Rank& r = at(rank);
  if (r.finished || std::exchange(r.ended, true)) return;
  tell(wire::RankChanged{static_cast<std::uint32_t>(rank), wire::ProcessChange::kEnded, why});
}

Relay::Relay(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Relay::~Relay() = default;
Result<void> Relay::run() { return impl_->run(); }
bool Relay::was_told() const { return impl_->was_told(); }

}  // namespace prism
