#include "backend/recorder/communicator_memory.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <initializer_list>

namespace prism {
namespace {

constexpr std::int64_t kPage = 2 << 20;  // of the device, in which buffers are allocated
constexpr std::int64_t kHeader = 4096;   // counters at the head of a buffer
constexpr int kSharedSteps = 16;         // pieces of a channel that messages between nodes share
constexpr std::int64_t kMostChannels = 64;

std::int64_t in_pages(std::int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// The two ends of a connection, on one channel.
struct Ends {
  std::int64_t send, receive;
};
Ends in_node(const NcclBuffers& b) { return {in_pages(kHeader), in_pages(kHeader + b.ll + b.ll128 + b.simple)}; }
Ends across_nodes(const NcclBuffers& b) { return {in_pages(b.ll128 + b.simple), in_pages(b.ll + b.ll128 + b.simple)}; }

// Of a ring through all members: each node has a link less within than members, one in and one out; the channels take
// turns at whose they are.
std::int64_t ring_bytes(const Placement& placement, int channels, const NcclBuffers& buffers) {
  const Ends near = in_node(buffers), far = across_nodes(buffers);
  const std::int64_t of_link = near.send + near.receive;
  if (placement.nodes == 1) return placement.in_node > 1 ? channels * of_link : 0;
  const std::int64_t of_node = (placement.in_node - 1) * of_link + far.send + far.receive;
  return (channels * of_node + placement.in_node - 1) / placement.in_node;
}

enum class Way { kRing, kSends, kReceives, kBoth };

// As torch's NCCL backend makes them: what has no collective of NCCL's is messages.
Way way_of(Op op, bool is_root) {
  switch (op) {
    case Op::kSend:
      return Way::kSends;
    case Op::kRecv:
      return Way::kReceives;
    case Op::kGather:
      return is_root ? Way::kReceives : Way::kSends;
    case Op::kScatter:
      return is_root ? Way::kSends : Way::kReceives;
    case Op::kAllToAll:
    case Op::kAllToAllSingle:
      return Way::kBoth;
    default:
      return Way::kRing;
  }
}

// A whole number above 0 in the first of these variables that has one.
std::optional<std::int64_t> variable(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    const std::int64_t value = text ? std::strtoll(text, nullptr, 0) : 0;
    if (value > 0) return std::min<std::int64_t>(value, std::int64_t{1} << 40);
  }
  return std::nullopt;
}

}  // namespace

NcclBuffers NcclBuffers::from_environment() {
  NcclBuffers b;
  b.ll = variable({"NCCL_LL_BUFFSIZE"}).value_or(b.ll);
  b.ll128 = variable({"NCCL_LL128_BUFFSIZE"}).value_or(b.ll128);
  b.simple = variable({"NCCL_BUFFSIZE"}).value_or(b.simple);
  b.network_chunk = variable({"NCCL_P2P_NET_CHUNKSIZE"}).value_or(b.network_chunk);
  const auto most =
      std::min<std::int64_t>(variable({"NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS"}).value_or(kMostChannels), kMostChannels);
  const auto least =
      std::min<std::int64_t>(variable({"NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS"}).value_or(1), kMostChannels);
  for (int* channels : {&b.channels_in_node, &b.channels_across_nodes})  // in this order, as NCCL
    *channels = static_cast<int>(std::max(std::min<std::int64_t>(*channels, most), least));
  return b;
}

std::int64_t nccl_bytes(const Placement& placement, const Connected& connected, const NcclBuffers& buffers) {
  const int channels = placement.nodes > 1 ? buffers.channels_across_nodes : buffers.channels_in_node;
  const auto of_messages = static_cast<std::int64_t>(std::bit_ceil(static_cast<unsigned>(channels)));
  const std::int64_t of_peer = placement.nodes > 1 ? std::min<std::int64_t>(2, of_messages) : of_messages;
  const std::int64_t shared = of_messages * kSharedSteps * buffers.network_chunk;
  const Ends near = in_node(buffers);
  return (connected.ring ? ring_bytes(placement, channels, buffers) : 0) +
         of_peer * (connected.to_in_node * near.send + connected.from_in_node * near.receive) +
         shared * (connected.to_other_nodes + connected.from_other_nodes);
}

std::int64_t CommunicatorMemory::bytes_of(const Communicator& communicator,
                                          std::span<const std::int32_t> members) const {
  const int own = node_of(options_.rank);
  std::set<int> nodes;
  Placement placement{.in_node = 0};
  for (const auto member : members) {
    nodes.insert(node_of(member));
    placement.in_node += node_of(member) == own;
  }
  placement.nodes = static_cast<int>(nodes.size());
  Connected connected{.ring = communicator.ring};
  for (const auto peer : communicator.to)
    node_of(peer) == own ? void(++connected.to_in_node) : void(connected.to_other_nodes = true);
  for (const auto peer : communicator.from)
    node_of(peer) == own ? void(++connected.from_in_node) : void(connected.from_other_nodes = true);
  return nccl_bytes(placement, connected, *buffers_);
}

bool CommunicatorMemory::use(const Use& use, const std::function<bool(std::int64_t bytes)>& take) {
  if (use.members.size() < 2 || (options_.each < 0 && !use.nccl)) return true;
  const std::int32_t self = options_.rank;
  const bool message = is_point_to_point(use.op);
  if (message && (use.peer == self || use.peer < 0)) return true;
  // Messages one by one have a communicator of two; several as one go through the group's.
  const bool of_two = message && !use.batched && options_.each < 0;
  const Way way = way_of(use.op, use.peer == self);
  const std::scoped_lock lock(mutex_);
  if (!buffers_) buffers_ = NcclBuffers::from_environment();
  auto& known = groups_[use.group][of_two ? use.peer : -1];

  const bool with_one = use.peer >= 0 && use.peer != self;
  const auto has = [&](const std::set<std::int32_t>& ends) {
    return with_one ? ends.contains(use.peer) : ends.size() + 1 >= use.members.size();
  };
  const bool sends = way == Way::kSends || way == Way::kBoth, receives = way == Way::kReceives || way == Way::kBoth;
  if ((way != Way::kRing || known.ring) && (!sends || has(known.to)) && (!receives || has(known.from))) return true;

  Communicator now = known;
  const auto connect = [&](std::set<std::int32_t>& ends) {
    if (with_one) ends.insert(use.peer);
    if (!with_one) ends.insert(use.members.begin(), use.members.end());
    ends.erase(self);
  };
  now.ring |= way == Way::kRing;
  if (sends) connect(now.to);
  if (receives) connect(now.from);
  const std::array<std::int32_t, 2> two{self, use.peer};
  now.bytes = options_.each >= 0 ? options_.each : bytes_of(now, of_two ? std::span(two) : use.members);
  if (now.bytes > known.bytes && !take(now.bytes - known.bytes)) return false;
  known = std::move(now);
  return true;
}

std::int64_t CommunicatorMemory::drop(const std::string& group) {
  const std::scoped_lock lock(mutex_);
  std::int64_t bytes = 0;
  if (const auto found = groups_.find(group); found != groups_.end()) {
    for (const auto& [peer, communicator] : found->second) bytes += communicator.bytes;
    groups_.erase(found);
  }
  return bytes;
}

}  // namespace prism
