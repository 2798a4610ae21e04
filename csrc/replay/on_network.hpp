// The carrier whose messages share a network: a message of a graph is one of the network, a collective is as many as
// its algorithm sends.
//
// The engine counts nanoseconds, the network picoseconds. What starts at t ns leaves at 1,000 t ps; what ends between
// two nanoseconds ends for the engine at the later one: at the earlier one it has not ended, and what the engine then
// did would be in the network's past.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "replay/carrier.hpp"
#include "replay/traffic.hpp"
#include "simulate/flow_log.hpp"
#include "simulate/link_use.hpp"

namespace prism::engine {

class OnNetwork final : public Carrier {
 public:
  // kInvalidInput: fewer endpoints than ranks, an algorithm that is none. Errors as of simulate::make_network().
  static Result<std::unique_ptr<OnNetwork>> make(const Job& job, const NetworkOptions& options);

  void came(std::uint32_t part, std::int64_t at_ns, std::vector<Ended>& ended) override;
  void taken_up(std::uint32_t part, std::int64_t at_ns, std::vector<Ended>& ended) override;
  void posted(std::uint32_t part, std::int64_t at_ns) override;
  void start(std::uint32_t part, std::int64_t at_ns, std::vector<Ended>& ended) override;
  void start_all(std::uint32_t meeting, std::int64_t at_ns, std::vector<Ended>& ended) override;
  void start_message(std::uint32_t send, std::uint32_t receive, std::int64_t at_ns, std::vector<Ended>& ended) override;
  void over(std::uint32_t meeting) override { run_of_[meeting] = kNone; }
  Result<void> advance(std::int64_t until_ns, std::vector<Ended>& ended) override;
  Result<void> start_over() override;
  bool overdue() const override { return messages_.size() > free_messages_.size() || collectives_->under_way(); }

  NetworkUse use() const;

 private:
  struct Sender {
    std::int32_t source, destination, comm;  // as in NetworkUse::Flows
  };
  struct Ends {
    std::uint32_t send, receive;  // parts, or kNone
    bool sender_is_done;
    Sender sender;
    std::int64_t bytes;
  };
  // Of collectives; they may go on when the members that are in the graph are done.
  struct Run {
    std::uint32_t meeting, group;
    std::int64_t seq;
    Op op;
  };
  OnNetwork(const Job& job, NetworkOptions options, std::unique_ptr<simulate::Network> network);
  void use_network();
  void send(std::uint32_t message, simulate::Picoseconds at, std::vector<Ended>& ended);
  void enter(std::uint32_t part, std::int64_t at_ns, std::vector<Ended>& ended);
  // Whether its messages look for each other from then on, although the rule is the last member's.
  bool enters_as_it_comes(std::uint32_t part) const;
  void begin(std::uint32_t part, simulate::Picoseconds at, bool others_come);
  void take_done(std::vector<Ended>& ended);
  void deliver(const simulate::Delivery& delivery, std::vector<Ended>& ended);
  // Errors of the network and of schedules, with whose they are.
  void fail(int rank, std::uint32_t part, const Error& error);
  void fail(int rank, Op op, std::int64_t seq, std::uint32_t group, const Error& error);
  void check(const Result<void>& of_collectives);
  int rank_of(std::uint32_t part) const { return (*in_flight_)[part].rank; }
  const Meeting& meeting_of(std::uint32_t part) const { return in_flight_->meeting((*in_flight_)[part].meeting); }
  int endpoint(int rank) const { return options_.placement.empty() ? rank : options_.placement[rank]; }
  Sender sender_of(std::uint64_t message) const;

  const Job& job_;
  const NetworkOptions options_;  // operations of `algorithms` by kind
  simulate::LinkUse link_use_;
  std::unique_ptr<simulate::Network> network_;
  std::optional<simulate::FlowLog> log_;
  simulate::Network* sends_ = nullptr;  // the log, or the network
  std::optional<simulate::Collectives> collectives_;
  std::vector<std::uint32_t> run_of_;         // [meetings]: kNone until somebody starts
  const bool hosts_operate_;                  // members are ready for messages only when their host is
  std::vector<simulate::Picoseconds> ready_;  // [parts] when that is
  // Where words wait behind what is sent (TopologySpec::queue_bytes). Behind what goes to the same rank a word waits
  // until all of that has arrived: it is on the same connection.
  const bool words_wait_;
  std::vector<simulate::Picoseconds> heard_;  // [parts] when a receive's sender knows of it; kNever: that is not known
  std::map<std::pair<std::int32_t, std::int32_t>, std::uint32_t>
      last_sent_;                                                         // message under way by (source, destination)
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> behind_;  // receives by the message that they wait for
  std::unordered_map<std::uint32_t, std::uint32_t> unheard_;              // messages that could start, by their receive
  std::vector<Run> runs_;                                                 // as simulate::Collectives numbers them
  std::vector<Ends> messages_;                                            // by id
  std::vector<std::uint32_t> free_messages_;
  std::vector<Sender> senders_;  // of the log's flows
  std::optional<Error> error_;   // the first one
  std::vector<simulate::Delivery> delivered_;
  std::vector<simulate::Collectives::Done> done_;
};

}  // namespace prism::engine
