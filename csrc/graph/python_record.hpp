// RankRecord from a Python dict: {"rank", "lanes", "groups": [(name, members)], "nodes": {...}, "comms": {...},
// "edges": {...}, "marks", "memory": {...}}, where each {...} maps a field's name to a list or array of its values.
// Enums may be given by value or by name ("issue", "all_reduce", "float32", "sum").
#pragma once
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "graph/builder.hpp"

namespace prism {

namespace py = pybind11;

inline std::optional<NodeKind> node_kind_from_name(std::string_view text) {
  for (int i = 0; i < static_cast<int>(NodeKind::kCount); ++i)
    if (name(static_cast<NodeKind>(i)) == text) return static_cast<NodeKind>(i);
  return std::nullopt;
}

// A record and the memory that its node names point into.
struct PythonRecord {
  RankRecord record;
  std::deque<std::string> names;
};

// The columns of one table of the dict, all of one length; a column that is absent keeps the field's default.
class Table {
 public:
  Table(const py::dict& record, const char* name) : name_(name) {
    if (!record.contains(name)) return;
    columns_ = record[name].cast<py::dict>();
    for (const auto& [key, column] : columns_) {
      const auto length = py::len(column);
      if (length_ && *length_ != length)
        throw py::value_error(std::string(name) + "." + py::str(key).cast<std::string>() + " has " +
                              std::to_string(length) + " entries, another column " + std::to_string(*length_));
      length_ = length;
      unread_.push_back(py::str(key));
    }
  }
  std::size_t length() const { return length_.value_or(0); }

  // Calls set(i, value) for each entry of the column; nothing where it is absent.
  template <typename T, typename Set>
  void integers(const char* column, Set&& set) {
    if (!take(column)) return;
    // int64 holds the values of every field but is wider than some: what does not fit is an error, not another value.
    const auto values = py::array_t<std::int64_t, py::array::c_style>::ensure(columns_[column]);
    if (!values || values.ndim() != 1) {
      PyErr_Clear();
      throw py::value_error(std::string(name_) + "." + column + " is not a list of integers");
    }
    const auto* data = values.data();
    for (std::size_t i = 0; i < length(); ++i) {
      if (!std::in_range<T>(data[i]))
        throw py::value_error(std::string(name_) + "." + column + "[" + std::to_string(i) + "] is " +
                              std::to_string(data[i]) + ", out of the range of its type");
      set(i, static_cast<T>(data[i]));
    }
  }
  template <typename T, typename FromName, typename Set>
  void enums(const char* column, FromName&& from_name, Set&& set) {
    if (!columns_ || !columns_.contains(column)) return;
    const py::object values = columns_[column];
    if (length() == 0 || !py::isinstance<py::str>(values[py::int_(0)]))
      return integers<std::uint8_t>(column, [&](std::size_t i, std::uint8_t value) { set(i, static_cast<T>(value)); });
    take(column);
    for (std::size_t i = 0; i < length(); ++i) {
      const auto text = py::str(values[py::int_(i)]).cast<std::string>();
      const auto value = from_name(text);
      if (!value)
        throw py::value_error(std::string(name_) + "." + column + "[" + std::to_string(i) + "] is '" + text + "'");
      set(i, *value);
    }
  }
  template <typename Set>
  void strings(const char* column, Set&& set) {
    if (!take(column)) return;
    const py::object values = columns_[column];
    for (std::size_t i = 0; i < length(); ++i) set(i, py::object(values[py::int_(i)]));
  }
  // A misspelt column is an error, not a default.
  void finish() const {
    if (!unread_.empty()) throw py::value_error(std::string(name_) + " has no column '" + unread_.front() + "'");
  }

