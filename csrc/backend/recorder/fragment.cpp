// From lanes and the table of communications to a RankRecord, and to the fragment file of one rank.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "backend/recorder/recording.hpp"

namespace prism {

using recorder::CommTable;
using recorder::Lane;

void Recorder::Impl::close(std::int64_t at_ns) {
  std::scoped_lock lock(mutex);
  closed_ns = at_ns;
  for (auto& lane : lanes) {
    // Only of the main thread is it known that it still worked when the recording ended.
    bool busy = !lane->open.empty() || lane->wait_depth > 0 || lane == lanes.front();
    if (busy) cut(*lane, at_ns);
  }
}

namespace {

// Times that a transfer cannot outlive: the end of the first wait for it, the start of the first callback it caused.
std::vector<std::int64_t> latest_ends(const std::vector<std::unique_ptr<Lane>>& lanes, std::size_t comms) {
  std::vector<std::int64_t> latest(comms, INT64_MAX);
  auto limit = [&](CommId comm, std::int64_t at) {
    if (comm >= 0 && static_cast<std::size_t>(comm) < comms) latest[comm] = std::min(latest[comm], at);
  };
  for (const auto& lane : lanes) {
    for (std::size_t i = 0; i < lane->waited.size(); ++i)
      limit(lane->waited[i].comm, lane->events[lane->waited[i].event].end_ns);
    for (const Lane::Link& link : lane->caused) limit(link.comm, lane->events[link.event].start_ns);
  }
  return latest;
}

std::string read_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

RankRecord Recorder::Impl::record() const {
  std::vector<CommTable::Entry> entries = comms.entries();
  std::vector<std::int64_t> latest = latest_ends(lanes, entries.size());
  std::vector<std::uint32_t> transfer_node(entries.size(), 0);
  std::vector<std::vector<std::uint32_t>> node_of(lanes.size());  // [lane][event]
  RankRecord record;
  record.rank = options.rank;
  record.groups = comms.groups();
  // Lane by lane: in which order the threads came to issue is chance.
  std::vector<std::int32_t> comm_number(entries.size(), -1);
  const auto number = [&](CommId comm) -> CommId {
    if (comm < 0 || static_cast<std::size_t>(comm) >= entries.size()) return kNoComm;
    auto& known = comm_number[comm];
    if (known < 0) {
      known = static_cast<std::int32_t>(record.comms.size());
      record.comms.push_back(entries[comm].comm);
    }
    return known;
  };
  for (const auto& lane : lanes)
    for (std::size_t i = 0; i < lane->issued.size(); ++i) number(lane->issued[i].comm);
  for (std::size_t comm = 0; comm < entries.size(); ++comm)
    if (!entries[comm].withdrawn) number(static_cast<CommId>(comm));
  std::map<std::int32_t, std::int32_t> batches;
  for (auto& comm : record.comms)
    if (comm.batch >= 0)
      comm.batch = batches.try_emplace(comm.batch, static_cast<std::int32_t>(batches.size())).first->second;

  int callback_lanes = 0;
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    const Lane& lane = *lanes[l];
    // How many callbacks that communicate nothing ran side by side is chance, and no part of the structure.
    if (lane.callback_number >= 0 && lane.events.size() == 0) continue;
    record.lanes.push_back(lane.callback_number < 0 ? lane.name : fmt::format("callback-{}", callback_lanes++));
    const auto lane_index = static_cast<std::uint16_t>(record.lanes.size() - 1);
    std::size_t next_issued = 0, next_memory = 0, next_mark = 0;
    for (std::uint32_t e = 0; e < lane.events.size(); ++e) {
      const Lane::Event& event = lane.events[e];
      auto node = static_cast<std::uint32_t>(record.nodes.size());
      node_of[l].push_back(node);
      record.nodes.push_back({.kind = event.kind,
                              .lane = lane_index,
                              .comm = number(event.comm),
                              .name = event.name == kNoName ? std::string_view{} : names[event.name],
                              .start_ns = event.start_ns,
                              .duration_ns = event.end_ns - event.start_ns});
      if (next_mark < lane.marks.size() && lane.marks[next_mark] == e) {
        record.marks.push_back(node);
        ++next_mark;
      }
      for (; next_memory < lane.memory.size() && lane.memory[next_memory].event == e; ++next_memory)
        record.memory.push_back({node, lane.memory[next_memory].bytes, lane.memory[next_memory].peak});
      for (; next_issued < lane.issued.size() && lane.issued[next_issued].event == e; ++next_issued) {
        auto comm = static_cast<std::size_t>(lane.issued[next_issued].comm);
        std::int64_t done = entries[comm].done_ns == CommTable::kNotDone ? closed_ns : entries[comm].done_ns;
        std::int64_t end = std::max(std::min(done, latest[comm]), event.end_ns);
        transfer_node[comm] = static_cast<std::uint32_t>(record.nodes.size());
        record.edges.push_back({node, transfer_node[comm]});
        record.nodes.push_back({.kind = NodeKind::kTransfer,
                                .lane = lane_index,
                                .comm = number(static_cast<CommId>(comm)),
                                .start_ns = event.end_ns,
                                .duration_ns = end - event.end_ns});
      }
    }
  }
  auto connect = [&](std::size_t lane, const Lane::Link& link) {
    if (link.comm >= 0 && static_cast<std::size_t>(link.comm) < entries.size())
      record.edges.push_back({transfer_node[link.comm], node_of[lane][link.event]});
  };
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    for (std::size_t i = 0; i < lanes[l]->waited.size(); ++i) connect(l, lanes[l]->waited[i]);
    for (const Lane::Link& link : lanes[l]->caused) connect(l, link);
  }
  return record;
}

Result<void> Recorder::Impl::write(RankRecord record) const {
  auto metadata = nlohmann::json::parse(options.metadata_json, nullptr, /*allow_exceptions=*/false);
  if (!metadata.is_object())
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("the recording's metadata must be a JSON object, not '{}'", options.metadata_json)};
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, HOST_NAME_MAX);
  metadata["rank"] = options.rank;
  metadata["host"] = host;
  // Ranks whose clocks may be compared: CLOCK_MONOTONIC counts from the boot of one kernel.
  metadata["clock_domain"] = read_line("/proc/sys/kernel/random/boot_id");
  GraphBuilder builder({.world_size = options.world_size,
                        .progress_model = options.progress_model,
                        .timed = options.timed,
                        .metadata_json = metadata.dump()});
  PRISM_RETURN_IF_ERROR(builder.add(record));
  PRISM_ASSIGN_OR_RETURN(ExecutionGraph graph, builder.finish());
  // A thousand ranks that wait for the disk, one after the other, take long; the merged trace will be durable.
  return write_trace(graph, options.path, /*durable=*/false);
}

}  // namespace prism
