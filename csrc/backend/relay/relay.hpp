// Relay: stands in for the coordinator on another host of a capture. Its ranks connect to it as they would to the
// coordinator and share its memory; it passes on what they say over one TCP connection, with the bytes of their
// tensors. run() is one Boost.Asio event loop that owns all state.
#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "core/result.hpp"

namespace prism {

class Relay {
 public:
  struct Options {
    std::string address;  // name of the abstract Unix socket to listen on; only processes of this user are let in
    int link_fd = -1;     // a TCP socket that is connected to the coordinator; taken over
    int host = 1;         // this one's number among Coordinator::Options::hosts
    int world_size = 1, first_rank = 0, ranks = 1;  // ranks of this host
    std::string proof, coordinators_proof;          // see Coordinator::Host
    std::uint64_t memory_budget_bytes = 0;          // the rest as in Coordinator::Options
    std::string spill_directory;
    bool must_spill = false;
    std::chrono::nanoseconds host_timeout = std::chrono::seconds(10);
    std::chrono::nanoseconds join_timeout = std::chrono::minutes(5);  // until the coordinator greets it
    std::uint64_t address_space_bytes = 16ull << 40;
  };
  explicit Relay(Options options);
  ~Relay();
  // Serves until the coordinator closes the connection. An error unless all ranks of this host have finished by then.
  Result<void> run();
  // After run(): whether its error is one that the coordinator has told.
  bool was_told() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace prism
