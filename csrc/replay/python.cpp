// prismllm._replay: offline replay for Python; prismllm/replay is what people call.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "python_errors.hpp"
#include "replay/emulation.hpp"
#include "replay/provenance.hpp"
#include "replay/python_groups.hpp"
#include "replay/python_what_if.hpp"
#include "replay/replay.hpp"

namespace py = pybind11;

namespace prism {
namespace {

// A column of the report without a copy; it keeps the report alive.
template <typename T>
py::array column(const std::vector<T>& values, const py::object& owner) {
  if (values.empty()) return py::array_t<T>(0);
  return py::array(py::dtype::of<T>(), {values.size()}, {sizeof(T)}, values.data(), owner);
}

py::tuple timeline(const py::object& self, int rank) {
  const auto& report = self.cast<const ReplayReport&>();
  if (rank < 0 || static_cast<std::size_t>(rank) >= report.timelines.size())
    throw py::index_error("rank " + std::to_string(rank) + "; accepted: 0 to " +
                          std::to_string(report.timelines.size() - 1));
  const auto& times = report.timelines[rank];
  return py::make_tuple(column(times.start_ns, self), column(times.duration_ns, self));
}

const Analysis& analysis_of(const ReplayReport& report) {
  if (!report.analysis) throw py::value_error("the replay was made without an analysis");
  return *report.analysis;
}

py::dict path(const py::object& self) {
  const auto& path = analysis_of(self.cast<const ReplayReport&>()).path;
  py::dict columns;
  columns["iteration"] = column(path.iteration, self);
  columns["rank"] = column(path.rank, self);
  columns["node"] = column(path.node, self);
  columns["start_ns"] = column(path.start_ns, self);
  columns["duration_ns"] = column(path.duration_ns, self);
  return columns;
}

py::dict collectives(const py::object& self) {
  const auto& table = analysis_of(self.cast<const ReplayReport&>()).collectives;
  static_assert(sizeof(Op) == 1);
  py::dict columns;
  columns["op"] = py::array(py::dtype::of<std::uint8_t>(), {table.op.size()}, {1}, table.op.data(), self);
  columns["group"] = column(table.group, self);
  columns["seq"] = column(table.seq, self);
  columns["members"] = column(table.members, self);
  columns["bytes"] = column(table.bytes, self);
  columns["late_rank"] = column(table.late_rank, self);
  columns["late_comm"] = column(table.late_comm, self);
  columns["late_by_ns"] = column(table.late_by_ns, self);
  columns["waited_ns"] = column(table.waited_ns, self);
  columns["start_ns"] = column(table.start_ns, self);
  columns["end_ns"] = column(table.end_ns, self);
  return columns;
}

py::tuple parts(const py::object& self, int rank) {
  const auto& parts = analysis_of(self.cast<const ReplayReport&>()).parts;
  if (rank < 0 || static_cast<std::size_t>(rank) >= parts.size())
    throw py::index_error("rank " + std::to_string(rank) + "; accepted: 0 to " + std::to_string(parts.size() - 1));
  return py::make_tuple(column(parts[rank].start_ns, self), column(parts[rank].waited_ns, self));
}

NetworkOptions network_options(const simulate::Topology& topology, const std::string& kind,
                               const std::map<std::string, std::string>& algorithms, int per_node,
                               std::vector<std::int32_t> placement, int bins, bool flows, std::string program) {
  NetworkOptions options{.topology = &topology, .kind = value_or_throw(simulate::network_kind(kind))};
  options.algorithms = algorithms_by_op(algorithms);
  options.per_node = per_node;
  options.placement = std::move(placement);
  options.bins = bins;
  options.flows = flows;
  options.program = std::move(program);
  return options;
}

py::dict flows(const py::object& self) {
  const auto& flows = self.cast<const NetworkUse&>().flows;
  py::dict columns;
  columns["start_ps"] = column(flows.start_ps, self);
  columns["end_ps"] = column(flows.end_ps, self);
  columns["bytes"] = column(flows.bytes, self);
  columns["source"] = column(flows.source, self);
  columns["destination"] = column(flows.destination, self);
  columns["comm"] = column(flows.comm, self);
  return columns;
}

py::array bytes_by_bin(const py::object& self, int link) {
  const auto& bins = self.cast<const NetworkUse&>().link_bytes_by_bin;
  if (link < 0 || static_cast<std::size_t>(link) >= bins.size())
    throw py::index_error("link " + std::to_string(link) + " of " + std::to_string(bins.size()) +
                          " whose use over time was kept");
  return column(bins[link], self);
}

}  // namespace
}  // namespace prism

