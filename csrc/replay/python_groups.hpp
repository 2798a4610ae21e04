// The groups that are left, for Python; included by python.cpp alone.
#pragma once
#include <pybind11/stl.h>

#include "python_errors.hpp"
#include "replay/group_reduction.hpp"

namespace prism {

inline std::map<Op, std::string> algorithms_by_op(const std::map<std::string, std::string>& named) {
  std::map<Op, std::string> algorithms;
  for (const auto& [op, algorithm] : named) {
    const auto known = op_from_name(op);
    if (!known) throw pybind11::value_error("operation '" + op + "' is not known");
    algorithms[*known] = algorithm;
  }
  return algorithms;
}

inline void define_groups(pybind11::module_& m) {
  namespace py = pybind11;
  using Reduction = GroupReduction;
  py::class_<Reduction::Use>(m, "GroupUse")
      .def_property_readonly("op", [](const Reduction::Use& use) { return std::string(name(use.op)); })
      .def_readonly("algorithm", &Reduction::Use::algorithm)
      .def_readonly("pruned", &Reduction::Use::pruned);
  py::class_<Reduction::Group>(m, "ReducedGroup")
      .def_readonly("group", &Reduction::Group::group)
      .def_property_readonly("kind", [](const Reduction::Group& group) { return std::string(name(group.kind)); })
      .def_readonly("kept", &Reduction::Group::kept)
      .def_readonly("uses", &Reduction::Group::uses);
  py::class_<Reduction>(m, "GroupReduction")
      .def_readonly("groups", &Reduction::groups)
      .def_readonly("vanished", &Reduction::vanished)
      .def_readonly("real", &Reduction::real)
      .def_readonly("mixed", &Reduction::mixed)
      .def_readonly("members", &Reduction::members)
      .def_readonly("members_left", &Reduction::members_left)
      .def_readonly("members_kept", &Reduction::members_kept);
  m.def(
      "reduce_groups",
      [](const ExecutionGraph& graph, const std::vector<std::int32_t>& sandbox,
         const std::map<std::string, std::string>& algorithms) {
        const auto by_op = algorithms_by_op(algorithms);
        return value_or_throw(without_gil([&] { return reduce_groups(graph, sandbox, by_op); }));
      },
      py::arg("graph"), py::arg("sandbox"), py::arg("algorithms") = std::map<std::string, std::string>{});
}

}  // namespace prism
