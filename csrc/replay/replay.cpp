#include "replay/replay.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "graph/builder.hpp"
#include "replay/checks.hpp"
#include "replay/components.hpp"
#include "replay/edit_transfers.hpp"
#include "replay/engine.hpp"
#include "replay/on_network.hpp"
#include "replay/report.hpp"
#include "replay/sweep.hpp"

namespace prism {
namespace {

// By a sweep where no transfer depends on others and nothing on the order of time, else event by event.
Result<engine::Execution> execute(const engine::Job& job, const engine::Durations& durations,
                                  const engine::ServiceTimes& service, const NetworkOptions* network,
                                  engine::Carrier& carrier) {
  if (!network) {
    auto sweep = engine::Sweep::make(job);
    if (sweep && sweep->run(durations, service, engine::clock_starts(job)))
      return std::move(*sweep).take_execution(durations);
  }
  engine::Engine events(job, durations, service, carrier);
  PRISM_RETURN_IF_ERROR(events.run(engine::independent_parts(job, network)));
  return std::move(events).take_execution();
}

std::vector<std::string> network_notes(const ExecutionGraph& graph, const NetworkOptions& options) {
  const char* how = ", whose links they share";
  if (options.kind == simulate::NetworkKind::kClosedForm) how = ", each as if it were alone";
  if (options.kind == simulate::NetworkKind::kOccupancy) how = ", which send and receive one after the other";
  std::vector<std::string> notes{
      fmt::format("transfers on a network of {} endpoints{}", options.topology->endpoints(), how)};
  if (!graph.timed())
    notes.push_back("untimed graph: compute spans are indicative");
  else if (!engine::provenance_of(graph).one_clock)
    notes.push_back("clocks of the ranks cannot be compared: all start at once");
  return notes;
}

void add_notes(const engine::Job& job, ReplayReport& report) {
  const ExecutionGraph& graph = *job.graph;
  int alike = 0;
  for (const auto& one : report.ranks)
    alike += !graph.has_own_times(one.rank) && !graph.timing(one.rank).start_ns.empty();
  if (alike > 0)
    report.notes.push_back(
        fmt::format("{} ranks did not run: they have the times and the memory of one that is like them", alike));
  if (job.model.name != graph.progress_model())
    report.notes.push_back(
        fmt::format("unknown progress model '{}': everything starts with its last member", graph.progress_model()));
}

}  // namespace

Result<ReplayReport> replay(const ExecutionGraph& graph, const ReplayOptions& options) {
  if (!(options.links.bytes_per_second > 0) || options.links.latency_ns < 0)
    return Error{ErrorCode::kInvalidInput,
                 fmt::format("links: {} bytes/s and a latency of {} ns; accepted: > 0 and >= 0",
                             options.links.bytes_per_second, options.links.latency_ns)};
  PRISM_RETURN_IF_ERROR(engine::check_times(graph));
  PRISM_ASSIGN_OR_RETURN(engine::Job job, engine::prepare(graph));
  PRISM_ASSIGN_OR_RETURN(engine::Durations durations, engine::Durations::make(job, options.edits));
  engine::ServiceTimes service;
  // On a network they only say what was recorded.
  if (!options.network || (graph.timed() && !job.provenance.slices))
    service = engine::service_times(job, options.links);
  if (options.network && !options.communications.empty())
    return Error{ErrorCode::kInvalidInput,
                 "on a network communication takes what the links allow: it has no times of its own to be edited"};
  PRISM_RETURN_IF_ERROR(engine::edit_transfers(job, options.communications, service));
  std::unique_ptr<engine::Carrier> carrier = std::make_unique<engine::FixedTimes>(service);
  engine::OnNetwork* network = nullptr;
  if (options.network) {
    PRISM_ASSIGN_OR_RETURN(auto made, engine::OnNetwork::make(job, *options.network));
    network = made.get();
    carrier = std::move(made);
    service.notes = network_notes(graph, *options.network);
  }
  PRISM_RETURN_IF_ERROR(engine::check_extent(job, durations, service));
  PRISM_ASSIGN_OR_RETURN(auto execution,
                         execute(job, durations, service, network ? &*options.network : nullptr, *carrier));
  ReplayReport report = engine::make_report(job, std::move(execution), options.analysis);
  if (network) report.network = network->use();
  report.notes.insert(report.notes.begin(), service.notes.begin(), service.notes.end());
  add_notes(job, report);
  return report;
}

Result<ReplayReport> as_recorded(const ExecutionGraph& graph) {
  const auto provenance = engine::provenance_of(graph);
  if (!graph.timed() || provenance.slices || !provenance.one_clock) return replay(graph, {.analysis = true});
  PRISM_RETURN_IF_ERROR(engine::check_times(graph));
  PRISM_ASSIGN_OR_RETURN(engine::Job job, engine::prepare(graph));
  PRISM_ASSIGN_OR_RETURN(engine::Durations durations, engine::Durations::make(job, {}));
  const auto service = engine::service_times(job, {});
  PRISM_RETURN_IF_ERROR(engine::check_extent(job, durations, service));
  ReplayReport report = engine::make_report(job, engine::recorded(job, service), true);
  add_notes(job, report);
  return report;
}

Result<ExecutionGraph> retimed(const ExecutionGraph& graph, const ReplayReport& report,
                               std::optional<std::string> metadata_json) {
  GraphBuilder builder({.world_size = graph.world_size(),
                        .progress_model = graph.progress_model(),
                        .timed = true,
                        .metadata_json = metadata_json ? std::move(*metadata_json) : engine::as_replayed(graph)});
  for (const ReplayReport::Rank& rank : report.ranks) {
    PRISM_ASSIGN_OR_RETURN(RankRecord record, extract(graph, rank.rank));
    const auto& timeline = report.timelines[rank.rank];
    if (timeline.start_ns.size() != record.nodes.size())
      return Error{ErrorCode::kInvalidInput, fmt::format("rank {}: the replay is one of another graph", rank.rank)};
    for (std::size_t node = 0; node < record.nodes.size(); ++node) {
      if (timeline.duration_ns[node] < 0)
        return Error{ErrorCode::kInvalidInput,
                     fmt::format("rank {}: node {} never ends: somebody never joins its communication, for whom nobody "
                                 "waits; such a replay has no times to be kept",
                                 rank.rank, node)};
      record.nodes[node].start_ns = timeline.start_ns[node];
      record.nodes[node].duration_ns = timeline.duration_ns[node];
    }
    PRISM_RETURN_IF_ERROR(builder.add(record));
  }
  return builder.finish();
}

}  // namespace prism
