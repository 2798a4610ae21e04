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
      run_of_(job.collectives.size(), kNone),
      ready_(options_.topology->spec().host_operation.empty() ? 0 : job.entries, 0),
      heard_(options_.topology->spec().queue_bytes == 0 ? 0 : job.entries, 0) {
  use_network();
}

void OnNetwork::use_network() {
  network_->observe(link_use_);
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

void OnNetwork::fail(int rank, std::uint32_t entry, const Error& error) {
  if (!error_) error_ = Error{error.code, fmt::format("rank {}: {}: {}", rank, describe(job_, entry), error.message)};
}

void OnNetwork::taken_up(std::uint32_t entry, std::int64_t at_ns, std::vector<Ended>& ended) {
  enter(entry, at_ns, ended);
}

void OnNetwork::came(std::uint32_t entry, std::int64_t at_ns, std::vector<Ended>& ended) {
  const auto at = to_picoseconds(at_ns);
  if (!ready_.empty() && at != simulate::kNever)
    ready_[entry] = sends_->begin_operation(endpoint(job_.entry_rank[entry]), at);
  if (enters_as_it_comes(entry)) enter(entry, at_ns, ended);
}

bool OnNetwork::enters_as_it_comes(std::uint32_t entry) const {
  const auto members = job_.collectives[job_.meets[entry]].size;
  return is_later_first(simulate::kind_of(job_.op(entry)), members, job_.model, options_);
}

void OnNetwork::posted(std::uint32_t receive, std::int64_t at_ns) {
  const int rank = job_.entry_rank[receive], peer = job_.peer(receive);
  if (heard_.empty() || peer < 0) return;
  if (const auto same = last_sent_.find({rank, peer}); same != last_sent_.end()) {
    heard_[receive] = simulate::kNever;
    behind_[same->second].push_back(receive);
    return;
  }
  heard_[receive] = simulate::later(to_picoseconds(at_ns), sends_->word_waits(endpoint(rank), endpoint(peer)));
}

void OnNetwork::start(std::uint32_t entry, std::int64_t at_ns, std::vector<Ended>& ended) {
  // By other rules each member is in since it has been taken up, and its messages find out whom they need.
  if (job_.model.rule(job_.op(entry)) == StartRule::kLastMember && !enters_as_it_comes(entry))
    enter(entry, at_ns, ended);
}

void OnNetwork::enter(std::uint32_t entry, std::int64_t at_ns, std::vector<Ended>& ended) {
  const auto at = to_picoseconds(at_ns);
  if (at == simulate::kNever)
    return fail(job_.entry_rank[entry], entry, wrong("later than " + simulate::clock_range()));
  const auto collective = job_.meets[entry];
  if (run_of_[collective] == kNone) begin(collective, at);
  if (error_) return;
  check(collectives_->enter(run_of_[collective], static_cast<int>(job_.entry_member[entry]), std::max(at, ready(entry)),
                            done_));
  take_done(ended);
}

// Members whose rank is not in the graph come with the first of the others.
void OnNetwork::begin(std::uint32_t index, Picoseconds at) {
  const Collective& collective = job_.collectives[index];
  const auto ranks = job_.graph->group_members(collective.group);
  const auto* const entries = job_.member_entry.data() + collective.member_base;
  auto traffic = traffic_of(job_, collective, options_);
  auto schedule = simulate::make_schedule(traffic.shape, traffic.algorithm);
  if (!schedule) {
    const auto known = std::find_if(entries, entries + collective.size, is_entry);
    return fail(job_.entry_rank[*known], *known, schedule.error());
  }
  std::vector<std::int32_t> endpoints;
  for (const auto rank : ranks) endpoints.push_back(endpoint(rank));
  const auto run = collectives_->begin(std::move(schedule).value(), std::move(endpoints), traffic.manner);
  run_of_[index] = run;
  if (run >= collective_of_.size()) collective_of_.resize(run + 1);
  collective_of_[run] = index;
  for (std::uint32_t m = 0; m < collective.size; ++m)
    if (entries[m] == kNotRecorded) check(collectives_->enter(run, static_cast<int>(m), at, done_));
}

void OnNetwork::check(const Result<void>& of_collectives) {
  if (of_collectives) return;
  const auto& refused = collectives_->refused();
  const Collective& collective = job_.collectives[collective_of_[refused.run]];
  const auto ranks = job_.graph->group_members(collective.group);
  const auto* const entries = job_.member_entry.data() + collective.member_base;
  const auto known = *std::find_if(entries, entries + collective.size, is_entry);
  fail(ranks[refused.from], known,
       wrong(fmt::format("to rank {}: {}", ranks[refused.to], of_collectives.error().message)));
}

void OnNetwork::start_message(std::uint32_t send, std::uint32_t receive, std::int64_t at_ns,
                              std::vector<Ended>& ended) {
  const auto known = send != kNone ? send : receive;
  const auto at = to_picoseconds(at_ns);
  std::uint32_t id = static_cast<std::uint32_t>(messages_.size());
  if (free_messages_.empty()) {
    messages_.emplace_back();
  } else {
    id = free_messages_.back();
    free_messages_.pop_back();
  }
  messages_[id] = {send, receive, send != kNone && bytes_of(job_, known) <= job_.model.send_buffer_bytes};
  if (at == simulate::kNever)
    return fail(job_.entry_rank[known], known, wrong("later than " + simulate::clock_range()));
  if (receive == kNone || heard_.empty()) return this->send(id, at, ended);
  if (heard_[receive] != simulate::kNever) return this->send(id, std::max(at, heard_[receive]), ended);
  unheard_[receive] = id;
}

void OnNetwork::send(std::uint32_t id, Picoseconds at, std::vector<Ended>& ended) {
  const auto [send, receive, sender_is_done] = messages_[id];
  const auto known = send != kNone ? send : receive;
  const int source = send != kNone ? job_.entry_rank[send] : job_.peer(receive);
  const int destination = receive != kNone ? job_.entry_rank[receive] : job_.peer(send);
  if (sender_is_done) ended.push_back({send, to_nanoseconds(at)});
  if (!heard_.empty()) last_sent_[{source, destination}] = id;
  const auto sent = sends_->send(at, {id, endpoint(source), endpoint(destination), bytes_of(job_, known)});
  if (!sent) fail(source, known, wrong(fmt::format("to rank {}: {}", destination, sent.error().message)));
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
  const auto [send, receive, sender_is_done] = messages_[delivery.id];
  const auto id = static_cast<std::uint32_t>(delivery.id);
  if (!heard_.empty()) {
    const std::pair ends{job_.entry_rank[send != kNone ? send : receive], job_.peer(send != kNone ? send : receive)};
    const auto last = last_sent_.find(send != kNone ? ends : std::pair{ends.second, ends.first});
    if (last != last_sent_.end() && last->second == id) last_sent_.erase(last);
    if (auto waiting = behind_.extract(id); !waiting.empty())
      for (const auto entry : waiting.mapped()) {
        heard_[entry] = delivery.at;
        if (const auto message = unheard_.extract(entry); !message.empty())
          this->send(message.mapped(), delivery.at, ended);
      }
  }
  free_messages_.push_back(id);
  for (const auto entry : {sender_is_done ? kNone : send, receive})
    if (entry != kNone) ended.push_back({entry, to_nanoseconds(delivery.at)});
}

void OnNetwork::take_done(std::vector<Ended>& ended) {
  for (const auto& one : done_) {
    const Collective& collective = job_.collectives[collective_of_[one.run]];
    const auto entry = job_.member_entry[collective.member_base + static_cast<std::uint32_t>(one.member)];
    if (!is_entry(entry)) continue;
    auto at = one.at;
    if (job_.model.copies_gathered && simulate::kind_of(collective.op) == Op::kAllGather)
      at = sends_->copy(endpoint(job_.entry_rank[entry]), at, bytes_of(job_, entry));
    ended.push_back({entry, to_nanoseconds(at)});
  }
  done_.clear();
}

OnNetwork::Sender OnNetwork::sender_of(std::uint64_t id) const {
  if ((id & simulate::Collectives::kMark) == 0) {
    const auto send = messages_[id].send, receive = messages_[id].receive;
    return {send != kNone ? job_.entry_rank[send] : job_.peer(receive),
            receive != kNone ? job_.entry_rank[receive] : job_.peer(send),
            send != kNone ? static_cast<std::int32_t>(job_.comm_of(send)) : -1};
  }
  const auto& between = collectives_->between(id);
  const Collective& collective = job_.collectives[collective_of_[between.run]];
  const auto ranks = job_.graph->group_members(collective.group);
  const auto entry = job_.member_entry[collective.member_base + static_cast<std::uint32_t>(between.from)];
  return {ranks[between.from], ranks[between.to],
          is_entry(entry) ? static_cast<std::int32_t>(job_.comm_of(entry)) : -1};
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
