// What NCCL's communicators hold of a device, by the model of docs/memory.md: its figures are derived here once more,
// from the sizes that NCCL's sources have.
#include "backend/recorder/communicator_memory.hpp"

#include <cstdlib>
#include <numeric>
#include <vector>

#include "catch2.hpp"

using namespace prism;

namespace {

constexpr std::int64_t kMiB = 1 << 20;

std::vector<std::int32_t> ranks(int first, int count, int stride = 1) {
  std::vector<std::int32_t> members(count);
  for (int i = 0; i < count; ++i) members[i] = first + i * stride;
  return members;
}

// A rank's communicators, and what they hold in all.
struct Rank {
  CommunicatorMemory memory;
  std::int64_t held = 0;
  std::int64_t limit = INT64_MAX;

  explicit Rank(CommunicatorMemory::Options options) : memory(options) {}
  // Bytes that came with it; -1: refused.
  std::int64_t use(const std::string& group, const std::vector<std::int32_t>& members, Op op, std::int32_t peer = -1,
                   bool batched = false, bool nccl = true) {
    const auto before = held;
    const bool done =
        memory.use({.group = group, .members = members, .op = op, .peer = peer, .batched = batched, .nccl = nccl},
                   [&](std::int64_t bytes) {
                     if (held + bytes > limit) return false;
                     held += bytes;
                     return true;
                   });
    return done ? held - before : -1;
  }
};

}  // namespace

TEST_CASE("the buffers of a connection are those of NCCL's three protocols") {
  const NcclBuffers buffers;
  CHECK(buffers.ll == 8 * 512 * 8 * 16);      // lines a thread, threads, steps, bytes of a line
  CHECK(buffers.ll128 == 120 * 640 * 8 * 8);  // elements a thread, threads, steps, bytes of an element
  CHECK(buffers.simple == 4 * kMiB);
}

TEST_CASE("a ring within a node has one connection in and one out on each channel") {
  // 10485760 bytes for what comes in and 2097152 for what goes out: as NCCL_DEBUG_SUBSYS=ALLOC printed them on 8 H100s
  // (github.com/NVIDIA/nccl/issues/1685).
  CHECK(nccl_bytes({.in_node = 8, .nodes = 1}, {.ring = true}) == 24 * (10485760 + 2097152));
  CHECK(nccl_bytes({.in_node = 2, .nodes = 1}, {.ring = true}) == 24 * 12 * kMiB);
  CHECK(nccl_bytes({.in_node = 1, .nodes = 1}, {.ring = true}) == 0);
}

TEST_CASE("a ring across nodes has links within each node but one, and one in and one out of 10 MiB each") {
  CHECK(nccl_bytes({.in_node = 1, .nodes = 32}, {.ring = true}) == 16 * 20 * kMiB);
  CHECK(nccl_bytes({.in_node = 8, .nodes = 2}, {.ring = true}) == 16 * (7 * 12 + 20) * kMiB / 8);
  CHECK(nccl_bytes({.in_node = 8, .nodes = 512}, {.ring = true}) ==
        nccl_bytes({.in_node = 8, .nodes = 2}, {.ring = true}));
}

TEST_CASE("an all-to-all within a node connects all peers on 32 channels") {
  CHECK(nccl_bytes({.in_node = 8, .nodes = 1}, {.to_in_node = 7, .from_in_node = 7}) == 7 * 32 * 12 * kMiB);
}

TEST_CASE("messages to other nodes share two pools, however many peers there are") {
  CHECK(nccl_bytes({.in_node = 1, .nodes = 64}, {.to_other_nodes = true, .from_other_nodes = true}) == 2 * 32 * kMiB);
  CHECK(nccl_bytes({.in_node = 8, .nodes = 8},
                   {.to_in_node = 7, .from_in_node = 7, .to_other_nodes = true, .from_other_nodes = true}) ==
        (7 * 2 * 12 + 64) * kMiB);
}

TEST_CASE("buffers come with the first communication of their kind and no second time") {
  Rank rank({.rank = 0, .ranks_per_node = 8});
  const auto world = ranks(0, 8);
  CHECK(rank.use("0", world, Op::kAllReduce) == 288 * kMiB);
  CHECK(rank.use("0", world, Op::kBroadcast, 3) == 0);
  CHECK(rank.use("0", world, Op::kBarrier) == 0);
  CHECK(rank.use("1", world, Op::kReduceScatterTensor) == 288 * kMiB);  // a group of its own
  CHECK(rank.use("0", world, Op::kAllToAllSingle) == 7 * 32 * 12 * kMiB);
  CHECK(rank.use("0", world, Op::kGather, 5) == 0);  // its messages have their connections
}

