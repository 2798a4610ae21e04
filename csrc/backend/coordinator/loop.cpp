#include "backend/coordinator/loop.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "backend/coordinator/loop_send.hpp"
#include "backend/coordinator/process_state.hpp"
#include "backend/protocol/socket.hpp"

namespace prism {
namespace {

using std::chrono::milliseconds;

constexpr int kBacklog = 4096;
constexpr auto kDrain = std::chrono::seconds(2);          // for the last words to reach the ranks
constexpr auto kLauncherKnowsBetter = milliseconds(200);  // it sees exit codes and signals; EOF says neither
constexpr auto kStoppedPeriod = milliseconds(500);
constexpr auto kHeartbeat = std::chrono::seconds(1);

// All ranks on this host, unless others are named.
std::vector<Coordinator::Host> hosts_of(const Coordinator::Options& options) {
  if (!options.hosts.empty()) return options.hosts;
  return {{"this host", std::max(options.world_size, 1), std::max(options.slots, 1), "", ""}};
}

std::vector<Scheduler::Place> places(const std::vector<Coordinator::Host>& hosts) {
  std::vector<Scheduler::Place> places;
  for (const auto& host : hosts) places.push_back({host.ranks, host.slots});
  return places;
}

}  // namespace

Coordinator::Impl::Impl(Options options, std::shared_ptr<Executor> executor)
    : options_(std::move(options)),
      executor_(std::move(executor)),
      hosts_(hosts_of(options_)),
      scheduler_(options_.hosts.empty() ? Scheduler(std::max(options_.world_size, 1), std::max(options_.slots, 1),
                                                    options_.schedule, options_.device_of_rank)
                                        : Scheduler(places(hosts_), options_.schedule)),
      matcher_(
          std::max(options_.world_size, 1), [this](int rank, int delta) { scheduler_.urge(rank, delta); },
          options_.emulation ? options_.emulation->sandbox() : std::vector<int>()),
      store_([this](int rank, wire::StoreReply answer) { send_or_hold(rank, answer.work, answer); }),
      quiet_watch_(io_, std::max(options_.world_size, 1),
                   {[this](std::uint64_t probe) {
                      int asked = 0;
                      for (int rank = 0; rank < options_.world_size; ++rank) {
                        if (at(rank).finished) continue;
                        send(rank, wire::Probe{probe});
                        ++asked;
                      }
                      return asked;
                    },
                    [this] { fail_from_loop(deadlock_report()); }}),
      ranks_(static_cast<std::size_t>(std::max(options_.world_size, 1))),
      links_(hosts_.size()) {
  int rank = 0;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    for (int last = rank + hosts_[i].ranks; rank < last && rank < options_.world_size; ++rank) {
      at(rank).host = static_cast<int>(i);
      links_[i].ranks.push_back(rank);
    }
  }
}

Coordinator::Impl::~Impl() {
  executor_thread_.join();
  if (recorder_) {
    recorder_->cancel();
    recorder_->join();
  }
  postponed_.clear();
  for (Rank& rank : ranks_) rank.unread.clear();  // while results_ is still there
  for (Link& link : links_) link.connection.reset();
  io_.restart();
  io_.poll();  // what the executor posted at the end holds references to this
}

// Until the other end closes: then those who have joined were all.
void Coordinator::Impl::wait_for_more_ranks() {
  if (options_.more_ranks_fd < 0) return;
  expected_ = std::numeric_limits<int>::max();
  more_ranks_ = ProcessWatch::start_on(io_, options_.more_ranks_fd, [this] {
    expected_ = joined_;
    need_turn_end();
  });
}

Result<void> Coordinator::Impl::listen() {
  const auto& name = options_.address;
  PRISM_ASSIGN_OR_RETURN(const auto address, abstract_address(name));
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0 || bind(fd.get(), address.get(), address.length) != 0 || ::listen(fd.get(), kBacklog) != 0)
    return Error{ErrorCode::kIo, fmt::format("listening at '{}': {}", name, std::strerror(errno))};
  acceptor_.assign(boost::asio::local::stream_protocol(), fd.release());
  return {};
}

