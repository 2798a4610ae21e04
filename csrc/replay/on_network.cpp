#include "replay/on_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace prism::engine {
namespace {

using simulate::Picoseconds;

constexpr Picoseconds kPerNanosecond = 1'000;

Picoseconds to_picoseconds(std::int64_t ns) {
  return ns > simulate::kLatest / kPerNanosecond ? simulate::kNever : ns * kPerNanosecond;
}
std::int64_t to_nanoseconds(Picoseconds at) { return at / kPerNanosecond + (at % kPerNanosecond != 0); }

Error wrong(std::string text) { return {ErrorCode::kInvalidInput, std::move(text)}; }

Result<void> check_options(const NetworkOptions& options, int world_size) {
  const int endpoints = options.topology->endpoints();
  if (options.placement.empty() && endpoints < world_size)
    return wrong(fmt::format("the network has {} endpoints, none for rank {}; accepted: one for each of {} ranks",
                             endpoints, endpoints, world_size));
  if (!options.placement.empty() && options.placement.size() != static_cast<std::size_t>(world_size))
    return wrong(
        fmt::format("endpoints of {} ranks; accepted: one for each of {} ranks", options.placement.size(), world_size));
  for (std::size_t rank = 0; rank < options.placement.size(); ++rank)
    if (options.placement[rank] < 0 || options.placement[rank] >= endpoints)
      return wrong(
          fmt::format("rank {} at endpoint {}; accepted: 0 to {}", rank, options.placement[rank], endpoints - 1));
  if (options.per_node < 1) return wrong(fmt::format("{} ranks a node; accepted: 1 or more", options.per_node));
  if (options.bins < 0 || options.bins > 100'000)
    return wrong(fmt::format("{} bins; accepted: 0 to 100000", options.bins));
  for (const auto& [op, algorithm] : options.algorithms) {
    auto schedule = simulate::make_schedule({.op = op, .members = 2}, algorithm);
    if (!schedule) return schedule.error();
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<OnNetwork>> OnNetwork::make(const Job& job, const NetworkOptions& options) {
  PRISM_RETURN_IF_ERROR(check_options(options, job.graph->world_size()));
  auto by_kind = options;
  by_kind.algorithms.clear();
  for (const auto& [op, algorithm] : options.algorithms) by_kind.algorithms[simulate::kind_of(op)] = algorithm;
  PRISM_ASSIGN_OR_RETURN(auto network, simulate::make_network(options.kind, *options.topology, options.program));
  return std::unique_ptr<OnNetwork>(new OnNetwork(job, std::move(by_kind), std::move(network)));
}

OnNetwork::OnNetwork(const Job& job, NetworkOptions options, std::unique_ptr<simulate::Network> network)
    : job_(job),
      options_(std::move(options)),
      link_use_(options_.topology->links().size(), options_.bins),
      network_(std::move(network)),
      hosts_operate_(!options_.topology->spec().host_operation.empty()),
      words_wait_(options_.topology->spec().queue_bytes != 0) {
  use_network();
}

void OnNetwork::use_network() {
  if (options_.use) network_->observe(link_use_);
  sends_ = network_.get();
  if (options_.flows)
    sends_ = &log_.emplace(*network_, [this](const auto& message) { senders_.push_back(sender_of(message.id)); });
  collectives_.emplace(*sends_);
}

Result<void> OnNetwork::start_over() {
  PRISM_ASSIGN_OR_RETURN(network_, simulate::make_network(options_.kind, *options_.topology, options_.program));
  use_network();
  return {};
}

void OnNetwork::fail(int rank, std::uint32_t part, const Error& error) {
  const Part& own = (*in_flight_)[part];
  const auto& plan = in_flight_->comm(part);
  fail(rank, plan.op, in_flight_->seq(own.rank, own.comm, own.round), in_flight_->group(own.rank, plan), error);
}

void OnNetwork::fail(int rank, Op op, std::int64_t seq, std::uint32_t group, const Error& error) {
  if (!error_)
    error_ = Error{error.code, fmt::format("rank {}: {} {} of group '{}': {}", rank, name(op), seq,
                                           job_.graph->group_name(group), error.message)};
}

void OnNetwork::taken_up(std::uint32_t part, std::int64_t at_ns, std::vector<Ended>& ended) {
  enter(part, at_ns, ended);
}

void OnNetwork::came(std::uint32_t part, std::int64_t at_ns, std::vector<Ended>& ended) {
  const auto at = to_picoseconds(at_ns);
  if (hosts_operate_) {
    if (part >= ready_.size()) ready_.resize(part + 1);
    ready_[part] = at == simulate::kNever ? 0 : sends_->begin_operation(endpoint(rank_of(part)), at);
  }
  if (enters_as_it_comes(part)) enter(part, at_ns, ended);
}

bool OnNetwork::enters_as_it_comes(std::uint32_t part) const {
  const Meeting& meeting = meeting_of(part);
  return is_later_first(simulate::kind_of(meeting.op), meeting.size, job_.model, options_);
}

void OnNetwork::posted(std::uint32_t receive, std::int64_t at_ns) {
  if (!words_wait_) return;
  if (receive >= heard_.size()) heard_.resize(receive + 1);
  heard_[receive] = 0;
  const int rank = rank_of(receive), peer = in_flight_->peer(receive);
  if (peer < 0) return;
  if (const auto same = last_sent_.find({rank, peer}); same != last_sent_.end()) {
    heard_[receive] = simulate::kNever;
    behind_[same->second].push_back(receive);
    return;
  }
  const auto at = to_picoseconds(at_ns);
  heard_[receive] = simulate::later(at, sends_->word_waits(at, endpoint(rank), endpoint(peer)));
}

void OnNetwork::start(std::uint32_t part, std::int64_t at_ns, std::vector<Ended>& ended) {
  // By other rules each member is in since it has been taken up, and its messages find out whom they need.
  if (job_.model.rule(meeting_of(part).op) == StartRule::kLastMember && !enters_as_it_comes(part))
    enter(part, at_ns, ended);
}

void OnNetwork::start_all(std::uint32_t meeting, std::int64_t at_ns, std::vector<Ended>& ended) {
  const auto known = in_flight_->first_part(meeting);
  const auto at = to_picoseconds(at_ns);
  if (at == simulate::kNever) return fail(rank_of(known), known, wrong("later than " + simulate::clock_range()));
  if (hosts_operate_ || enters_as_it_comes(known)) return Carrier::start_all(meeting, at_ns, ended);
  begin(known, at, false);
  if (error_) return;
  check(collectives_->enter_all(run_of_[meeting], at, done_));
  take_done(ended);
}

void OnNetwork::enter(std::uint32_t part, std::int64_t at_ns, std::vector<Ended>& ended) {
  auto at = to_picoseconds(at_ns);
  if (at == simulate::kNever) return fail(rank_of(part), part, wrong("later than " + simulate::clock_range()));
  const auto meeting = (*in_flight_)[part].meeting;
  if (meeting >= run_of_.size()) run_of_.resize(meeting + 1, kNone);
  if (run_of_[meeting] == kNone) begin(part, at, true);
  if (error_) return;
  if (hosts_operate_) at = std::max(at, ready_[part]);
  check(collectives_->enter(run_of_[meeting], static_cast<int>(in_flight_->own_member(part)), at, done_));
  take_done(ended);
}

// Members whose rank is not in the graph come with the first of the others, unless all come at once.
void OnNetwork::begin(std::uint32_t part, Picoseconds at, bool others_come) {
  const Meeting& meeting = meeting_of(part);
  const auto ranks = job_.graph->group_members(meeting.group);
  auto traffic = traffic_of(*in_flight_, meeting, options_);
  auto schedule = simulate::make_schedule(traffic.shape, traffic.algorithm);
  if (!schedule) return fail(rank_of(part), part, schedule.error());
  std::vector<std::int32_t> endpoints;
  for (const auto rank : ranks) endpoints.push_back(endpoint(rank));
  const auto run = collectives_->begin(std::move(schedule).value(), std::move(endpoints), traffic.manner);
  const auto index = (*in_flight_)[part].meeting;
  if (index >= run_of_.size()) run_of_.resize(index + 1, kNone);
  run_of_[index] = run;
  if (run >= runs_.size()) runs_.resize(run + 1);
  runs_[run] = {index, meeting.group, meeting.seq, meeting.op};
  for (std::uint32_t m = 0; others_come && m < meeting.size; ++m)
    if (in_flight_->member(meeting, m) == kNotRecorded) check(collectives_->enter(run, static_cast<int>(m), at, done_));
}

void OnNetwork::check(const Result<void>& of_collectives) {
  if (of_collectives) return;
  const auto& refused = collectives_->refused();
  const auto& run = runs_[refused.run];
  const auto ranks = job_.graph->group_members(run.group);
  fail(ranks[refused.from], run.op, run.seq, run.group,
       wrong(fmt::format("to rank {}: {}", ranks[refused.to], of_collectives.error().message)));
}

void OnNetwork::start_message(std::uint32_t send, std::uint32_t receive, std::int64_t at_ns,
                              std::vector<Ended>& ended) {
  const auto known = send != kNone ? send : receive;
  const auto bytes = in_flight_->comm(known).bytes();
  const auto at = to_picoseconds(at_ns);
  std::uint32_t id = static_cast<std::uint32_t>(messages_.size());
  if (free_messages_.empty()) {
    messages_.emplace_back();
  } else {
    id = free_messages_.back();
    free_messages_.pop_back();
  }
  const Sender sender{send != kNone ? rank_of(send) : in_flight_->peer(receive),
                      receive != kNone ? rank_of(receive) : in_flight_->peer(send),
                      send != kNone ? static_cast<std::int32_t>((*in_flight_)[send].comm) : -1};
  messages_[id] = {send, receive, send != kNone && bytes <= job_.model.send_buffer_bytes, sender, bytes};
  if (at == simulate::kNever) return fail(rank_of(known), known, wrong("later than " + simulate::clock_range()));
  if (receive == kNone || !words_wait_) return this->send(id, at, ended);
  if (heard_[receive] != simulate::kNever) return this->send(id, std::max(at, heard_[receive]), ended);
  unheard_[receive] = id;
}

void OnNetwork::send(std::uint32_t id, Picoseconds at, std::vector<Ended>& ended) {
  const auto& [send, receive, sender_is_done, sender, bytes] = messages_[id];
  if (sender_is_done) ended.push_back({send, to_nanoseconds(at)});
  if (words_wait_) last_sent_[{sender.source, sender.destination}] = id;
  const auto sent = sends_->send(at, {id, endpoint(sender.source), endpoint(sender.destination), bytes});
  if (!sent)
    fail(sender.source, send != kNone ? send : receive,
         wrong(fmt::format("to rank {}: {}", sender.destination, sent.error().message)));
}

Result<void> OnNetwork::advance(std::int64_t until_ns, std::vector<Ended>& ended) {
  const auto until = to_picoseconds(until_ns);
  const auto last = until == simulate::kNever ? until : until - 1;
  while (!error_ && ended.empty()) {
    const auto known = std::min(collectives_->next(), last);
    delivered_.clear();
    if (sends_->next() <= known) PRISM_RETURN_IF_ERROR(sends_->advance(known, delivered_));
    for (const auto& one : delivered_) deliver(one, ended);
    if (!delivered_.empty()) continue;
    if (known == simulate::kNever || collectives_->next() > last) break;
    collectives_->advance(known, done_);
    take_done(ended);
  }
  if (error_) return *error_;
  return {};
}

void OnNetwork::deliver(const simulate::Delivery& delivery, std::vector<Ended>& ended) {
  if ((delivery.id & simulate::Collectives::kMark) != 0) {
    check(collectives_->delivered(delivery, done_));
    return take_done(ended);
  }
  const auto [send, receive, sender_is_done, sender, bytes] = messages_[delivery.id];
  const auto id = static_cast<std::uint32_t>(delivery.id);
  if (words_wait_) {
    const auto last = last_sent_.find({sender.source, sender.destination});
    if (last != last_sent_.end() && last->second == id) last_sent_.erase(last);
    if (auto waiting = behind_.extract(id); !waiting.empty())
      for (const auto part : waiting.mapped()) {
        heard_[part] = delivery.at;
        if (const auto message = unheard_.extract(part); !message.empty())
          this->send(message.mapped(), delivery.at, ended);
      }
  }
  free_messages_.push_back(id);
  for (const auto part : {sender_is_done ? kNone : send, receive})
    if (part != kNone) ended.push_back({part, to_nanoseconds(delivery.at)});
}

void OnNetwork::take_done(std::vector<Ended>& ended) {
  for (const auto& one : done_) {
    const auto& run = runs_[one.run];
    const auto rank = job_.graph->group_members(run.group)[static_cast<std::size_t>(one.member)];
    if (job_.ranks[rank].cls < 0) continue;
    const Meeting& meeting = in_flight_->meeting(run.meeting);
    const auto part = in_flight_->member(meeting, static_cast<std::uint32_t>(one.member));
    auto at = one.at;
    if (job_.model.copies_gathered && simulate::kind_of(meeting.op) == Op::kAllGather)
      at = sends_->copy(endpoint(rank), at, in_flight_->comm(part).bytes());
    ended.push_back({part, to_nanoseconds(at)});
  }
  done_.clear();
}

OnNetwork::Sender OnNetwork::sender_of(std::uint64_t id) const {
  if ((id & simulate::Collectives::kMark) == 0) return messages_[id].sender;
  const auto& between = collectives_->between(id);
  const auto& run = runs_[between.run];
  const auto ranks = job_.graph->group_members(run.group);
  const auto place = in_flight_->place_of(run.group, run.seq, ranks[between.from]);
  return {ranks[between.from], ranks[between.to], place ? static_cast<std::int32_t>(place->comm) : -1};
}

NetworkUse OnNetwork::use() const {
  NetworkUse use;
  const auto links = static_cast<simulate::LinkId>(options_.topology->links().size());
  if (options_.bins > 0) use.bin_ps = link_use_.bin_width();
  for (simulate::LinkId link = 0; link < links; ++link) {
    use.link_bytes.push_back(link_use_.bytes(link));
    use.link_busy_ps.push_back(link_use_.busy(link));
    if (options_.bins > 0) use.link_bytes_by_bin.push_back(link_use_.bytes_by_bin(link));
  }
  if (!log_) return use;
  auto& flows = use.flows;
  for (const auto& flow : log_->flows()) {
    flows.start_ps.push_back(flow.start);
    flows.end_ps.push_back(flow.end);
    flows.bytes.push_back(flow.bytes);
  }
  for (const auto& [source, destination, comm] : senders_) {
    flows.source.push_back(source);
    flows.destination.push_back(destination);
    flows.comm.push_back(comm);
  }
  return use;
}

}  // namespace prism::engine
