// Ranks of other hosts: each host has a relay, which speaks for its ranks over one connection. What their operations
// take is copied into our own window as it comes; what they read is sent once per host.
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "backend/coordinator/loop_send.hpp"
#include "backend/coordinator/process_state.hpp"
#include "core/log.hpp"

namespace prism {
namespace {

constexpr std::size_t kMostStrangers = 4096 + 64;
constexpr auto kLauncherKnowsBetter = std::chrono::milliseconds(500);  // the host's agent says why its ranks ended

// Without telling by the time it takes how much of it is right.
bool equal(const std::string& a, const std::string& b) {
  unsigned char differs = a.size() != b.size();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) differs |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differs == 0;
}

}  // namespace

Result<void> Coordinator::Impl::listen_for_hosts() {
  if (hosts_.size() < 2) return {};
  boost::system::error_code error;
  link_acceptor_.assign(boost::asio::ip::tcp::v4(), options_.link_fd, error);
  if (error) return Error{ErrorCode::kIo, "listening for other hosts: " + error.message()};
  accept(link_acceptor_, [this](Connection::Socket socket) {
    const int on = 1;
    setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    auto connection = std::make_shared<Connection>(
        std::move(socket),
        Connection::Handlers{[this](Connection& c, const wire::Frame& frame) { link_frame_from_loop(c, frame); },
                             [this](Connection& c, const Error& why) { closed_from_loop(c, why); }});
    // More than can be greeting us are not kept.
    if (strangers_.size() >= kMostStrangers) return connection->close();
    strangers_.insert(connection);
    connection->frame_limit = wire::kMaxGreetingBytes;
    connection->start();
  });
  return {};
}

std::string Coordinator::Impl::host_text(int index) const {
  const auto& ranks = links_[static_cast<std::size_t>(index)].ranks;
  return fmt::format("host {} ({} {})", host(index).name, ranks.size() == 1 ? "rank" : "ranks", ranges_text(ranks));
}

void Coordinator::Impl::link_frame_from_loop(Connection& connection, const wire::Frame& frame) {
  if (stopping_) return;
  need_turn_end();
  if (connection.host < 0) {
    const auto message =
        frame.type == wire::MessageType::kLinkHello ? wire::decode<wire::LinkHello>(frame) : std::nullopt;
    auto welcomed = message ? link_hello(connection, *message)
                            : Error{ErrorCode::kInvalidInput, "the first message is no greeting"};
    if (!welcomed) refuse(connection, welcomed.error());
  } else if (auto handled = handle_link(connection, frame); !handled) {
    fail_from_loop({handled.error().code, fmt::format("{}: {}", host_text(connection.host), handled.error().message)});
  }
}

Result<void> Coordinator::Impl::link_hello(Connection& connection, const wire::LinkHello& message) {
  if (message.version != wire::kLinkVersion)
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("link protocol {}; accepted: {}", message.version, wire::kLinkVersion)};
  if (message.host == 0 || message.host >= hosts_.size())
    return Error{ErrorCode::kInvalidInput, fmt::format("host {}; accepted: 1 to {}", message.host, hosts_.size() - 1)};
  const int index = static_cast<int>(message.host);
  if (host(index).proof.empty() || !equal(message.proof, host(index).proof))
    return Error{ErrorCode::kInvalidInput, fmt::format("host {} does not know this run's secret", index)};
  if (link(index).connection)
    return Error{ErrorCode::kInvalidInput, fmt::format("{} is connected already", host_text(index))};
  link(index).connection = connection.shared_from_this();
  strangers_.erase(link(index).connection);
  connection.host = index;
  connection.frame_limit = wire::kMaxLinkFrameBytes;
  wire::append_frame(connection.out(), wire::LinkWelcome{host(index).our_proof, options_.lend_after.count()});
  return {};
}

Result<void> Coordinator::Impl::handle_link(Connection& connection, const wire::Frame& frame) {
  const auto read = [&]<typename Message>(std::optional<Message> message) -> Result<void> {
    if (message) return on_link(connection.host, *message);
    return Error{ErrorCode::kInvalidInput, fmt::format("a malformed message of type {} and {} bytes",
                                                       static_cast<int>(frame.type), frame.body.size())};
  };
  switch (frame.type) {
    case wire::MessageType::kRankJoined:
      return read(wire::decode<wire::RankJoined>(frame));
    case wire::MessageType::kRankInputs:
      return read(wire::decode<wire::RankInputs>(frame));
    case wire::MessageType::kBlockBytes:
      return read(wire::decode<wire::BlockBytes>(frame));
    case wire::MessageType::kRankChanged:
      return read(wire::decode<wire::RankChanged>(frame));
    case wire::MessageType::kRankFrames:
      return read(wire::decode<wire::RankFrames>(frame));
    case wire::MessageType::kHeartbeat:
      return {};
    case wire::MessageType::kAbort: {
      auto abort = wire::decode<wire::Abort>(frame);
      return abort ? std::move(abort->error) : Error{ErrorCode::kPeerFailed, "it ended the run"};
    }
    default:
      return Error{ErrorCode::kInvalidInput,
                   fmt::format("a message of type {}, which relays do not send", static_cast<int>(frame.type))};
  }
}

