// prismllm._calibrate: calibration for Python; prismllm/calibrate is what people call.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "calibrate/calibrate.hpp"
#include "calibrate/measured.hpp"
#include "calibrate/realign.hpp"
#include "calibrate/sampling.hpp"
#include "python_errors.hpp"

namespace py = pybind11;

namespace prism {
namespace {

py::tuple tuple_of(const Quantiles& q) { return py::make_tuple(q.p05, q.median, q.p95); }

// [rows][columns], all rows of one length.
template <typename T, typename Value>
py::array table(std::size_t rows, std::size_t columns, Value&& value) {
  py::array_t<T> result({rows, columns});
  auto entries = result.template mutable_unchecked<2>();
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c)
      entries(static_cast<py::ssize_t>(r), static_cast<py::ssize_t>(c)) = value(r, c);
  return result;
}

// A trace's repetitions, rank by rank; the job inside does not move.
class Repetitions {
 public:
  static std::unique_ptr<Repetitions> make(const ExecutionGraph& graph, std::optional<int> warmup) {
    auto result = std::unique_ptr<Repetitions>(new Repetitions(graph));
    value_or_throw(without_gil([&]() -> Result<void> {
      PRISM_ASSIGN_OR_RETURN(auto measured, calibration::measure(result->graph_, {}, nullptr));
      result->measured_ = std::make_unique<calibration::Measured>(std::move(measured));
      PRISM_ASSIGN_OR_RETURN(
          auto sampling, calibration::Sampling::make(result->measured_->job, warmup, warmup_of(*result->measured_)));
      result->sampling_.emplace(std::move(sampling));
      return {};
    }));
    return result;
  }
  int warmup() const { return sampling_->warmup(); }
  // Of each structure: (iterations, nodes [places], durations [iterations, places] in ns).
  py::list of(int rank) const {
    const auto& ranks = measured_->job.ranks;
    if (rank < 0 || static_cast<std::size_t>(rank) >= ranks.size() || ranks[rank].cls < 0)
      throw py::index_error("rank " + std::to_string(rank) + " is not in the trace");
    py::list result;
    for (const auto& pool : sampling_->pools(rank)) {
      if (pool.empty()) continue;
      const auto& iterations = sampling_->repetitions(rank).iterations;
      const auto places = iterations[pool.front()].spans.size();
      const auto node = [&](std::size_t i, std::size_t k) { return iterations[pool[i]].spans[k]; };
      const auto duration = [&](std::size_t i, std::size_t k) { return sampling_->duration(rank, pool[i], k); };
      result.append(py::make_tuple(pool, table<std::uint32_t>(pool.size(), places, node),
                                   table<std::int64_t>(pool.size(), places, duration)));
    }
    return result;
  }

 private:
  explicit Repetitions(const ExecutionGraph& graph) : graph_(graph) {}
  ExecutionGraph graph_;
  std::unique_ptr<calibration::Measured> measured_;
  std::optional<calibration::Sampling> sampling_;
};

}  // namespace
}  // namespace prism

PYBIND11_MODULE(_calibrate, m) {
  using namespace prism;
  py::module_::import("prismllm._replay");  // defines Report and NetworkOptions
  py::class_<Calibration>(m, "Calibration")
      .def_property_readonly("iteration_time_ns", [](const Calibration& c) { return tuple_of(c.iteration_time_ns); })
      .def_property_readonly("busy_ns", [](const Calibration& c) { return tuple_of(c.busy_ns); })
      .def_readonly("uncalibrated_ns", &Calibration::uncalibrated_ns)
      .def_readonly("of_medians_ns", &Calibration::of_medians_ns)
      .def_property_readonly("iteration_times_ns",
                             [](const Calibration& c) {
                               const auto& times = c.iteration_times_ns;
                               return table<std::int64_t>(times.size(), times.front().size(),
                                                          [&](auto s, auto i) { return times[s][i]; });
                             })
      .def_readonly("warmup", &Calibration::warmup)
      .def_readonly("first_counted", &Calibration::first_counted)
      .def_readonly("counted", &Calibration::counted)
      .def_readonly("chosen", &Calibration::chosen)
      .def_readonly("metadata_json", &Calibration::metadata_json)
      .def_readonly("comm", &Calibration::comm)
      .def_readonly("notes", &Calibration::notes)
      .def_readonly("report", &Calibration::report);
  py::class_<Realignment>(m, "Realignment")
      .def_readonly("report", &Realignment::report)
      .def_readonly("visited", &Realignment::visited)
      .def_readonly("nodes", &Realignment::nodes);
  py::class_<Repetitions>(m, "Repetitions")
      .def(py::init(&Repetitions::make), py::arg("graph"), py::arg("warmup") = py::none())
      .def_property_readonly("warmup", &Repetitions::warmup)
      .def("of", &Repetitions::of, py::arg("rank"),
           "Of each structure (iterations, nodes, durations in ns), both [iterations, places].");
  m.def(
      "calibrate",
      [](const ExecutionGraph& graph, std::optional<int> warmup, std::optional<int> samples, std::uint64_t seed,
         int threads, std::int64_t latency_ns, double bytes_per_second, std::optional<NetworkOptions> network,
         std::string network_name) {
        const CalibrateOptions options{.warmup = warmup,
                                       .samples = samples,
                                       .seed = seed,
                                       .threads = threads,
                                       .links = {.latency_ns = latency_ns, .bytes_per_second = bytes_per_second},
                                       .network = std::move(network),
                                       .network_name = std::move(network_name)};
        return value_or_throw(without_gil([&] { return calibrate(graph, options); }));
      },
      py::arg("graph"), py::kw_only(), py::arg("warmup"), py::arg("samples"), py::arg("seed"), py::arg("threads"),
      py::arg("latency_ns"), py::arg("bytes_per_second"), py::arg("network"), py::arg("network_name"));
  m.def("calibrated_trace", [](const ExecutionGraph& graph, const Calibration& calibration) {
    return value_or_throw(without_gil([&] { return calibrated_trace(graph, calibration); }));
  });
  m.def(
      "realign",
      [](const ExecutionGraph& onto, const ExecutionGraph& timed, const std::vector<int>& ranks,
         const std::optional<NetworkOptions>& network) {
        return value_or_throw(without_gil([&] { return realign(onto, timed, ranks, network); }));
      },
      py::arg("onto"), py::arg("timed"), py::arg("ranks"), py::arg("network") = py::none());
  m.def("realigned_trace", [](const ExecutionGraph& onto, const Realignment& realignment) {
    return value_or_throw(without_gil([&] { return realigned_trace(onto, realignment); }));
  });
}
