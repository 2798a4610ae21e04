// Recorded tensors, written and read again; and files that somebody has damaged.
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <vector>

#include "catch2.hpp"
#include "data/reader.hpp"
#include "data/tensor_store.hpp"
#include "data/writer.hpp"
#include "folder.hpp"

using namespace prism;
using prism::test::Folder;
using prism::test::slurp;
using prism::test::spit;
namespace fs = std::filesystem;

namespace {

std::span<const std::byte> bytes_of(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }

struct Contribution {
  std::int32_t member;
  std::vector<float> values;
};

RecordedComm all_gather(std::int64_t seq) {
  RecordedComm comm;
  comm.group = "world";
  comm.members = {0, 1, 2};
  comm.op = Op::kAllGather;
  comm.dtype = DType::kFloat32;
  comm.seq = seq;
  return comm;
}

Result<void> add(DataWriter& writer, const RecordedComm& comm, const std::vector<Contribution>& all) {
  std::vector<RecordedBlock> blocks;
  for (const auto& one : all) blocks.push_back({one.member, 0, DType::kFloat32, bytes_of(one.values), true, true});
  return writer.add(comm, blocks);
}

const std::vector<float> kNothing, kSmall{1, 2, 3}, kOther{4, 5}, kLarge(kLargeTensorBytes / 4, 1.5f);

// A job of three ranks: two all_gathers and a message.
void record_job(const std::string& folder, bool reversed) {
  fs::create_directory(folder);
  DataWriter writer({folder, 3, {}, 0});
  RecordedComm message = all_gather(0);
  message.op = Op::kSend;
  message.source = 2;
  message.destination = 0;
  message.tag = 7;
  std::vector<int> order{0, 1, 2};
  if (reversed) std::ranges::reverse(order);
  for (const int step : order) {
    if (step == 0) REQUIRE(add(writer, all_gather(0), {{0, kSmall}, {1, kLarge}, {2, kNothing}}));
    if (step == 1) REQUIRE(add(writer, all_gather(1), {{0, kOther}, {1, kSmall}, {2, kLarge}}));
    if (step == 2) REQUIRE(add(writer, message, {{2, kSmall}}));
  }
  REQUIRE(writer.finish());
  REQUIRE(writer.statistics().tensors == 7);
  REQUIRE(writer.statistics().distinct == 4);
}

// Every value that a reader could look at.
Result<void> read_all(const std::string& folder) {
  PRISM_ASSIGN_OR_RETURN(const auto data, RecordedData::open(folder));
  for (std::uint32_t g = 0; g < data->header().groups.size(); ++g) data->members(g);
  return data->verify();
}

std::string complaint(const std::string& folder) {
  const auto read = read_all(folder);
  return read ? "none" : read.error().message;
}

}  // namespace

TEST_CASE("what was recorded of a communication is found by group and number") {
  const Folder folder;
  record_job(folder.path("d"), false);
  const auto data = RecordedData::open(folder.path("d")).value();
  const auto world = data->find_group("world");
  REQUIRE(world);
  REQUIRE_FALSE(data->find_group("worlds"));
  const auto second = data->find_collective(*world, 1);
  REQUIRE(second);
  REQUIRE_FALSE(data->find_collective(*world, 2));
  REQUIRE(data->find_message(*world, 2, 0, 7, 0));
  REQUIRE_FALSE(data->find_message(*world, 2, 0, 7, 1));
  const auto& c = data->columns();
  const auto first_block = c.comm_block_offset[*second];
  for (const auto& [member, values] : {std::pair(0, kOther), std::pair(1, kSmall), std::pair(2, kLarge)}) {
    REQUIRE(c.block_member[first_block + member] == member);
    const auto tensor = data->tensor(c.block_tensor[first_block + member]).value();
    REQUIRE(tensor.dtype == DType::kFloat32);
    REQUIRE(std::ranges::equal(tensor.bytes, bytes_of(values)));
  }
  REQUIRE(data->verify());
}

TEST_CASE("files do not depend on which communication was complete first") {
  const Folder folder;
  record_job(folder.path("forth"), false);
  record_job(folder.path("back"), true);
  int files = 0;
  for (const auto& file : fs::directory_iterator(folder.path("forth"))) {
    ++files;
    REQUIRE(slurp(file.path()) == slurp(fs::path(folder.path()) / "back" / file.path().filename()));
  }
  REQUIRE(files == 3);  // the index, one shard, one large tensor
}

TEST_CASE("a communication cannot be recorded twice") {
  const Folder folder;
  DataWriter writer({folder.path(), 3, {}, 0});
  REQUIRE(add(writer, all_gather(3), {{0, kSmall}}));
  REQUIRE(add(writer, all_gather(3), {{0, kOther}}));
  REQUIRE(writer.finish().error().message == "all_gather #3 of group 'world' was recorded twice");
}

TEST_CASE("no more is kept than may be; what is equal counts once") {
  Folder folder;
  DataWriter writer({folder.path(), 3, {}, 20});
  REQUIRE(add(writer, all_gather(0), {{0, kSmall}, {1, kSmall}, {2, kOther}}));  // 12 bytes and 8
  const auto more = add(writer, all_gather(1), {{0, kSmall}, {1, {6}}});
  REQUIRE(!more);
  REQUIRE(more.error().message.find("more than 20 bytes, as many as may be kept in '") != std::string::npos);
}

TEST_CASE("an index that was cut short is refused, wherever it ends") {
  const Folder folder;
  const auto data = folder.path("d");
  record_job(data, false);
  const auto whole = slurp(index_path(data));
  for (std::size_t length = 0; length < whole.size(); length += 3) {
    spit(index_path(data), whole.substr(0, length));
    REQUIRE(complaint(data).starts_with(index_path(data)));
  }
}

TEST_CASE("a changed byte of an index is noticed or harmless, and never leads out of the files") {
  const Folder folder;
  const auto data = folder.path("d");
  record_job(data, false);
  const auto whole = slurp(index_path(data));
  int noticed = 0;
  for (std::size_t at = 0; at < whole.size(); at += 2)
    for (const char change : {'\x01', '\x80'}) {
      auto damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ change);
      spit(index_path(data), damaged);
      noticed += complaint(data) != "none";
    }
  REQUIRE(noticed > static_cast<int>(whole.size()) / 2);
}

TEST_CASE("damaged files with tensors are named, with what is wrong") {
  const Folder folder;
  const auto data = folder.path("d");
  record_job(data, false);
  const auto shard = shard_path(data, 0);
  const auto whole = slurp(shard);
  const auto contains = [&](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  spit(shard, whole.substr(0, whole.size() - 1));
  REQUIRE(contains(complaint(data), "small-00000.prismdata: column"));
  auto flipped = whole;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  spit(shard, flipped);
  REQUIRE(contains(complaint(data), "the content of tensor 'float32-"));
  auto renamed = whole;
  renamed.replace(renamed.find("float32-"), 8, "float64-");
  spit(shard, renamed);
  REQUIRE(contains(complaint(data), "of the index is missing"));
  fs::remove(shard);
  REQUIRE(contains(complaint(data), "cannot open"));
  spit(shard, whole);
  REQUIRE(complaint(data) == "none");
  const auto other = fs::path(data) / "index.prismdata";
  fs::copy_file(shard, other, fs::copy_options::overwrite_existing);
  REQUIRE(contains(complaint(data), "__metadata__.prismdata is missing"));
}