PYBIND11_MODULE(_replay, m) {
  using namespace prism;
  py::module_::import("prismllm._graph");     // defines Graph
  py::module_::import("prismllm._simulate");  // defines Topology
  define_what_ifs(m);
  define_groups(m);
  py::class_<ReplayReport::Iteration>(m, "Iteration")
      .def_readonly("index", &ReplayReport::Iteration::index)
      .def_readonly("time_ns", &ReplayReport::Iteration::time_ns)
      .def_readonly("rank", &ReplayReport::Iteration::rank);
  py::class_<ReplayReport::Rank>(m, "Rank")
      .def_readonly("rank", &ReplayReport::Rank::rank)
      .def_readonly("busy_ns", &ReplayReport::Rank::busy_ns)
      .def_readonly("exposed_comm_ns", &ReplayReport::Rank::exposed_comm_ns)
      .def_readonly("waiting_ns", &ReplayReport::Rank::waiting_ns)
      .def_readonly("bubble_ns", &ReplayReport::Rank::bubble_ns)
      .def_readonly("peak_memory_bytes", &ReplayReport::Rank::peak_memory_bytes)
      .def_readonly("peak_memory_at_ns", &ReplayReport::Rank::peak_memory_at_ns);
  py::class_<NetworkOptions>(m, "NetworkOptions")
      .def(py::init(&network_options), py::arg("topology"), py::arg("network"), py::arg("algorithms"),
           py::arg("per_node"), py::arg("placement"), py::arg("bins"), py::arg("flows"), py::arg("program"),
           py::keep_alive<1, 2>());
  py::class_<NetworkUse>(m, "NetworkUse")
      .def_property_readonly(
          "link_bytes", [](const py::object& self) { return column(self.cast<const NetworkUse&>().link_bytes, self); })
      .def_property_readonly(
          "link_busy_ps",
          [](const py::object& self) { return column(self.cast<const NetworkUse&>().link_busy_ps, self); })
      .def_readonly("bin_ps", &NetworkUse::bin_ps)
      .def("link_bytes_by_bin", &bytes_by_bin, py::arg("link"))
      .def("flows", &flows);
  py::class_<ReplayReport>(m, "Report")
      .def_readonly("iterations", &ReplayReport::iterations)
      .def_readonly("ranks", &ReplayReport::ranks)
      .def_readonly("critical_path_ns", &ReplayReport::critical_path_ns)
      .def_readonly("notes", &ReplayReport::notes)
      .def_property_readonly(
          "network", [](const ReplayReport& report) { return report.network ? &*report.network : nullptr; },
          py::return_value_policy::reference_internal)
      .def("timeline", &timeline, py::arg("rank"),
           "(start_ns, duration_ns), one entry a node of the rank's class; empty for a rank that was not recorded.")
      .def("path", &path, "Columns of Analysis::Path.")
      .def("collectives", &collectives, "Columns of Analysis::Collectives.")
      .def("parts", &parts, py::arg("rank"), "(start_ns, waited_ns), one entry a communication of the rank's class.");
  m.def(
      "replay",
      [](const ExecutionGraph& graph, std::vector<SpanEdit> edits, std::int64_t latency_ns, double bytes_per_second,
         std::optional<NetworkOptions> network, std::vector<CommunicationEdit> communications, bool analysis) {
        ReplayOptions options{.edits = std::move(edits),
                              .communications = std::move(communications),
                              .links = {.latency_ns = latency_ns, .bytes_per_second = bytes_per_second},
                              .network = std::move(network),
                              .analysis = analysis};
        return value_or_throw(without_gil([&] { return replay(graph, options); }));
      },
      py::arg("graph"), py::arg("edits") = std::vector<SpanEdit>{},
      py::arg("latency_ns") = ClosedFormLinks{}.latency_ns,
      py::arg("bytes_per_second") = ClosedFormLinks{}.bytes_per_second, py::arg("network") = py::none(),
      py::arg("communications") = std::vector<CommunicationEdit>{}, py::arg("analysis") = true);
  py::class_<Emulation, std::shared_ptr<Emulation>>(
      m, "Emulation", "Chosen ranks are real, the others are executed; for _c10d.Coordinator. See emulation.hpp.")
      .def(py::init([](const ExecutionGraph& graph, std::vector<int> sandbox, std::optional<NetworkOptions> network,
                       bool warn_on_divergence) {
             Emulation::Options options{.sandbox = std::move(sandbox),
                                        .network = std::move(network),
                                        .warn_on_divergence = warn_on_divergence};
             return std::shared_ptr<Emulation>(
                 value_or_throw(without_gil([&] { return Emulation::make(graph, options); })));
           }),
           py::arg("graph"), py::arg("sandbox"), py::arg("network") = py::none(), py::arg("warn_on_divergence") = false,
           py::keep_alive<1, 4>());
  m.def(
      "transfers_are_timed",
      [](const ExecutionGraph& graph) { return graph.timed() && !engine::provenance_of(graph).slices; },
      py::arg("graph"));
  m.def(
      "as_recorded",
      [](const ExecutionGraph& graph) { return value_or_throw(without_gil([&] { return as_recorded(graph); })); },
      py::arg("graph"));
  m.def(
      "retimed",
      [](const ExecutionGraph& graph, const ReplayReport& report) {
        return value_or_throw(without_gil([&] { return retimed(graph, report); }));
      },
      py::arg("graph"), py::arg("report"));
}
