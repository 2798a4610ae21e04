// Coordinator: the one process that decides which logical rank runs, matches their operations and serves their store.
// run() is one Boost.Asio event loop that owns all state; a single executor thread does the arithmetic; nothing is left
// behind when it ends (abstract socket, memfd).
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/coordinator/executor.hpp"
#include "backend/coordinator/scheduler.hpp"
#include "backend/device/residency.hpp"
#include "core/result.hpp"
#include "replay/emulation.hpp"

namespace prism {

class Coordinator {
 public:
  // The next `ranks` ranks are processes of this host and share its slots.
  struct Host {
    std::string name;
    int ranks = 0, slots = 0;
    std::string proof, our_proof;  // of the run's secret, to be shown by its relay, and to be shown to it
  };
  struct Options {
    std::string address;  // name of the abstract Unix socket to listen on; only processes of this user are let in
    int world_size = 1;
    int slots = 1;
    std::vector<Host> hosts;  // the first is this one; none: this one, with all ranks and `slots`
    int link_fd = -1;         // a TCP socket that listens, for the relays of the other hosts; taken over
    std::chrono::nanoseconds host_timeout = std::chrono::seconds(10);  // a host that is silent for so long is lost
    Schedule schedule = Schedule::kByNeed;
    std::uint64_t memory_budget_bytes = 0;  // for staged tensors; 0: three quarters of what is available at start
    std::string spill_directory;            // on a disk, for tensors beyond the budget; "": they are an error
    bool must_spill = false;                // a folder that does not serve is an error at once
    std::string data_directory;  // empty folder to record communications' tensors into; "": they are not kept
    std::optional<std::vector<std::int32_t>> data_for_ranks;  // only what these receive; ascending
    bool data_of_whole_numbers = false;                       // only tensors of integers and bool
    std::uint64_t data_limit_bytes = 0;                       // more, equal ones once, is an error; 0: no limit
    std::chrono::nanoseconds operation_timeout = std::chrono::minutes(30);
    std::chrono::nanoseconds lend_after = std::chrono::milliseconds(2);  // a holder without processor time lends
    std::chrono::nanoseconds maximal_tenure =
        std::chrono::milliseconds(100);  // of a spinning holder that others wait behind
    std::chrono::nanoseconds join_timeout = std::chrono::minutes(5);
    std::vector<int> device_of_rank;  // empty: no accelerator; else each slot is of one device, in turn
    SwapMode swap_mode = SwapMode::kNever;
    std::shared_ptr<DeviceSwap> device_swap;  // viable, unless kNever
    // Where not null: its sandbox are the ranks that come; the others are virtual. Takes one slot for each that comes.
    std::shared_ptr<Emulation> emulation;
    bool check_values = false;   // whether real ranks send what they sent when `emulation_data` was recorded
    std::string emulation_data;  // what virtual members put in, a folder of `prism capture --data`; "": made up
    // A pipe whose other end is open as long as ranks may still come: not all need to. -1: all come, and soon.
    int more_ranks_fd = -1;                           // taken over
    std::uint64_t address_space_bytes = 16ull << 40;  // reserved, not used, for the ranks' windows of shared memory
  };
  Coordinator(Options options, std::shared_ptr<Executor> executor);
  ~Coordinator();
  // Serves until every rank has finished, or the first error. The error's text is the report for people: first cause
  // first, then per rank the operation it waits in and who is missing.
  Result<void> run();
  // From any thread (one that waits for signals, too; not from inside a signal handler): ends the run with this as its
  // first error.
  void abort(Error error);
  // After run(): a JSON object: switches, switches_lower_bound, operations, messages, staged_bytes_peak,
  // spilled_bytes_peak, device_swaps, device_swap_s, ..., and, where tensors were recorded, data: tensors, bytes,
  // distinct, stored_bytes, write_s.
  std::string statistics_json() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace prism
