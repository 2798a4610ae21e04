// prismllm._graph: traces for Python. Columns are NumPy arrays over the graph's own memory, read-only, each holding the
// graph alive.
#include "graph/columns.hpp"
#include "graph/diff.hpp"
#include "graph/impl.hpp"
#include "graph/python_record.hpp"
#include "python_errors.hpp"

namespace prism {
namespace {

template <typename T>
py::array array(std::span<const T> column, const py::object& owner) {
  // NumPy takes no null pointer as foreign memory; an empty column has no memory to share.
  py::array result = column.empty() ? py::array(py::array_t<T>(0))
                                    : py::array(py::dtype::of<T>(), {column.size()}, {sizeof(T)}, column.data(), owner);
  result.attr("setflags")(py::arg("write") = false);
  return result;
}

int checked_rank(const ExecutionGraph& graph, int rank) {
  if (rank < 0 || rank >= graph.world_size())
    throw py::index_error(fmt::format("rank {}; accepted: 0 to {}", rank, graph.world_size() - 1));
  value_or_throw(without_gil([&] { return graph.check_rank(rank); }));
  return rank;
}

std::size_t checked_index(std::size_t index, std::size_t count, const char* what) {
  if (index >= count) throw py::index_error(fmt::format("{} {}; accepted: below {}", what, index, count));
  return index;
}

py::dict structure(const py::object& self, int cls) {
  const auto& graph = self.cast<const ExecutionGraph&>();
  checked_index(static_cast<std::size_t>(cls), graph.class_count(), "class");
  value_or_throw(without_gil([&] { return graph.impl().check_class(cls); }));
  const auto& v = graph.class_view(cls);
  py::dict columns;
#define PRISM_ADD(owner, name) columns[#name] = array(v.name, self);
  PRISM_CLASS_COLUMNS(PRISM_ADD)
#undef PRISM_ADD
  return columns;
}

py::dict columns(const py::object& self) {
  const auto& graph = self.cast<const ExecutionGraph&>();
  value_or_throw(without_gil([&]() -> Result<void> {
    for (int rank = 0; rank < graph.world_size(); ++rank) PRISM_RETURN_IF_ERROR(graph.check_rank(rank));
    return {};
  }));
  py::dict result;
  for_each_column(graph.impl().columns,
                  [&](std::string_view name, const auto& column) { result[py::str(name)] = array(column, self); });
  return result;
}

py::object difference(const ExecutionGraph& a, const ExecutionGraph& b, bool timing) {
  const auto found = value_or_throw(without_gil([&] { return first_difference(a, b, timing); }));
  if (!found) return py::none();
  const auto index = [](int i) -> py::object { return i < 0 ? py::object(py::none()) : py::object(py::int_(i)); };
  return py::dict(py::arg("rank") = index(found->rank), py::arg("node") = index(found->node),
                  py::arg("field") = found->field, py::arg("a") = found->a, py::arg("b") = found->b);
}

GraphBuilder::Options options(int world_size, std::string progress_model, bool timed, std::string metadata_json) {
  return {world_size, std::move(progress_model), timed, std::move(metadata_json)};
}

template <typename Enum>
std::vector<std::string> names() {
  std::vector<std::string> list;
  for (int i = 0; i < static_cast<int>(Enum::kCount); ++i) list.emplace_back(name(static_cast<Enum>(i)));
  return list;
}

void bind_graph(py::module_& m) {
  py::class_<ExecutionGraph>(m, "Graph", "An execution graph; see csrc/graph/graph.hpp.")
      .def_property_readonly("world_size", &ExecutionGraph::world_size)
      .def_property_readonly("metadata_json", &ExecutionGraph::metadata_json)
      .def_property_readonly("progress_model", &ExecutionGraph::progress_model)
      .def_property_readonly("timed", &ExecutionGraph::timed)
      .def_property_readonly("strings", [](const ExecutionGraph& g) { return g.impl().header.strings; })
      .def_property_readonly("group_names", [](const ExecutionGraph& g) { return g.impl().header.group_names; })
      .def_property_readonly("class_count", &ExecutionGraph::class_count)
      .def_property_readonly("rank_class",
                             [](const py::object& self) {
                               return array(self.cast<const ExecutionGraph&>().impl().columns.rank_class, self);
                             })
      .def("group_members",
           [](const py::object& self, std::uint32_t group) {
             const auto& g = self.cast<const ExecutionGraph&>();
             checked_index(group, g.group_count(), "group");
             return array(g.group_members(group), self);
           })
      .def("structure", &structure, py::arg("cls"), "The columns of ClassView of one class, by name.")
      .def("group_slots",
           [](const py::object& self, int rank) {
             const auto& g = self.cast<const ExecutionGraph&>();
             return array(g.group_slots(checked_rank(g, rank)), self);
           })
      .def("peer_slots",
           [](const py::object& self, int rank) {
             const auto& g = self.cast<const ExecutionGraph&>();
             return array(g.peer_slots(checked_rank(g, rank)), self);
           })
      .def(
          "has_own_times", [](const ExecutionGraph& g, int rank) { return g.has_own_times(checked_rank(g, rank)); },
          py::arg("rank"), "Whether it ran itself; else timing() and memory() are those of one that is like it.")
      .def(
          "timing",
          [](const py::object& self, int rank) {
            const auto& g = self.cast<const ExecutionGraph&>();
            const auto t = g.timing(checked_rank(g, rank));
            return py::make_tuple(array(t.start_ns, self), array(t.duration_ns, self));
          },
          py::arg("rank"), "(start_ns, duration_ns), one entry a node of the rank's class.")
      .def(
          "memory",
          [](const py::object& self, int rank) {
            const auto& g = self.cast<const ExecutionGraph&>();
            const auto m = g.memory(checked_rank(g, rank));
            return py::make_tuple(array(m.node, self), array(m.bytes, self), array(m.peak, self));
          },
          py::arg("rank"), "(node, bytes, peak), one entry a step.")
      .def("columns", &columns, "Every column of the file, by name (docs/design/trace.md).");
}

void bind_builder(py::module_& m) {
  py::class_<GraphBuilder>(m, "Builder", "Builds a graph from one record (a dict, see add) a rank.")
      .def(py::init([](int world_size, std::string progress_model, bool timed, std::string metadata_json) {
             return std::make_unique<GraphBuilder>(
                 options(world_size, std::move(progress_model), timed, std::move(metadata_json)));
           }),
           py::arg("world_size"), py::arg("progress_model") = "conservative", py::arg("timed") = false,
           py::arg("metadata_json") = "{}")
      .def(
          "add",
          [](GraphBuilder& self, const py::dict& record) {
            const auto converted = record_from_dict(record);
            value_or_throw(without_gil([&] { return self.add(converted.record); }));
          },
          py::arg("record"),
          "Adds {rank, lanes, groups: [(name, members)], nodes, comms, edges, marks, memory}; the tables are dicts of\n"
          "columns with the fields of RankRecord (csrc/graph/builder.hpp); enums by value or by name.")
      .def("finish", [](GraphBuilder& self) { return value_or_throw(without_gil([&] { return self.finish(); })); });
}

}  // namespace
}  // namespace prism