Result<int> Coordinator::Impl::rank_of(int host, std::uint32_t rank) const {
  if (rank >= ranks_.size() || at(static_cast<int>(rank)).host != host)
    return Error{ErrorCode::kInvalidInput, fmt::format("it speaks for rank {}, which is not of this host", rank)};
  return static_cast<int>(rank);
}

Result<void> Coordinator::Impl::on_link(int host, const wire::RankJoined& message) {
  PRISM_ASSIGN_OR_RETURN(const int rank, rank_of(host, message.rank));
  if (std::exchange(at(rank).joined, true))
    return Error{ErrorCode::kInvalidInput, fmt::format("rank {} is connected already", rank)};
  at(rank).window = std::make_unique<WindowAllocator>(*memory_, rank);
  if (++joined_ == options_.world_size) join_timer_.cancel();
  scheduler_.make_ready(rank, true);
  return {};
}

Result<void> Coordinator::Impl::on_link(int host, const wire::RankInputs& message) {
  PRISM_ASSIGN_OR_RETURN(const int rank, rank_of(host, message.rank));
  Link& from = link(host);
  Rank& r = at(rank);
  if (!r.window || from.coming.bytes != 0 || message.work <= r.last_work || r.copies.count(message.work) != 0)
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("inputs of operation {} of rank {} out of turn", message.work, rank)};
  auto block = r.window->allocate(message.bytes);
  if (!block) return Error{block.error().code, fmt::format("what rank {} sends: {}", rank, block.error().message)};
  from.coming_for = rank;
  from.work = message.work;
  from.coming = {block->offset, message.bytes};
  if (message.bytes != 0) r.copies.emplace(message.work, block->offset);
  return {};
}

Result<void> Coordinator::Impl::on_link(int host, const wire::BlockBytes& message) {
  Link& from = link(host);
  if (message.bytes.size() > from.coming.bytes)
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("{} bytes of a tensor of which {} are missing", message.bytes.size(), from.coming.bytes)};
  std::memcpy(memory_->at(from.coming.offset), message.bytes.data(), message.bytes.size());
  from.coming.offset += message.bytes.size();
  from.coming.bytes -= message.bytes.size();
  return {};
}

Result<void> Coordinator::Impl::on_link(int host, const wire::RankChanged& message) {
  PRISM_ASSIGN_OR_RETURN(const int rank, rank_of(host, message.rank));
  if (message.change == wire::ProcessChange::kEnded) {
    if (!at(rank).finished) died_from_loop(rank, message.why);
  } else {
    at(rank).stopped = message.change == wire::ProcessChange::kStopped;
  }
  return {};
}

Result<void> Coordinator::Impl::on_link(int host, const wire::RankFrames& message) {
  PRISM_ASSIGN_OR_RETURN(const int rank, rank_of(host, message.rank));
  if (!at(rank).joined) return Error{ErrorCode::kInvalidInput, fmt::format("rank {} speaks before it joined", rank)};
  for (auto rest = message.frames; !rest.empty();) {
    PRISM_ASSIGN_OR_RETURN(const auto frame, wire::first_frame(rest));
    if (!frame) return Error{ErrorCode::kInvalidInput, fmt::format("half a message of rank {}", rank)};
    ++messages_;
    rank_frame_from_loop(rank, *frame);
    rest = rest.subspan(wire::kFrameHeaderBytes + frame->body.size());
  }
  return {};
}

