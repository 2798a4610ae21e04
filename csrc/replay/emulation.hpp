// Emulation: some ranks of a graph are real programs, the others are executed here (emulation.md, section 5). Causal:
// what a real rank does when it is late, or early, moves whoever waits for it, and comes back to it.
//
// A real rank that goes on beyond the record finds the virtual ones doing their last period again (loop.hpp). How long
// the job is nobody says before: whenever it becomes known, virtual ranks have done what they do in that case from the
// beginning, given all that real ranks have issued so far.
//
// Time is emulated time, ns from 0, the start of the job; who calls decides how it goes on. One thread.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary.hpp"
#include "replay/replay.hpp"

namespace prism {

class EmulationCalls;

class Emulation {
 public:
  struct Options {
    std::vector<int> sandbox;  // ranks that are real
    ClosedFormLinks links = {};
    std::optional<NetworkOptions> network = {};  // else transfers take the graph's own times, or the closed form
    bool warn_on_divergence = false;             // sizes and types may differ from the graph's
  };
  // A communication as a real rank issues it.
  struct Call {
    std::string_view group;  // name
    Op op = Op::kNone;
    DType dtype = DType::kNone;
    ReduceOp reduce_op = ReduceOp::kNone;
    std::int32_t root = -1;  // group rank
    std::int32_t peer = -1;  // global rank; -1: any source
    std::int32_t tag = 0;
    std::int64_t number = 0;  // as ClassView::comm_seq counts
    std::int64_t input_bytes = 0, output_bytes = 0;
  };
  struct Released {
    std::int32_t rank;
    std::uint32_t comm;  // as find() gave it
    std::int64_t at_ns;
  };

  // kInvalidInput: ranks that are not in the graph, or none, no times, and as replay().
  static Result<std::unique_ptr<Emulation>> make(ExecutionGraph graph, const Options& options);
  ~Emulation();

  const std::vector<int>& sandbox() const { return options_.sandbox; }
  const ExecutionGraph& graph() const { return graph_; }
  bool warns_on_divergence() const { return options_.warn_on_divergence; }
  // The rank's communication that this is, each once; numbers go on beyond the record. kMismatch: the graph has none,
  // or another one: the first difference. This and what follows up to differences() may be called by another thread
  // than the rest.
  Result<std::uint32_t> find(int rank, const Call& call);
  // Whether the record has it; else nobody knows what virtual ranks put in.
  bool is_recorded(int rank, std::uint32_t comm) const;
  // Of the rank: "all_reduce 3 of group 'tp0' (float32, sum, 4096 bytes)".
  std::string describe(int rank, std::uint32_t comm) const;
  // Communications of a real rank that it would still have to issue if it ended now.
  std::size_t left_of(int rank) const;
  // "rank 3 has not issued all_reduce 14 ...", for a program that ended before its trace does; "" where nothing is
  // left.
  std::string first_left(int rank) const;
  // Differences that were only warned of.
  const std::vector<std::string>& differences() const;

  // Issued, now or later; a time that lies in the past is taken to be the present, and that much late.
  Result<void> arrived(int rank, std::uint32_t comm, std::int64_t at_ns);
  // Time goes on until just before `until_ns`, or the end of the first moment at which something ends for a real rank.
  Result<void> advance(std::int64_t until_ns, std::vector<Released>& released);
  // The time to which everything is decided.
  std::int64_t now_ns() const { return now_ns_; }
  // By how much issues came after the time that was decided already; 0 unless the caller let time run ahead, or what
  // virtual ranks were taken to do before the job's length was known had been seen.
  std::int64_t late_ns() const { return late_ns_; }
  // Groups of the job: all of them, those with a real rank, and of these those with virtual ones as well.
  struct Groups {
    std::size_t total = 0, with_sandbox = 0, mixed = 0;
  };
  Groups groups() const;
  // kDeadlock, with who waits for whom.
  Error explain_deadlock() const;

 private:
  struct Parts;
  struct Issue {  // or an end
    std::int64_t at_ns;
    std::int32_t rank;
    std::uint32_t comm;  // as the engine numbers it
    auto operator<=>(const Issue&) const = default;
  };
  Emulation(ExecutionGraph graph, Options options);
  Result<void> prepare();
  Result<void> start();
  Result<void> start_again();
  void rename_known();
  Result<void> do_again();
  bool is_new(const Issue& ended);
  Released as_found(const Issue& ended);

  const ExecutionGraph graph_;
  const Options options_;
  std::unique_ptr<Parts> parts_;
  std::unique_ptr<EmulationCalls> calls_;
  std::set<Issue> to_come_;
  std::int64_t now_ns_ = 0, late_ns_ = 0;
  std::vector<Issue> issued_, released_;  // until it is known how long the job is
  // While the job has no end, as far as is known: for whom all real ranks wait would have come by then.
  std::int64_t patience_ns_ = 0, patient_until_ns_ = 0;
};

}  // namespace prism
