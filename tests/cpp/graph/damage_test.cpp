// A file is a stranger: whatever is wrong with its bytes is an error that names the place, and never more than that.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "catch2.hpp"
#include "graph/diff.hpp"
#include "graph/impl.hpp"
#include "graph/iterations.hpp"
#include "graph/jobs.hpp"

using namespace prism;
using namespace prism::test;

namespace {

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string header_of(const std::string& bytes) {
  std::uint64_t length;
  std::memcpy(&length, bytes.data(), 8);
  return bytes.substr(8, length);
}

std::string with_header(const std::string& bytes, std::string header) {
  const auto data = bytes.substr(8 + header_of(bytes).size());
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

// A file without a disk, for tests that write thousands of times.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("prism-test", MFD_CLOEXEC)), path("/proc/self/fd/" + std::to_string(fd_)) {}
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  void poke(std::size_t at, char value) { REQUIRE(::pwrite(fd_, &value, 1, static_cast<off_t>(at)) == 1); }
  void set(std::string_view bytes) {
    REQUIRE(::ftruncate(fd_, static_cast<off_t>(bytes.size())) == 0);
    REQUIRE(::pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }

 private:
  int fd_;

 public:
  const std::string path;
};

// Reads all that a program can reach. Returns whether everything was in order.
bool use(const std::string& path) {
  const auto graph = open_trace(path);
  if (!graph) {
    REQUIRE(graph.error().code == ErrorCode::kCorruptFile);
    REQUIRE(graph.error().message.starts_with(path + ": "));
    return false;
  }
  bool good = true;
  std::size_t total = 0;  // what is read must be used, or it would not be read
  for (int rank = 0; rank < graph->world_size(); ++rank) {
    if (graph->class_of(rank) < 0) continue;
    const auto checked = graph->check_rank(rank);
    if (!checked) {
      good = false;
      REQUIRE(checked.error().message.starts_with(path + ": "));
      REQUIRE(graph->timing(rank).start_ns.empty());
      REQUIRE(graph->memory(rank).node.empty());
    } else {
      const auto record = extract(*graph, rank);
      REQUIRE(record);
      for (const auto& edge : record->edges) total += record->nodes.at(edge.src).lane + record->nodes.at(edge.dst).lane;
      for (const auto& node : record->nodes)
        total += record->lanes.at(node.lane).size() + node.name.size() +
                 (node.comm < 0 ? 0 : record->comms.at(node.comm).op != Op::kNone);
      for (const auto& comm : record->comms) total += record->groups.at(comm.group).members.size();
      for (const auto& step : record->memory) total += record->nodes.at(step.node).lane;
      total += iteration_marks(*record, find_periods(*record)).size();
    }
  }
  const auto validated = validate(*graph);
  const auto compared = first_difference(*graph, *graph, true);
  REQUIRE(compared.ok() == good);
  if (compared) REQUIRE_FALSE(compared->has_value());
  REQUIRE(total < std::size_t{1} << 40);
  return good && validated;
}

}  // namespace

TEST_CASE("corrupt headers are errors that name file, field and value") {
  const Folder folder;
  const auto path = written(folder);
  const auto bytes = slurp(path), header = header_of(bytes);
  const auto error = [&](const std::string& broken) {
    spit(path, broken);
    const auto graph = open_trace(path);
    REQUIRE_FALSE(graph);
    REQUIRE(graph.error().code == ErrorCode::kCorruptFile);
    REQUIRE(graph.error().message.starts_with(path + ": "));
    return graph.error().message.substr(path.size() + 2);
  };
  const auto edited = [&](std::string_view from, std::string_view to) {
    return error(with_header(bytes, replaced(header, from, to)));
  };
  const auto contains = [](const std::string& text, std::string_view part) {
    INFO(text);
    return text.find(part) != std::string::npos;
  };
  REQUIRE(contains(error(""), "the file has 0 bytes"));
  REQUIRE(contains(error("short"), "the file has 5 bytes"));
  REQUIRE(contains(error(std::string(8, '\xff') + "{}"), "Its header length is 18446744073709551615"));
  REQUIRE(contains(error(replaced(bytes, "{\"", "{\xff\"")), "is not acceptable JSON"));
  REQUIRE(contains(error(with_header(bytes, std::string(100'000, '['))), "nesting deeper than 3"));
  REQUIRE(contains(edited("\"prism\":\"", "\"prism\":\"" + std::string(100'000, '[')), "nesting deeper than 32"));
  REQUIRE(contains(error(with_header(bytes, "[]")), "not a JSON object"));
  REQUIRE(contains(edited("\"prism\":", "\"prisn\":"), "__metadata__.prism is missing"));
  REQUIRE(contains(edited("\\\"version\\\":1", "\\\"version\\\":2"), "version is 2; accepted: 1"));
  REQUIRE(contains(edited("\\\"world_size\\\":16", "\\\"world_size\\\":17"), "world_size is 17"));
  REQUIRE(contains(edited("\\\"world_size\\\":16", "\\\"world_size\\\":99999999999"), "world_size is 99999999999"));
  REQUIRE(contains(edited("\\\"world_size\\\":16", "\\\"world_size\\\":-1"), "world_size is -1"));
  REQUIRE(contains(edited("conservative", "liberal"), "progress_model is \"liberal\""));
  REQUIRE(contains(edited("\"comm_op\":", "\"comm_ox\":"), "column 'comm_op' is missing"));
  REQUIRE(contains(edited("\"comm_op\":", "\"comm_dtype\":"), "the name 'comm_dtype' occurs twice"));
  REQUIRE(contains(edited("\"dtype\":\"U16\"", "\"dtype\":\"F63\""), "dtype is \"F63\""));
  REQUIRE(contains(edited("\"dtype\":\"I64\"", "\"dtype\":\"U64\""), "dtype is U64; accepted: I64"));
  REQUIRE(contains(edited("\"shape\":[", "\"shape\":[1,"), "accepted: one length"));
  REQUIRE(contains(edited("\"shape\":[", "\"shape\":[9"), "and data_offsets cover"));
  REQUIRE(contains(edited("\"data_offsets\":[", "\"data_offsets\":[9"), "accepted: from "));
  REQUIRE(contains(edited("\"data_offsets\":[", "\"data_offsets\":[-"), "data_offsets is [-"));
  REQUIRE(contains(edited("{\"__metadata__\"",
                          "{\"extra\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"__metadata__\""),
                   "column 'extra' is unknown"));
  REQUIRE(contains(error(bytes + "x"), "bytes of data"));
  REQUIRE(contains(error(bytes.substr(0, bytes.size() - 1)), "the file may be truncated"));
  spit(path, bytes);
  REQUIRE(use(path));
}

TEST_CASE("corrupt columns are errors that name file, class or rank, field and value") {
  const Folder folder;
  const Job3D job;
  const auto path = written(folder, job);
  const auto bytes = slurp(path);
  // Overwrites entry i of a column, opens the file and checks all of it.
  const auto error = [&]<typename T>(View<T> ColumnSet<View>::*column, std::size_t i, T value) {
    auto broken = bytes;
    {
      const auto graph = open_trace(path);
      const auto whole = std::static_pointer_cast<const void>(graph->impl().storage);
      const auto& values = graph->impl().columns.*column;
      const auto* start = reinterpret_cast<const char*>(graph->impl().columns.class_node_offset.data());
      const auto at = broken.size() -
                      (reinterpret_cast<const char*>(graph->impl().columns.comm_flags.data() +
                                                     graph->impl().columns.comm_flags.size()) -
                       start) +
                      (reinterpret_cast<const char*>(values.data() + i) - start);
      std::memcpy(broken.data() + at, &value, sizeof value);
    }
    const auto copy = folder.path("broken.prism");
    spit(copy, broken);
    REQUIRE_FALSE(use(copy));
    const auto graph = open_trace(copy, Check::kAll);
    REQUIRE_FALSE(graph);
    return graph.error().message.substr(copy.size() + 2);
  };
  using C = ColumnSet<View>;
  REQUIRE(error(&C::class_node_offset, 1, std::uint64_t{1} << 63)
              .starts_with("class_node_offset[1] is 9223372036854775808"));
  REQUIRE(error(&C::class_node_offset, 0, std::uint64_t{1}) == "class_node_offset[0] is 1; accepted: 0");
  REQUIRE(error(&C::rank_class, 2, std::int32_t{-2}) == "rank_class[2] is -2; accepted: -1 to 2");
  REQUIRE(error(&C::rank_class, 0, std::int32_t{1}).starts_with("rank_timing_offset[1] is"));
  REQUIRE(error(&C::rank_class, 0, std::int32_t{-1}).starts_with("rank_class[0] is -1; accepted: a class"));
  REQUIRE(error(&C::rank_group, 0, std::uint32_t{99}) == "rank_group[0] is 99; accepted: below 21 groups");
  REQUIRE(error(&C::rank_group, 0, std::uint32_t{20}).find("rank 0") != std::string::npos);
  REQUIRE(error(&C::rank_peer, 0, std::int32_t{16}) == "rank_peer[0] is 16; accepted: 0 to 15");
  REQUIRE(error(&C::group_member, 1, std::int32_t{0}) == "group_member[1] is 0; accepted: each rank once in a group");
  REQUIRE(error(&C::node_kind, 0, std::uint8_t{4}).starts_with("class 0: node_kind[0] is 4"));
  REQUIRE(error(&C::node_comm, 0, std::int32_t{1 << 30}).starts_with("class 0: node_comm[0] is 1073741824"));
  REQUIRE(error(&C::node_name, 0, std::uint32_t{77}).starts_with("class 0: node_name[0] is 77"));
  REQUIRE(error(&C::node_lane, 0, std::uint16_t{1}) == "class 0: node_lane[0] is 1; accepted: below 1 lanes");
  REQUIRE(error(&C::comm_op, 0, std::uint8_t{0}).starts_with("class 0: comm_op[0] is 0"));
  REQUIRE(error(&C::comm_group, 0, std::uint32_t{4}).starts_with("class 0: comm_group[0] is 4"));
  REQUIRE(error(&C::edge_src, 0, std::uint32_t{1u << 31}).starts_with("class 0: edge_src[0] is 2147483648"));
  REQUIRE(error(&C::mark_node, 1, std::uint32_t{0}).starts_with("class 0: mark_node[1] is 0"));
  REQUIRE(error(&C::lane_name, 0, std::uint32_t{50}).starts_with("class 0: lane_name[0] is 50"));
  REQUIRE(error(&C::start_ns, 0, std::int64_t{-5}) == "rank 0: start_ns[0] is -5; accepted: not negative");
  REQUIRE(
      error(&C::duration_ns, 3, std::int64_t{INT64_MAX}).starts_with("rank 0: duration_ns[3] is 9223372036854775807"));
  REQUIRE(error(&C::memory_node, 0, std::uint32_t{1u << 20}).starts_with("rank 0: memory_node[0] is 1048576"));
  REQUIRE(error(&C::memory_peak, 0, std::int64_t{0}) ==
          "rank 0: memory_peak[0] is 0; accepted: at least memory_bytes, 1000");
}

TEST_CASE("no single wrong byte and no truncation does more than an error") {
  const Folder folder;
  const auto bytes = slurp(written(folder, {.tp = 1, .pp = 2, .dp = 1, .iterations = 2, .microbatches = 1}));
  MemoryFile file;
  const auto& path = file.path;
  file.set(bytes);
  const auto data_start = 8 + header_of(bytes).size();
  REQUIRE(use(path));
  std::size_t accepted = 0, tried = 0;
  const auto attempt = [&](std::size_t at, char value) {
    if (value == bytes[at]) return;
    file.poke(at, value);
    accepted += use(path);
    ++tried;
    file.poke(at, bytes[at]);
  };
  for (std::size_t at = 0; at < data_start; ++at)
    for (const char value :
         {static_cast<char>(bytes[at] ^ 1), static_cast<char>(bytes[at] ^ 0x80), '9', '"', '{', '\\'})
      attempt(at, value);
  for (std::size_t at = data_start; at < bytes.size(); ++at)
    for (const char value : {static_cast<char>(bytes[at] ^ 1), '\xff'}) attempt(at, value);
  REQUIRE(use(path));
  // A name or a time may well change unnoticed; most changes of the header may not.
  REQUIRE(accepted < tried / 2);
  for (std::size_t length = 0; length < bytes.size(); length += 1 + length / 97) {
    file.set(std::string_view(bytes).substr(0, length));
    REQUIRE_FALSE(use(path));
  }
}

TEST_CASE("random damage in several places at once does no more than an error") {
  const Folder folder;
  const auto bytes = slurp(written(folder, {.tp = 2, .pp = 2, .dp = 2}));
  MemoryFile file;
  std::mt19937 random(20240611);
  for (int round = 0; round < 2000; ++round) {
    auto broken = bytes;
    for (unsigned n = 1 + random() % 4; n > 0; --n) {
      const auto at = random() % broken.size();
      const auto length = std::min<std::size_t>(random() % 9, broken.size() - at);
      for (std::size_t i = 0; i < length; ++i) broken[at + i] = static_cast<char>(random());
    }
    if (random() % 8 == 0) broken.resize(random() % broken.size());
    file.set(broken);
    use(file.path);
  }
}