TEST_CASE("messages one by one have a communicator for each pair, several at once have the group's") {
  Rank rank({.rank = 0, .ranks_per_node = 8});
  const auto world = ranks(0, 16);
  CHECK(rank.use("0", world, Op::kSend, 1) == 32 * 2 * kMiB);  // two ranks of a node: 32 channels
  CHECK(rank.use("0", world, Op::kRecv, 1) == 32 * 10 * kMiB);
  CHECK(rank.use("0", world, Op::kSend, 8) == 32 * kMiB);           // the pool of sends
  CHECK(rank.use("0", world, Op::kSend, 9) == 32 * kMiB);           // of another communicator
  CHECK(rank.use("0", world, Op::kSend, 1, true) == 2 * 2 * kMiB);  // the group spans nodes: 2 channels a peer
  CHECK(rank.use("0", world, Op::kSend, 8, true) == 32 * kMiB);
  CHECK(rank.use("0", world, Op::kSend, 9, true) == 0);
}

TEST_CASE("the root of a gather receives from everybody, the others send to it") {
  const auto world = ranks(0, 4);
  Rank root({.rank = 0, .ranks_per_node = 4}), other({.rank = 2, .ranks_per_node = 4});
  CHECK(root.use("0", world, Op::kGather, 0) == 3 * 32 * 10 * kMiB);
  CHECK(other.use("0", world, Op::kGather, 0) == 32 * 2 * kMiB);
  CHECK(other.use("0", world, Op::kScatter, 0) == 32 * 10 * kMiB);
}

TEST_CASE("members of a group are counted by the nodes that they are on") {
  Rank rank({.rank = 3, .ranks_per_node = 8});
  CHECK(rank.use("tp", ranks(0, 8), Op::kAllReduce) == 24 * 12 * kMiB);
  CHECK(rank.use("dp", ranks(3, 4, 8), Op::kAllReduce) == 16 * 20 * kMiB);
  CHECK(rank.use("pp", ranks(3, 2, 4), Op::kAllReduce) == 24 * 12 * kMiB);  // ranks 3 and 7
}

TEST_CASE("other backends, groups of one and messages to oneself hold nothing") {
  Rank rank({.rank = 0, .ranks_per_node = 8});
  CHECK(rank.use("0", ranks(0, 8), Op::kAllReduce, -1, false, false) == 0);
  CHECK(rank.use("1", ranks(0, 1), Op::kAllReduce) == 0);
  CHECK(rank.use("2", ranks(0, 8), Op::kSend, 0) == 0);
}

TEST_CASE("what is refused has not been: it may come when there is room") {
  Rank rank({.rank = 0, .ranks_per_node = 8});
  rank.limit = 300 * kMiB;
  CHECK(rank.use("0", ranks(0, 8), Op::kAllReduce) == 288 * kMiB);
  CHECK(rank.use("1", ranks(0, 8), Op::kAllReduce) == -1);
  rank.held -= rank.memory.drop("0");
  CHECK(rank.held == 0);
  CHECK(rank.use("1", ranks(0, 8), Op::kAllReduce) == 288 * kMiB);
}

TEST_CASE("a given size stands for each group, whatever its backend and whatever is done in it") {
  Rank rank({.rank = 0, .ranks_per_node = 8, .each = 1000});
  CHECK(rank.use("0", ranks(0, 8), Op::kSend, 1, false, false) == 1000);
  CHECK(rank.use("0", ranks(0, 8), Op::kAllReduce, -1, false, false) == 0);
  CHECK(rank.use("0", ranks(0, 8), Op::kSend, 2, false, false) == 0);
  CHECK(rank.use("1", ranks(0, 2), Op::kAllReduce) == 1000);
  CHECK(rank.memory.drop("0") == 1000);
  Rank none({.rank = 0, .ranks_per_node = 8, .each = 0});
  CHECK(none.use("0", ranks(0, 8), Op::kAllToAll) == 0);
}

TEST_CASE("NCCL's variables count, and what they hold that is no number does not") {
  setenv("NCCL_BUFFSIZE", "16777216", 1);
  setenv("NCCL_MAX_NCHANNELS", "4", 1);
  setenv("NCCL_LL128_BUFFSIZE", "many", 1);
  const NcclBuffers buffers = NcclBuffers::from_environment();
  unsetenv("NCCL_BUFFSIZE");
  unsetenv("NCCL_MAX_NCHANNELS");
  unsetenv("NCCL_LL128_BUFFSIZE");
  CHECK(buffers.simple == 16 * kMiB);
  CHECK(buffers.ll128 == 4'915'200);
  CHECK(buffers.channels_in_node == 4);
  // 4096 + 524288 + 4915200 + 16777216 bytes are 11 pages of 2 MiB.
  CHECK(nccl_bytes({.in_node = 8, .nodes = 1}, {.ring = true}, buffers) == 4 * (22 + 2) * kMiB);
  CHECK(nccl_bytes({.in_node = 8, .nodes = 1}, {.to_in_node = 1}, buffers) == 4 * 2 * kMiB);
}