 private:
  bool take(const char* column) {
    if (!columns_ || !columns_.contains(column)) return false;
    std::erase(unread_, column);
    return true;
  }
  const char* name_;
  py::dict columns_;
  std::optional<std::size_t> length_;
  std::vector<std::string> unread_;
};

inline PythonRecord record_from_dict(const py::dict& dict) {
  PythonRecord result;
  RankRecord& r = result.record;
  for (const auto& [key, value] : dict) {
    static const std::vector<std::string> kKeys = {"rank",  "lanes", "groups", "nodes",
                                                   "comms", "edges", "marks",  "memory"};
    if (std::ranges::find(kKeys, py::str(key).cast<std::string>()) == kKeys.end())
      throw py::value_error("a record has no entry '" + py::str(key).cast<std::string>() + "'");
  }
  r.rank = dict["rank"].cast<std::int32_t>();
  r.lanes = dict["lanes"].cast<std::vector<std::string>>();
  if (dict.contains("groups"))
    for (const auto& group : dict["groups"]) {
      auto [name, members] = group.cast<std::pair<std::string, std::vector<std::int32_t>>>();
      r.groups.push_back({std::move(name), std::move(members)});
    }
  Table nodes(dict, "nodes");
  r.nodes.resize(nodes.length());
  nodes.enums<NodeKind>("kind", node_kind_from_name, [&](auto i, auto v) { r.nodes[i].kind = v; });
  nodes.integers<std::uint16_t>("lane", [&](auto i, auto v) { r.nodes[i].lane = v; });
  nodes.integers<std::int32_t>("comm", [&](auto i, auto v) { r.nodes[i].comm = v; });
  nodes.integers<std::int64_t>("start_ns", [&](auto i, auto v) { r.nodes[i].start_ns = v; });
  nodes.integers<std::int64_t>("duration_ns", [&](auto i, auto v) { r.nodes[i].duration_ns = v; });
  nodes.strings("name", [&](auto i, const py::object& v) {
    if (!v.is_none()) r.nodes[i].name = result.names.emplace_back(v.cast<std::string>());
  });
  nodes.finish();
  Table comms(dict, "comms");
  r.comms.resize(comms.length());
  comms.enums<Op>("op", op_from_name, [&](auto i, auto v) { r.comms[i].op = v; });
  comms.enums<DType>("dtype", dtype_from_name, [&](auto i, auto v) { r.comms[i].dtype = v; });
  comms.enums<ReduceOp>("reduce_op", reduce_op_from_name, [&](auto i, auto v) { r.comms[i].reduce_op = v; });
  comms.integers<std::uint8_t>("flags", [&](auto i, auto v) { r.comms[i].flags = v; });
  comms.integers<std::uint32_t>("group", [&](auto i, auto v) { r.comms[i].group = v; });
  comms.integers<std::int64_t>("seq", [&](auto i, auto v) { r.comms[i].seq = v; });
  comms.integers<std::int32_t>("peer", [&](auto i, auto v) { r.comms[i].peer = v; });
  comms.integers<std::int32_t>("tag", [&](auto i, auto v) { r.comms[i].tag = v; });
  comms.integers<std::int32_t>("batch", [&](auto i, auto v) { r.comms[i].batch = v; });
  comms.integers<std::int64_t>("input_bytes", [&](auto i, auto v) { r.comms[i].input_bytes = v; });
  comms.integers<std::int64_t>("output_bytes", [&](auto i, auto v) { r.comms[i].output_bytes = v; });
  comms.finish();
  Table edges(dict, "edges");
  r.edges.resize(edges.length());
  edges.integers<std::uint32_t>("src", [&](auto i, auto v) { r.edges[i].src = v; });
  edges.integers<std::uint32_t>("dst", [&](auto i, auto v) { r.edges[i].dst = v; });
  edges.finish();
  if (dict.contains("marks")) r.marks = dict["marks"].cast<std::vector<std::uint32_t>>();
  Table memory(dict, "memory");
  r.memory.resize(memory.length());
  memory.integers<std::uint32_t>("node", [&](auto i, auto v) { r.memory[i].node = v; });
  memory.integers<std::int64_t>("bytes", [&](auto i, auto v) { r.memory[i].bytes = v; });
  memory.integers<std::int64_t>("peak", [&](auto i, auto v) { r.memory[i].peak = v; });
  memory.finish();
  return result;
}

}  // namespace prism