Result<void> Coordinator::Impl::run() {
  if (options_.world_size < 1 || (options_.hosts.empty() && options_.slots < 1))
    return Error{ErrorCode::kInvalidInput, fmt::format("{} ranks on {} slots; accepted: at least one of each",
                                                       options_.world_size, options_.slots)};
  int ranks_of_hosts = 0;
  for (const Host& host : hosts_) {
    ranks_of_hosts += host.ranks;
    if (host.ranks < 0 || host.slots < 0 || (host.ranks > 0 && host.slots == 0))
      return Error{ErrorCode::kInvalidInput,
                   fmt::format("{} ranks on {} slots of {}; accepted: at least one slot where there are ranks",
                               host.ranks, host.slots, host.name)};
  }
  if (ranks_of_hosts != options_.world_size)
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("the hosts have {} ranks, the world {}", ranks_of_hosts, options_.world_size)};
  PRISM_RETURN_IF_ERROR(check_devices());
  // Two descriptors per rank; the soft limit is often 1024.
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  PRISM_ASSIGN_OR_RETURN(memory_, SharedMemory::create(options_.world_size, options_.address_space_bytes,
                                                       options_.spill_directory, options_.must_spill));
  const std::uint64_t budget =
      options_.memory_budget_bytes != 0 ? options_.memory_budget_bytes : available_memory_bytes() / 4 * 3;
  memory_->control().budget_bytes.store(budget);
  results_ = std::make_unique<WindowAllocator>(*memory_, memory_->coordinator());
  if (!options_.data_directory.empty()) PRISM_RETURN_IF_ERROR(start_recording(budget));
  if (options_.emulation) PRISM_RETURN_IF_ERROR(start_emulation());
  PRISM_RETURN_IF_ERROR(listen());
  PRISM_RETURN_IF_ERROR(listen_for_hosts());
  started_ns_ = now_ns();
  start_swapping();
  accept_ranks();
  wait_for_more_ranks();
  join_timer_.expires_after(options_.join_timeout);
  join_timer_.async_wait([this](boost::system::error_code error) {
    if (error || joined_ >= expected_ || options_.more_ranks_fd >= 0) return;
    std::vector<int> absent;
    for (int rank = 0; rank < options_.world_size; ++rank)
      if (!at(rank).joined && !matcher_.is_virtual(rank)) absent.push_back(rank);
    fail_from_loop({ErrorCode::kTimeout, fmt::format("ranks {} have not connected within {:.0f} s", ranges_text(absent),
                                                     std::chrono::duration<double>(options_.join_timeout).count())});
  });
  every(std::max<std::chrono::nanoseconds>(options_.maximal_tenure / 4, milliseconds(1)), holders_timer_,
        &Impl::watch_holders_from_loop);
  every(kStoppedPeriod, stopped_timer_, &Impl::watch_stopped_from_loop);
  if (hosts_.size() > 1) every(kHeartbeat, links_timer_, &Impl::watch_links_from_loop);
  io_.run();
  for (const Rank& rank : ranks_)
    if (rank.connection) rank.connection->close();
  for (const Link& link : links_)
    if (link.connection) link.connection->close();
  ended_ns_ = now_ns();
  executor_thread_.join();
  stop_swapping();
  if (emulator_) emulator_->stop();
  if (first_error_) return *first_error_;
  return recorder_ ? finish_recording() : Result<void>();
}

void Coordinator::Impl::abort(Error error) {
  boost::asio::post(io_, [this, error = std::move(error)] { fail_from_loop(error); });
}

void Coordinator::Impl::accept_ranks() {
  accept(acceptor_, [this](Connection::Socket socket) {
    auto connection = std::make_shared<Connection>(
        std::move(socket),
        Connection::Handlers{[this](Connection& c, const wire::Frame& frame) { frame_from_loop(c, frame); },
                             [this](Connection& c, const Error& why) { closed_from_loop(c, why); }});
    if (!connection->is_of_this_user()) return;
    strangers_.insert(connection);
    connection->start();
  });
}

wire::Buffer* Coordinator::Impl::out(int rank) {
  Rank& r = at(rank);
  const auto& connection = r.host == 0 ? r.connection : link(r.host).connection;
  if (!r.joined || !connection || !connection->is_open()) return nullptr;
  return r.host == 0 ? &connection->out() : &r.out;
}

void Coordinator::Impl::closed_from_loop(Connection& connection, const Error& why) {
  if (connection.host >= 0) return link_closed_from_loop(connection.host, why.message);
  if (connection.rank < 0) {
    strangers_.erase(connection.shared_from_this());
    return;
  }
  if (stopping_) return end_if_drained_from_loop();
  if (at(connection.rank).finished) return;
  if (why.code == ErrorCode::kPeerFailed) return died_from_loop(connection.rank, why.message);
  fail_from_loop({why.code, fmt::format("rank {} sent {}", connection.rank, why.message)});
}

