// What-ifs for Python; included by python.cpp alone.
#pragma once
#include <pybind11/stl.h>

#include "python_errors.hpp"
#include "replay/what_if.hpp"

namespace prism {

inline std::vector<RankRange> rank_ranges(const std::vector<std::pair<int, int>>& given) {
  std::vector<RankRange> ranks;
  for (const auto& [first, last] : given) ranks.push_back({first, last});
  return ranks;
}

using Text = std::optional<std::string>;
using Ranges = std::vector<std::pair<int, int>>;

inline void define_what_ifs(pybind11::module_& m) {
  namespace py = pybind11;
  const auto none = py::none();
  py::class_<SpanEdit>(m, "SpanEdit")
      .def(py::init([](std::optional<int> rank, std::optional<int> iteration, Text name,
                       std::optional<std::uint32_t> node, double scale, std::int64_t add_ns, const Ranges& ranks,
                       std::optional<int> cls, std::optional<std::int64_t> set_ns) {
             return SpanEdit{rank, iteration, std::move(name), node, scale, add_ns, rank_ranges(ranks), cls, set_ns};
           }),
           py::kw_only(), py::arg("rank") = none, py::arg("iteration") = none, py::arg("name") = none,
           py::arg("node") = none, py::arg("scale") = 1.0, py::arg("add_ns") = 0, py::arg("ranks") = Ranges{},
           py::arg("cls") = none, py::arg("set_ns") = none);
  py::class_<CommunicationEdit>(m, "CommunicationEdit")
      .def(py::init([](const Ranges& ranks, std::optional<int> cls, std::optional<int> iteration, Text op, Text group,
                       double scale, std::int64_t add_ns, std::optional<std::int64_t> set_ns) {
             return CommunicationEdit{rank_ranges(ranks), cls,   iteration, std::move(op),
                                      std::move(group),   scale, add_ns,    set_ns};
           }),
           py::kw_only(), py::arg("ranks") = Ranges{}, py::arg("cls") = none, py::arg("iteration") = none,
           py::arg("op") = none, py::arg("group") = none, py::arg("scale") = 1.0, py::arg("add_ns") = 0,
           py::arg("set_ns") = none);
  py::enum_<OverlapEdit::Until>(m, "Until")
      .value("issue", OverlapEdit::Until::kIssue)
      .value("iteration_end", OverlapEdit::Until::kIterationEnd)
      .value("span", OverlapEdit::Until::kSpan);
  py::class_<OverlapEdit>(m, "OverlapEdit")
      .def(py::init([](OverlapEdit::Until until, std::string span, const Ranges& ranks, std::optional<int> cls,
                       std::optional<int> iteration, Text op, Text group) {
             return OverlapEdit{until,     std::move(span), rank_ranges(ranks), cls,
                                iteration, std::move(op),   std::move(group)};
           }),
           py::kw_only(), py::arg("until"), py::arg("span") = "", py::arg("ranks") = Ranges{}, py::arg("cls") = none,
           py::arg("iteration") = none, py::arg("op") = none, py::arg("group") = none);
  m.def(
      "overlapped",
      [](const ExecutionGraph& graph, const std::vector<OverlapEdit>& edits) {
        return value_or_throw(without_gil([&] { return overlapped(graph, edits); }));
      },
      py::arg("graph"), py::arg("edits"));
}

}  // namespace prism
