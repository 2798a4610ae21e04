// prismllm._data: recorded tensors for Python. Arrays lie over the mapped files, read-only, each holding its file
// alive.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "data/hash.hpp"
#include "data/reader.hpp"
#include "python_errors.hpp"

namespace py = pybind11;

namespace prism {
namespace {

using Data = std::shared_ptr<RecordedData>;

template <typename T>
py::array column(std::span<const T> values, const py::object& owner) {
  if (values.empty()) return py::array_t<T>(0);
  py::array result(py::dtype::of<T>(), {values.size()}, {sizeof(T)}, values.data(), owner);
  result.attr("setflags")(py::arg("write") = false);
  return result;
}

py::dict columns(const py::object& self) {
  const auto& data = self.cast<const RecordedData&>();
  py::dict result;
  for_each_column(data.columns(),
                  [&](std::string_view name, const auto& values) { result[py::str(name)] = column(values, self); });
  return result;
}

// (dtype, bytes as uint8).
py::tuple tensor(const RecordedData& self, std::uint32_t number, bool check) {
  if (number >= self.columns().tensor_bytes.size()) throw py::index_error("no such tensor");
  if (check) value_or_throw(without_gil([&] { return self.verify(number); }));
  const auto read = value_or_throw(without_gil([&] { return self.tensor(number); }));
  using Held = std::shared_ptr<const MappedFile>;
  const py::capsule owner(new Held(read.file), [](void* held) { delete static_cast<Held*>(held); });
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(read.bytes.data());
  return py::make_tuple(std::string(name(read.dtype)), column(std::span(bytes, read.bytes.size()), owner));
}

}  // namespace
}  // namespace prism

PYBIND11_MODULE(_data, m) {
  using namespace prism;
  py::class_<RecordedData, Data>(m, "RecordedData", "Recorded tensors; see csrc/data/reader.hpp.")
      .def_property_readonly("world_size", [](const RecordedData& d) { return d.header().world_size; })
      .def_property_readonly("for_ranks", [](const RecordedData& d) { return d.header().for_ranks; })
      .def_property_readonly("groups", [](const RecordedData& d) { return d.header().groups; })
      .def("columns", &columns)
      .def("find_group", &RecordedData::find_group, py::arg("name"))
      .def("find_collective", &RecordedData::find_collective, py::arg("group"), py::arg("seq"))
      .def("find_message", &RecordedData::find_message, py::arg("group"), py::arg("source"), py::arg("destination"),
           py::arg("tag"), py::arg("seq"))
      .def("tensor", &tensor, py::arg("number"), py::arg("check") = false)
      .def("verify", [](const RecordedData& d) { value_or_throw(without_gil([&] { return d.verify(); })); });
  m.def(
      "open",
      [](const std::string& folder) {
        return std::const_pointer_cast<RecordedData>(
            value_or_throw(without_gil([&] { return RecordedData::open(folder); })));
      },
      py::arg("folder"));
  m.def(
      "content_hash",
      [](const py::bytes& bytes) {
        const std::string_view text = bytes;
        return to_hex(content_hash(std::as_bytes(std::span(text))));
      },
      py::arg("bytes"), "32 hexadecimal digits.");
  m.def(
      "inputs_digest",
      [](const std::vector<py::bytes>& inputs) {
        InputsDigest digest;
        for (const std::string_view text : inputs)
          digest.add(text.size(), content_hash(std::as_bytes(std::span(text))));
        return to_hex(digest.value());
      },
      py::arg("inputs"), "Of one member's tensors; 32 hexadecimal digits.");
}