void Coordinator::Impl::died_from_loop(int rank, const std::string& why) {
  Rank& r = at(rank);
  if (r.died || stopping_) return;
  r.died = true;
  auto timer = std::make_shared<boost::asio::steady_timer>(io_, kLauncherKnowsBetter);
  timer->async_wait([this, rank, why, timer](boost::system::error_code error) {
    if (!error) fail_from_loop({ErrorCode::kPeerFailed, fmt::format("rank {} died: {}", rank, why)});
  });
}

void Coordinator::Impl::fail_from_loop(Error error) {
  if (stopping_) return;  // the first error wins
  stopping_ = true;
  first_error_ = std::move(error);
  if (recorder_) recorder_->cancel();
  quiet_watch_.stop();
  timeouts_.stop();
  for (auto* timer : {&join_timer_, &holders_timer_, &stopped_timer_, &pause_timer_, &links_timer_, &accept_timer_})
    timer->cancel();
  for (const auto& stranger : strangers_) stranger->close();
  strangers_.clear();
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  link_acceptor_.close(ignored);
  for (int rank = 0; rank < options_.world_size; ++rank)
    if (at(rank).host == 0) send(rank, wire::Abort{*first_error_});
  for (const Link& link : links_)
    if (link.connection && link.connection->is_open())
      wire::append_frame(link.connection->out(), wire::Abort{*first_error_});
  drain_timer_.expires_after(kDrain);
  drain_timer_.async_wait([this](boost::system::error_code) { io_.stop(); });
  need_turn_end();
}

// Ranks that have read the error are not waited for: they are the launcher's.
void Coordinator::Impl::end_if_drained_from_loop() {
  if (!stopping_ && finished_ < expected_) return;
  for (const Rank& rank : ranks_)
    if (rank.connection && rank.connection->is_open() && !rank.connection->flushed()) return;
  for (const Link& link : links_)
    if (link.connection && link.connection->is_open() && !link.connection->flushed()) return;
  if (!stopping_ && recorder_ && !recorder_->drain()) return;
  stopping_ = true;
  io_.stop();
}

std::string Coordinator::Impl::statistics_json() const {
  const std::int64_t end = ended_ns_ != 0 ? ended_ns_ : now_ns();
  nlohmann::ordered_json json;
  json["ranks"] = options_.world_size;
  json["slots"] = options_.slots;
  json["peak_slots"] = scheduler_.peak_slots();
  json["switches"] = scheduler_.switches();
  json["switches_lower_bound"] = switches_lower_bound_;
  json["grants"] = scheduler_.grants();
  json["messages"] = messages_;
  json["operations"] = operations_;
  json["staged_bytes_peak"] = memory_ ? memory_->control().staged_bytes_peak.load() : 0;
  json["spilled_bytes_peak"] = memory_ ? memory_->control().spilled_bytes_peak.load() : 0;
  if (recorder_ && ended_ns_ != 0 && !first_error_) {
    const auto data = recorder_->statistics();
    json["data"] = {{"tensors", data.tensors},
                    {"bytes", data.bytes},
                    {"distinct", data.distinct},
                    {"stored_bytes", data.stored_bytes},
                    {"write_s", data.seconds}};
  }
  if (emulator_ && ended_ns_ != 0) {
    auto& emulation = json["emulation"] = nlohmann::ordered_json::parse(emulator_->statistics_json());
    emulation["known_values"] = known_;
    if (options_.check_values)
      emulation["checked_values"] = {{"checked", checked_}, {"different", different_}, {"first", first_different_}};
    auto& invented = emulation["invented_values"] = nlohmann::ordered_json::array();
    for (const auto& [what, count] : invented_)
      invented.push_back({{"op", what.first}, {"group", what.second}, {"count", count}});
  }
  json["device_swaps"] = device_swaps_;
  json["device_swap_s"] = static_cast<double>(device_swap_ns_) * 1e-9;
  json["device_swapped_bytes"] = device_swapped_bytes_;
  json["wall_s"] = started_ns_ == 0 ? 0.0 : static_cast<double>(end - started_ns_) * 1e-9;
  return json.dump();
}

}  // namespace prism
