// prismllm._simulate: networks and collectives on them; prismllm/simulate is what people call.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <map>

#include "python_errors.hpp"
#include "simulate/collectives.hpp"

namespace py = pybind11;

namespace prism::simulate {
namespace {

template <typename T>
using Array = py::array_t<T, py::array::c_style | py::array::forcecast>;

template <typename T>
std::vector<T> vector_of(const Array<T>& array) {
  return {array.data(), array.data() + array.size()};
}

// One number a link.
template <typename Value>
auto of_links(Value&& value) {
  return [value](const Topology& self) {
    using T = std::decay_t<decltype(value(self.links().front()))>;
    py::array_t<T> column(static_cast<py::ssize_t>(self.links().size()));
    std::transform(self.links().begin(), self.links().end(), column.mutable_data(), value);
    return column;
  };
}

// With the GIL held; the network may have to start a program.
std::unique_ptr<Network> network_named(const std::string& name, const Topology& topology, const std::string& program) {
  const auto kind = value_or_throw(network_kind(name));
  return value_or_throw(without_gil([&] { return make_network(kind, topology, program); }));
}

Topology topology_of(std::int32_t vertices, const Array<std::int32_t>& from, const Array<std::int32_t>& to,
                     const Array<double>& rate, const Array<std::int64_t>& latency, const Array<double>& line,
                     const Array<std::int64_t>& burst, const Array<std::int32_t>& endpoint,
                     const Array<std::int32_t>& nic, const Array<std::int32_t>& vertex_host,
                     const Array<std::int32_t>& host, const Array<std::int64_t>& host_message,
                     const Array<std::int64_t>& host_operation, const Array<double>& host_rate,
                     const Array<std::int32_t>& host_processors, std::int64_t queue_bytes, const std::string& spread) {
  TopologySpec spec;
  const auto links = from.size();
  for (const auto size : {to.size(), rate.size(), latency.size(), line.size(), burst.size()})
    if (size != links) throw py::value_error("columns of links of different lengths");
  const std::map<std::string, Spread> kinds = {
      {"balanced", Spread::kBalanced}, {"destination", Spread::kDestination}, {"hash", Spread::kHash}};
  if (!kinds.count(spread)) throw py::value_error("spread '" + spread + "'; accepted: balanced, destination, hash");
  spec.vertices = vertices;
  spec.links.reserve(static_cast<std::size_t>(links));
  for (py::ssize_t i = 0; i < links; ++i)
    spec.links.push_back(
        {from.data()[i], to.data()[i], rate.data()[i], latency.data()[i], line.data()[i], burst.data()[i]});
  spec.endpoint = vector_of(endpoint);
  spec.nic = vector_of(nic);
  spec.vertex_host = vector_of(vertex_host);
  spec.host = vector_of(host);
  spec.host_message = vector_of(host_message);
  spec.host_operation = vector_of(host_operation);
  spec.host_bytes_per_second = vector_of(host_rate);
  spec.host_processors = vector_of(host_processors);
  spec.queue_bytes = queue_bytes;
  spec.spread = kinds.at(spread);
  return value_or_throw(Topology::make(std::move(spec)));
}

// When each message arrives.
Result<std::vector<std::int64_t>> arrivals(Network& network, const std::vector<std::int64_t>& at,
                                           const std::vector<std::int32_t>& from, const std::vector<std::int32_t>& to,
                                           const std::vector<std::int64_t>& bytes) {
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (at[i] < 0)
      return Error{ErrorCode::kInvalidInput, "a message at " + std::to_string(at[i]) + " ps; accepted: 0 or later"};
    PRISM_RETURN_IF_ERROR(network.send(at[i], {i, from[i], to[i], bytes[i]}));
  }
  std::vector<std::int64_t> arrived(at.size(), 0);
  std::vector<Delivery> delivered;
  while (network.next() != kNever) {
    delivered.clear();
    PRISM_RETURN_IF_ERROR(network.advance(kNever, delivered));
    for (const auto& one : delivered) arrived[one.id] = one.at;
  }
  return arrived;
}

py::array_t<std::int64_t> messages(const Topology& topology, const std::string& kind, const Array<std::int64_t>& at,
                                   const Array<std::int32_t>& from, const Array<std::int32_t>& to,
                                   const Array<std::int64_t>& bytes, const std::string& program) {
  for (const auto size : {from.size(), to.size(), bytes.size()})
    if (size != at.size()) throw py::value_error("columns of messages of different lengths");
  const auto network = network_named(kind, topology, program);
  const auto when = vector_of(at), sizes = vector_of(bytes);
  const auto sources = vector_of(from), destinations = vector_of(to);
  const auto arrived =
      value_or_throw(without_gil([&] { return arrivals(*network, when, sources, destinations, sizes); }));
  return py::array_t<std::int64_t>(static_cast<py::ssize_t>(arrived.size()), arrived.data());
}

CollectiveTime collective(const Topology& topology, const std::string& kind, const std::string& op, int members,
                          std::int64_t bytes, int root, int per_node, const std::string& algorithm,
                          const std::string& program) {
  const auto known = op_from_name(op);
  if (!known) throw py::value_error("operation '" + op + "' is not known");
  const auto network = network_named(kind, topology, program);
  return value_or_throw(without_gil([&]() -> Result<CollectiveTime> {
    PRISM_ASSIGN_OR_RETURN(auto schedule, make_schedule({*known, members, bytes, root, per_node}, algorithm));
    return time_of_collective(topology, *network, std::move(schedule));
  }));
}

}  // namespace
}  // namespace prism::simulate

