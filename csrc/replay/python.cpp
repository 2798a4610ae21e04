// prismllm._replay: offline replay for Python; prismllm/replay.py is what people call.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "python_errors.hpp"
#include "replay/replay.hpp"

namespace py = pybind11;

namespace prism {
namespace {

// A column of the report without a copy; it keeps the report alive.
py::array column(const std::vector<std::int64_t>& values, const py::object& owner) {
  if (values.empty()) return py::array_t<std::int64_t>(0);
  return py::array(py::dtype::of<std::int64_t>(), {values.size()}, {sizeof(std::int64_t)}, values.data(), owner);
}

py::tuple timeline(const py::object& self, int rank) {
  const auto& report = self.cast<const ReplayReport&>();
  if (rank < 0 || static_cast<std::size_t>(rank) >= report.timelines.size())
    throw py::index_error("rank " + std::to_string(rank) + "; accepted: 0 to " +
                          std::to_string(report.timelines.size() - 1));
  const auto& times = report.timelines[rank];
  return py::make_tuple(column(times.start_ns, self), column(times.duration_ns, self));
}

}  // namespace
}  // namespace prism

PYBIND11_MODULE(_replay, m) {
  using namespace prism;
  py::module_::import("prismllm._graph");  // defines Graph
  py::class_<SpanEdit>(m, "SpanEdit")
      .def(py::init([](std::optional<int> rank, std::optional<int> iteration, std::optional<std::string> name,
                       std::optional<std::uint32_t> node, double scale, std::int64_t add_ns) {
             return SpanEdit{rank, iteration, std::move(name), node, scale, add_ns};
           }),
           py::kw_only(), py::arg("rank") = py::none(), py::arg("iteration") = py::none(), py::arg("name") = py::none(),
           py::arg("node") = py::none(), py::arg("scale") = 1.0, py::arg("add_ns") = 0);
  py::class_<ReplayReport::Iteration>(m, "Iteration")
      .def_readonly("index", &ReplayReport::Iteration::index)
      .def_readonly("time_ns", &ReplayReport::Iteration::time_ns);
  py::class_<ReplayReport::Rank>(m, "Rank")
      .def_readonly("rank", &ReplayReport::Rank::rank)
      .def_readonly("busy_ns", &ReplayReport::Rank::busy_ns)
      .def_readonly("exposed_comm_ns", &ReplayReport::Rank::exposed_comm_ns)
      .def_readonly("waiting_ns", &ReplayReport::Rank::waiting_ns)
      .def_readonly("peak_memory_bytes", &ReplayReport::Rank::peak_memory_bytes);
  py::class_<ReplayReport>(m, "Report")
      .def_readonly("iterations", &ReplayReport::iterations)
      .def_readonly("ranks", &ReplayReport::ranks)
      .def_readonly("critical_path_ns", &ReplayReport::critical_path_ns)
      .def_readonly("notes", &ReplayReport::notes)
      .def("timeline", &timeline, py::arg("rank"),
           "(start_ns, duration_ns), one entry a node of the rank's class; empty for a rank that was not recorded.");
  m.def(
      "replay",
      [](const ExecutionGraph& graph, std::vector<SpanEdit> edits, std::int64_t latency_ns, double bytes_per_second) {
        ReplayOptions options{.edits = std::move(edits),
                              .links = {.latency_ns = latency_ns, .bytes_per_second = bytes_per_second}};
        return value_or_throw(without_gil([&] { return replay(graph, options); }));
      },
      py::arg("graph"), py::arg("edits") = std::vector<SpanEdit>{},
      py::arg("latency_ns") = ClosedFormLinks{}.latency_ns,
      py::arg("bytes_per_second") = ClosedFormLinks{}.bytes_per_second);
  m.def(
      "retimed",
      [](const ExecutionGraph& graph, const ReplayReport& report) {
        return value_or_throw(without_gil([&] { return retimed(graph, report); }));
      },
      py::arg("graph"), py::arg("report"));
}