PYBIND11_MODULE(_graph, m) {
  using namespace prism;
  m.attr("NODE_KINDS") = names<NodeKind>();
  m.attr("OPS") = names<Op>();
  m.attr("DTYPES") = names<DType>();
  m.attr("REDUCE_OPS") = names<ReduceOp>();
  bind_graph(m);
  bind_builder(m);
  m.def(
      "open",
      [](const std::string& path, bool check) {
        return value_or_throw(without_gil([&] { return open_trace(path, check ? Check::kAll : Check::kHeader); }));
      },
      py::arg("path"), py::arg("check") = false, "Maps a .prism file; with check=True validates every value at once.");
  m.def("validate", [](const ExecutionGraph& graph) { value_or_throw(without_gil([&] { return validate(graph); })); });
  m.def("write", [](const ExecutionGraph& graph, const std::string& path) {
    value_or_throw(without_gil([&] { return write_trace(graph, path); }));
  });
  m.def(
      "merge",
      [](const std::vector<std::string>& paths, int world_size, std::string progress_model, bool timed,
         std::string metadata_json, const std::vector<std::pair<std::string, std::vector<std::int32_t>>>& groups,
         const std::vector<std::tuple<int, int, std::vector<std::uint32_t>, std::vector<std::int32_t>>>& alike) {
        auto chosen = options(world_size, std::move(progress_model), timed, std::move(metadata_json));
        Alike others;
        for (const auto& [name, members] : groups) others.groups.push_back({name, members});
        for (const auto& [rank, like, slots, peers] : alike) others.ranks.push_back({rank, like, slots, peers});
        return value_or_throw(without_gil([&] { return merge_fragments(paths, std::move(chosen), others); }));
      },
      py::arg("paths"), py::arg("world_size"), py::arg("progress_model") = "conservative", py::arg("timed") = false,
      py::arg("metadata_json") = "{}",
      py::arg("groups") = std::vector<std::pair<std::string, std::vector<std::int32_t>>>(),
      py::arg("alike") = std::vector<std::tuple<int, int, std::vector<std::uint32_t>, std::vector<std::int32_t>>>(),
      "Joins the fragments of one run into one graph. `alike` adds ranks that were not recorded: (rank, one that it is "
      "like, its groups as indices into `groups`, its peers), slot by slot.");
  m.def(
      "with_spans_of",
      [](const ExecutionGraph& base, const std::vector<std::string>& fragments, std::string metadata_json) {
        return value_or_throw(without_gil([&] { return with_spans_of(base, fragments, std::move(metadata_json)); }));
      },
      py::arg("base"), py::arg("fragments"), py::arg("metadata_json"),
      "`base` with the compute spans of fragments whose ranks ran alone; see graph/builder.hpp.");
  m.def("first_difference", &difference, py::arg("a"), py::arg("b"), py::arg("timing") = false,
        "None, or {rank, node, field, a, b} of the first structural difference.");
}
