// Jobs whose tensors are recorded: without torch, so that the sanitizers see the threads at work.
#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "backend/harness.hpp"
#include "catch2.hpp"
#include "data/reader.hpp"
#include "folder.hpp"

using namespace prism;
using namespace prism::test;
namespace fs = std::filesystem;

namespace {

// The kept tensor of (seq, member, index) as int64.
std::vector<std::int64_t> kept(const RecordedData& data, std::int64_t seq, std::int32_t member, std::uint32_t index) {
  const auto comm = data.find_collective(data.find_group("world").value(), seq);
  REQUIRE(comm);
  const auto& c = data.columns();
  for (auto i = c.comm_block_offset[*comm]; i < c.comm_block_offset[*comm + 1]; ++i) {
    if (c.block_member[i] != member || c.block_index[i] != index) continue;
    const auto tensor = data.tensor(c.block_tensor[i]).value();
    std::vector<std::int64_t> values(tensor.bytes.size() / sizeof(std::int64_t));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }
  return {};
}

std::vector<std::int64_t> filled(std::size_t elements, std::int64_t value) {
  return std::vector<std::int64_t>(elements, value);
}

}  // namespace

TEST_CASE("inputs wait for the disk within the memory budget, and the job goes on") {
  constexpr std::size_t kElements = 1 << 16;  // 512 KiB
  constexpr int kSteps = 12;
  const Folder folder;
  require_ok(run_job(
      3, 2,
      [&](Rank& rank) {
        for (int step = 0; step < kSteps; ++step)
          expect(rank.all_reduce(filled(kElements, 10 * step + rank.rank())) == filled(kElements, 30 * step + 3),
                 "sum");
      },
      [&](Coordinator::Options& options) {
        options.memory_budget_bytes = 8u << 20;  // a quarter of it is one operation and a bit
        options.data_directory = folder.path();
      }));
  const auto data = RecordedData::open(folder.path()).value();
  for (int step = 0; step < kSteps; ++step)
    for (int rank = 0; rank < 3; ++rank) REQUIRE(kept(*data, step, rank, 0) == filled(kElements, 10 * step + rank));
}

TEST_CASE("of a reduction the sum of the virtual members is kept, and only of blocks that the sandbox receives") {
  const Folder folder;
  require_ok(run_job(
      4, 4,
      [&](Rank& rank) {
        const std::int64_t r = rank.rank();
        rank.all_reduce({1, 10 * r});
        std::vector<Region> blocks;
        for (std::int64_t destination = 0; destination < 4; ++destination)
          blocks.push_back(rank.put({100 * r + destination}));
        Operation scatter = rank.operation(Op::kReduceScatter, blocks, {1});
        scatter.reduce_op = ReduceOp::kSum;
        expect(rank.run(scatter).tensors.at(0).at(0) == 600 + 4 * r, "reduce_scatter");
      },
      [&](Coordinator::Options& options) {
        options.data_directory = folder.path();
        options.data_for_ranks.emplace({1, 2});
      }));
  const auto data = RecordedData::open(folder.path()).value();
  REQUIRE(data->header().for_ranks == std::vector<std::int32_t>{1, 2});
  REQUIRE(kept(*data, 0, kVirtualPart, 0) == std::vector<std::int64_t>{2, 30});  // of ranks 0 and 3
  REQUIRE(kept(*data, 1, kVirtualPart, 1) == std::vector<std::int64_t>{0 + 1 + 300 + 1});
  REQUIRE(kept(*data, 1, kVirtualPart, 2) == std::vector<std::int64_t>{0 + 2 + 300 + 2});
  REQUIRE(data->columns().block_member.size() == 3);
}

TEST_CASE("where tensors cannot be written, that is the job's error") {
  const auto job = run_job(
      2, 1, [](Rank& rank) { rank.all_reduce(filled(1 << 18, rank.rank())); },
      [](Coordinator::Options& options) { options.data_directory = "/nonexistent/folder"; });
  const Error error = error_of(job);
  REQUIRE(error.code == ErrorCode::kIo);
  REQUIRE(error.message.find("No such file or directory; 0 bytes were written to '/nonexistent/folder', 2097152 more "
                             "were to follow (--data)") != std::string::npos);
}

TEST_CASE("ranks that are not in the job are refused") {
  auto options = small_coordinator(2, 1);
  options.data_directory = ".";
  options.data_for_ranks.emplace({2});
  const auto served = Coordinator(options, std::make_shared<PlainExecutor>()).run();
  REQUIRE_FALSE(served);
  REQUIRE(served.error().message == "tensors are to be recorded for rank 2; accepted: 0 to 1");
}