PYBIND11_MODULE(_simulate, m) {
  using namespace prism;
  using namespace prism::simulate;
  py::class_<Topology>(m, "Topology")
      .def(py::init(&topology_of), py::kw_only(), py::arg("vertices"), py::arg("link_from"), py::arg("link_to"),
           py::arg("bytes_per_second"), py::arg("latency_ps"), py::arg("line_bytes_per_second"), py::arg("burst_bytes"),
           py::arg("endpoint"), py::arg("nic"), py::arg("vertex_host"), py::arg("host"), py::arg("host_message_ps"),
           py::arg("host_operation_ps"), py::arg("host_bytes_per_second"), py::arg("host_processors"),
           py::arg("queue_bytes"), py::arg("spread"))
      .def_static("one_switch", &Topology::one_switch, py::arg("endpoints"), py::arg("bytes_per_second"),
                  py::arg("latency_ps"))
      .def_property_readonly("endpoints", &Topology::endpoints)
      .def_property_readonly("endpoint", [](const Topology& self) { return self.spec().endpoint; })
      .def_property_readonly("link_from", of_links([](const Link& link) { return link.from; }))
      .def_property_readonly("link_to", of_links([](const Link& link) { return link.to; }))
      .def_property_readonly("bytes_per_second", of_links([](const Link& link) { return link.bytes_per_second; }))
      .def(
          "route",
          [](const Topology& self, int from, int to) {
            const auto route = value_or_throw(self.route(from, to));
            return std::vector<std::int32_t>(route.begin(), route.end());
          },
          py::arg("source"), py::arg("destination"), "The links on the way, in order.");
  m.def("messages", &messages, py::arg("topology"), py::arg("network"), py::arg("at_ps"), py::arg("source"),
        py::arg("destination"), py::arg("bytes"), py::arg("program") = "",
        "When each message arrives, in picoseconds.");
  py::class_<CollectiveTime>(m, "CollectiveTime")
      .def_readonly("time_ps", &CollectiveTime::time)
      .def_readonly("messages", &CollectiveTime::messages)
      .def_readonly("events", &CollectiveTime::events)
      .def_readonly("packets", &CollectiveTime::packets);
  m.def("collective", &collective, py::arg("topology"), py::arg("network"), py::arg("op"), py::arg("members"),
        py::arg("bytes"), py::arg("root") = 0, py::arg("per_node") = 1, py::arg("algorithm") = "",
        py::arg("program") = "");
}