// The regions that a rank of another host names are replaced by where the copy of them stands, in its window here.
Result<void> Coordinator::Impl::take_copy(int rank, WorkId work, std::vector<Region>& inputs) {
  std::uint64_t total = 0;
  for (const Region& input : inputs) {
    if (input.bytes > memory_->window_bytes() + memory_->spill_window_bytes())
      return Error{ErrorCode::kInvalidInput, fmt::format("an input of {} bytes", input.bytes)};
    total += padded(input.bytes);
  }
  const Link& from = link(at(rank).host);
  const auto copy = at(rank).copies.find(work);
  const bool is_here = copy != at(rank).copies.end() && from.coming_for == rank && from.work == work &&
                       from.coming.bytes == 0 && from.coming.offset - copy->second == total;
  if (total != 0 && !is_here)
    return Error{ErrorCode::kInvalidInput, fmt::format("operation {} without the {} bytes of its inputs", work, total)};
  std::uint64_t offset = total != 0 ? copy->second : memory_->window_begin(rank);
  for (Region& input : inputs) {
    input.offset = offset;
    offset += padded(input.bytes);
  }
  return {};
}

void Coordinator::Impl::drop_copy(int rank, WorkId work) {
  auto& copies = at(rank).copies;
  const auto copy = copies.find(work);
  if (copy == copies.end()) return;
  at(rank).window->free(copy->second);
  copies.erase(copy);
}

std::vector<Region> Coordinator::Impl::placed(int host, const Held& held, std::vector<Region> regions) {
  const auto& to = link(host).connection;
  for (Region& region : regions) {
    if (region.bytes == 0) continue;
    std::uint64_t& block = held->sent[{host, region.offset, region.bytes}];
    if (block == 0 && to) {
      block = ++last_block_;
      wire::append_frame(to->out(), wire::BlockBegins{block, region.bytes});
      const auto* first = reinterpret_cast<const std::uint8_t*>(memory_->at(region.offset));
      send_block(*to, {first, region.bytes}, held);
    }
    region.offset = block;
  }
  return regions;
}

void Coordinator::Impl::end_block(int host, std::uint64_t block) {
  link(host).ended.push_back(block);
  need_turn_end();
}

void Coordinator::Impl::flush_links() {
  for (std::size_t i = 1; i < links_.size(); ++i) {
    Link& to = links_[i];
    const auto ended = std::exchange(to.ended, {});
    if (!to.connection || !to.connection->is_open()) continue;
    for (const std::uint64_t block : ended) wire::append_frame(to.connection->out(), wire::BlockEnds{block});
    const auto waiting = static_cast<std::uint32_t>(scheduler_.waiting_at(static_cast<int>(i)));
    if ((waiting == 0) != (to.waiting_told == 0))
      wire::append_frame(to.connection->out(), wire::RanksWaiting{to.waiting_told = waiting});
    to.connection->flush();
  }
}

// Tensors are under way: who waits, waits for the link.
bool Coordinator::Impl::links_are_busy() const {
  for (const Link& link : links_)
    if (link.coming.bytes != 0 || (link.connection && link.connection->is_open() && !link.connection->flushed()))
      return true;
  return false;
}

void Coordinator::Impl::link_closed_from_loop(int host, const std::string& why) {
  if (stopping_) return end_if_drained_from_loop();
  bool all_finished = true;
  for (const int rank : link(host).ranks) all_finished = all_finished && at(rank).finished;
  if (all_finished) return;
  auto timer = std::make_shared<boost::asio::steady_timer>(io_, kLauncherKnowsBetter);
  timer->async_wait([this, host, why, timer](boost::system::error_code error) {
    if (!error) fail_from_loop({ErrorCode::kPeerFailed, fmt::format("{} is lost: {}", host_text(host), why)});
  });
}

// Every second: a sign of life to all, and from all.
void Coordinator::Impl::watch_links_from_loop() {
  const std::int64_t long_ago = now_ns() - options_.host_timeout.count();
  for (std::size_t i = 1; i < links_.size(); ++i) {
    const auto& connection = links_[i].connection;
    if (!connection || !connection->is_open()) continue;
    if (connection->heard_ns < long_ago) connection->read_what_is_there();  // it may be us who were slow
    if (stopping_ || !connection->is_open()) return;
    if (connection->heard_ns < long_ago)
      return fail_from_loop(
          {ErrorCode::kPeerFailed,
           fmt::format("{} is lost: nothing was heard of it for {:.0f} s", host_text(static_cast<int>(i)),
                       std::chrono::duration<double>(options_.host_timeout).count())});
    wire::append_frame(connection->out(), wire::Heartbeat{});
  }
  // A relay says who it is when its host has imported torch.
  std::vector<std::shared_ptr<Connection>> old;
  for (const auto& stranger : strangers_)
    if (stranger->made_ns < now_ns() - options_.join_timeout.count()) old.push_back(stranger);
  for (const auto& stranger : old) {
    stranger->close();
    strangers_.erase(stranger);
  }
  need_turn_end();
}

}  // namespace prism
