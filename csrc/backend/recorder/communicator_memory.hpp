// What NCCL would hold of a rank's device for the buffers of its communicators: a model, whose figures and their
// sources are in docs/memory.md. They come as NCCL connects, with the first communication of a kind.
//
// Any thread; one short lock.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "core/vocabulary.hpp"

namespace prism {

// Bytes, and numbers of channels; the defaults are those of NCCL 2.28.9 on nodes of 8 GPUs that NVLink joins.
struct NcclBuffers {
  // What the variables say by which NCCL is told otherwise: NCCL_BUFFSIZE and its like, NCCL_MIN_CTAS, NCCL_MAX_CTAS.
  static NcclBuffers from_environment();

  std::int64_t ll = 524'288, ll128 = 4'915'200, simple = 4'194'304;  // of a connection, one for each protocol
  std::int64_t network_chunk = 131'072;                              // of messages between nodes
  int channels_in_node = 24, channels_across_nodes = 16;
};

// Where a communicator's members are, as one of them sees it.
struct Placement {
  int in_node = 1;  // members in its node, with itself
  int nodes = 1;
};

// What one member has connected.
struct Connected {
  bool ring = false;                     // for collectives
  int to_in_node = 0, from_in_node = 0;  // peers of messages
  bool to_other_nodes = false, from_other_nodes = false;
};

// Bytes that it holds of its device.
std::int64_t nccl_bytes(const Placement& placement, const Connected& connected, const NcclBuffers& buffers = {});

class CommunicatorMemory {
 public:
  struct Options {
    int rank = 0, ranks_per_node = 1;
    std::int64_t each = -1;  // bytes of each group, whatever its backend; -1: by the model
  };
  struct Use {
    const std::string& group;  // its unique name
    std::span<const std::int32_t> members = {};
    Op op = Op::kNone;
    std::int32_t peer = -1;  // messages: the other end; rooted operations: the root. Members are global ranks, this too
    bool batched = false;    // several messages as one
    bool nccl = false;       // the backend; others hold nothing of a device
  };

  explicit CommunicatorMemory(Options options) : options_(std::move(options)) {}

  // `take` is told what comes with this use, where anything does; where it says no, the use has not been.
  bool use(const Use& use, const std::function<bool(std::int64_t bytes)>& take);
  // The group's end; what its communicators held.
  std::int64_t drop(const std::string& group);

 private:
  struct Communicator {
    bool ring = false;
    std::set<std::int32_t> to, from;  // global ranks
    std::int64_t bytes = 0;
  };
  std::int64_t bytes_of(const Communicator& communicator, std::span<const std::int32_t> members) const;
  int node_of(std::int32_t rank) const { return rank / options_.ranks_per_node; }

  const Options options_;
  std::mutex mutex_;
  std::optional<NcclBuffers> buffers_;  // as the environment is at the first use: programs set it
  // By group, and within it by the peer with whom two ranks have a communicator of their own; -1: the group's.
  std::map<std::string, std::map<std::int32_t, Communicator>> groups_;
};

}  // namespace prism
