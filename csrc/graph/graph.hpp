// ExecutionGraph: what a training job did, per rank, and what depends on what.
//
// A graph is immutable and may be read from any thread. Its columns are either owned vectors (from a GraphBuilder) or a
// read-only mapping of a .prism file (from open_trace); all views stay valid as long as the graph lives.
//
// What is as large as the job (ranks, groups, slots) is checked when a file is opened. What is as large as its nodes is
// checked per class and per rank before its first use, once. The accessors of such columns give views of zero length
// where the check fails: nobody ever sees an index that is out of range. Call check_rank() before using a rank of a
// file, or open it with Check::kAll, to get the error.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/result.hpp"
#include "core/vocabulary.hpp"

namespace prism {

enum class NodeKind : std::uint8_t {
  kCompute,   // the lane's thread or stream worked
  kIssue,     // host time in which a communication was handed to the backend, on the issuing lane
  kTransfer,  // the communication itself; start = own issue's end, end = when this member was done
  kWait,      // the lane waited for a communication
  kCount
};
std::string_view name(NodeKind kind);  // "compute", "issue", "transfer", "wait"

enum CommFlags : std::uint8_t {
  kCommAsync = 1,   // async_op=True
  kCommIsRoot = 2,  // this rank is the root of a rooted operation
};

inline constexpr std::uint32_t kNoName = 0xffffffffu;

// Structure of one rank class (ranks that differ only in their times, groups and peers). Nodes stand lane after lane
// (so that the order does not depend on how threads raced), those of one lane in program order; consecutive nodes of a
// lane depend on each other, except transfers: a transfer stands behind its issue, on the issuing lane, starts when the
// issue ends and does not hold the lane. Edges may lead backwards in node order. All other dependencies are in `edge_*`
// (issue -> transfer, transfer -> wait, hand-overs between threads): edge_src ends before edge_dst starts (for a wait:
// before it ends). Columns of one group have equal length.
struct ClassView {
  // [nodes]
  std::span<const std::uint8_t> node_kind;   // NodeKind
  std::span<const std::uint16_t> node_lane;  // index into lane_name
  std::span<const std::int32_t> node_comm;   // index into comm_*, or -1
  std::span<const std::uint32_t> node_name;  // string id, or kNoName
  // [comms], lane by lane in issue order
  std::span<const std::uint8_t> comm_op;         // Op
  std::span<const std::uint8_t> comm_dtype;      // DType
  std::span<const std::uint8_t> comm_reduce_op;  // ReduceOp
  std::span<const std::uint8_t> comm_flags;      // CommFlags
  std::span<const std::uint32_t> comm_group;     // group slot of the class, see ExecutionGraph::group_of_slot
  std::span<const std::int64_t>
      comm_seq;  // collectives: order in the group; messages: order among (peer, tag, direction)
  std::span<const std::int32_t>
      comm_peer;  // messages: peer slot (rank_of_peer_slot; -1 any source); rooted: root's group rank; else -1
  std::span<const std::int32_t> comm_tag;           // messages: tag; else 0
  std::span<const std::int32_t> comm_batch;         // operations issued as one coalesced batch share a number; else -1
  std::span<const std::int64_t> comm_input_bytes;   // bytes this member puts in
  std::span<const std::int64_t> comm_output_bytes;  // bytes this member gets out
  // [edges]
  std::span<const std::uint32_t> edge_src, edge_dst;  // node indices of this class
  // [iterations]: first node of each iteration; may be empty
  std::span<const std::uint32_t> mark_node;
  // [lanes]: string ids
  std::span<const std::uint32_t> lane_name;
};

// Times of one rank, one entry a node of its class; integer nanoseconds of that rank's clock.
struct TimingView {
  std::span<const std::int64_t> start_ns, duration_ns;  // [nodes]
};

// Memory of one rank as a step function over its nodes: at the end of node[i] `bytes[i]` were in use and at most
// `peak[i]` since the previous step. Sparse: only nodes at which something changed.
struct MemoryView {
  std::span<const std::uint32_t> node;
  std::span<const std::int64_t> bytes, peak;
};

class ExecutionGraph {
 public:
  struct Impl;
  explicit ExecutionGraph(std::shared_ptr<const Impl> impl);
  ~ExecutionGraph();
  ExecutionGraph(const ExecutionGraph&) = default;

  int world_size() const;
  // Free-form provenance and options, a JSON object: program, torch version, backend, host, clock_domain per rank, ...
  const std::string& metadata_json() const;
  // "gloo", "nccl" or "conservative"; how communication progressed where this was recorded.
  const std::string& progress_model() const;
  // True where the times are those of a real run (record) or of calibration; false for a bare graph, whose spans are
  // indicative processor time and whose transfers have no duration.
  bool timed() const;
  std::string_view string(std::uint32_t id) const;

  // Groups: id -> name and members (global ranks, in group-rank order).
  std::size_t group_count() const;
  std::string_view group_name(std::uint32_t group) const;
  std::span<const std::int32_t> group_members(std::uint32_t group) const;

  // Classes and ranks. A rank that was not recorded has class -1.
  std::size_t class_count() const;
  int class_of(int rank) const;
  const ClassView& class_view(int cls) const;
  std::uint32_t group_of_slot(int rank, std::uint32_t slot) const;
  int rank_of_peer_slot(int rank, std::uint32_t slot) const;
  // Of zero length where the trace has none. A rank of a class that did not run itself has the times and the memory of
  // the first one that did.
  TimingView timing(int rank) const;
  bool has_own_times(int rank) const;
  MemoryView memory(int rank) const;
  // The rank's slots as a whole: slot -> group, slot -> global rank.
  std::span<const std::uint32_t> group_slots(int rank) const;
  std::span<const std::int32_t> peer_slots(int rank) const;

  // The values of this rank's class, times and memory, checked now if they have not been; O(1) afterwards. A rank that
  // was not recorded is in order. Errors are kCorruptFile and name file, class or rank, field, index and value.
  Result<void> check_rank(int rank) const;

  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

enum class Check {
  kHeader,  // header, place of every column, ranks, groups, slots: O(header + ranks), not O(nodes)
  kAll,     // and validate()
};
// Opens a .prism file by mapping it. The file must not be shortened while the graph lives (write_trace never does; it
// replaces files). Errors name file, field and value: kIo where the system refuses, else kCorruptFile.
Result<ExecutionGraph> open_trace(const std::string& path, Check check = Check::kHeader);
// Every value of every class and rank (ids in range, lanes ordered, times non-negative, no cycle in program order and
// edges), then across ranks: every collective has all its members with one operation, reduction and root, every send
// its receive, message peers are members of the group (the former two skipped for groups with unrecorded members).
Result<void> validate(const ExecutionGraph& graph);
// Writes a temporary file beside `path` and renames it: `path` is absent or complete, after a power failure too if
// `durable`. Fails on a full disk with kIo.
Result<void> write_trace(const ExecutionGraph& graph, const std::string& path, bool durable = true);

}  // namespace prism
