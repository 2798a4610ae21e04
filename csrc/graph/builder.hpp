// GraphBuilder: from what each rank recorded to an ExecutionGraph with rank classes.
// Not thread-safe; owned by whoever merges a run.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace prism {

// One rank's recording in its own terms: group indices into `groups`, peers as global ranks, lanes as indices into
// `lanes`. The columns have the meaning and order that ClassView gives them.
struct RankRecord {
  struct Group {
    std::string name;                   // unique in the job
    std::vector<std::int32_t> members;  // global ranks, group-rank order
  };
  struct Node {
    NodeKind kind = NodeKind::kCompute;
    std::uint16_t lane = 0;
    std::int32_t comm = -1;
    std::string_view name = {};  // interned by the builder; empty for none; must outlive add()
    std::int64_t start_ns = 0, duration_ns = 0;
  };
  struct Comm {
    Op op = Op::kNone;
    DType dtype = DType::kNone;
    ReduceOp reduce_op = ReduceOp::kNone;
    std::uint8_t flags = 0;
    std::uint32_t group = 0;  // index into groups
    std::int64_t seq = 0;
    std::int32_t peer = -1;  // messages: GLOBAL rank of the peer (-1 any source); rooted: root's group rank
    std::int32_t tag = 0;
    std::int32_t batch = -1;
    std::int64_t input_bytes = 0, output_bytes = 0;
  };
  struct Edge {
    std::uint32_t src, dst;
  };
  struct MemoryStep {
    std::uint32_t node;
    std::int64_t bytes, peak;
  };

  std::int32_t rank = -1;
  std::vector<std::string> lanes;
  std::vector<Group> groups;
  std::vector<Node> nodes;
  std::vector<Comm> comms;
  std::vector<Edge> edges;
  std::vector<std::uint32_t> marks;
  std::vector<MemoryStep> memory;
};

class GraphBuilder {
 public:
  struct Options {
    int world_size = 0;
    std::string progress_model = "conservative";
    bool timed = false;
    std::string metadata_json = "{}";
  };
  explicit GraphBuilder(Options options);
  ~GraphBuilder();
  // Checks the record (indices, own rank in its groups, group agreement with earlier ranks) and finds its class.
  Result<void> add(const RankRecord& record);
  // The number of a group, new or known.
  Result<std::uint32_t> add_group(const RankRecord::Group& group);
  // A rank that did what `like`, added before, did: in these groups (numbers) and with these peers, slot by slot. It
  // has no times and no memory of its own: see ExecutionGraph::timing().
  Result<void> add_alike(std::int32_t rank, std::int32_t like, std::vector<std::uint32_t> groups,
                         std::vector<std::int32_t> peers);
  Result<ExecutionGraph> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The inverse, for merging and editing: one rank of a graph in its own terms. Node names point into the graph.
Result<RankRecord> extract(const ExecutionGraph& graph, int rank);
// Ranks that were not recorded, each with one that was and that it is like; see GraphBuilder::add_alike.
struct AlikeRank {
  std::int32_t rank, like;
  std::vector<std::uint32_t> groups;  // index into Alike::groups
  std::vector<std::int32_t> peers;
};
struct Alike {
  std::vector<RankRecord::Group> groups;
  std::vector<AlikeRank> ranks;
};
// Joins fragments (each usually holding one rank) of one run into one trace file. Options come from the caller.
Result<ExecutionGraph> merge_fragments(const std::vector<std::string>& paths, GraphBuilder::Options options,
                                       const Alike& alike = {});
// `base` with the compute spans that ranks showed in `fragments`, in which each ran alone: what they waited and what
// communication took counts as nothing, and iterations are base's. A rank without a fragment keeps base's times where
// it is timed, else it has those of one of its class that has a fragment (kInvalidInput where none has). Whether the
// fragments are of base's structure is for first_difference() to say.
Result<ExecutionGraph> with_spans_of(const ExecutionGraph& base, const std::vector<std::string>& fragments,
                                     std::string metadata_json);

}  // namespace prism
