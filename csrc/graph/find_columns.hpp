// Columns of a mapped container as spans over its bytes. parse_container has checked places and alignment; here: names
// and types. Set: a set of std::span<const T> with for_each_column(set, f(name, column)).
#pragma once
#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/result.hpp"
#include "graph/column_type.hpp"
#include "graph/container.hpp"

namespace prism {

template <typename Set>
Result<Set> find_columns(const Container& container, std::string_view file, const std::string& path) {
  std::unordered_map<std::string_view, const ContainerEntry*> entries;
  for (const auto& entry : container.entries) entries.emplace(entry.name, &entry);
  Set columns;
  Result<void> result;
  for_each_column(columns, [&]<typename T>(std::string_view name, std::span<const T>& column) {
    if (!result) return;
    const auto node = entries.extract(name);
    if (node.empty()) {
      result = Error{ErrorCode::kCorruptFile, fmt::format("{}: column '{}' is missing", path, name)};
      return;
    }
    const auto& entry = *node.mapped();
    if (entry.dtype != container_dtype<T>()) {
      result = Error{ErrorCode::kCorruptFile, fmt::format("{}: column '{}': dtype is {}; accepted: {}", path, name,
                                                          entry.dtype, container_dtype<T>())};
      return;
    }
    const char* begin = file.data() + container.data_start + entry.begin;
    column = {reinterpret_cast<const T*>(begin), entry.length};
  });
  PRISM_RETURN_IF_ERROR(result);
  if (!entries.empty())
    return Error{ErrorCode::kCorruptFile, fmt::format("{}: column '{:.80}' is unknown", path, entries.begin()->first)};
  return columns;
}

}  // namespace prism
