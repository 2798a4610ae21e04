#include <fmt/format.h>

#include <unordered_map>

#include "graph/column_type.hpp"
#include "graph/container.hpp"
#include "graph/impl.hpp"
#include "graph/mapped_file.hpp"
#include "graph/trace_header.hpp"

namespace prism {
namespace {

// Points every column at its bytes. The container has checked places and alignment; here: names and types.
Result<ColumnSet<View>> find_columns(const Container& container, std::string_view file, const std::string& path) {
  std::unordered_map<std::string_view, const ContainerEntry*> entries;
  for (const auto& entry : container.entries) entries.emplace(entry.name, &entry);
  ColumnSet<View> columns;
  Result<void> result;
  for_each_column(columns, [&]<typename T>(std::string_view name, View<T>& column) {
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

}  // namespace

Result<ExecutionGraph> open_trace(const std::string& path, Check check) {
  PRISM_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  PRISM_ASSIGN_OR_RETURN(const auto container, parse_container(file->bytes(), path));
  const auto text = container.metadata.find("prism");
  if (text == container.metadata.end())
    return Error{ErrorCode::kCorruptFile, path + ": __metadata__.prism is missing; is it a .prism file?"};
  PRISM_ASSIGN_OR_RETURN(auto header, parse_trace_header(text->second, path));
  PRISM_ASSIGN_OR_RETURN(const auto columns, find_columns(container, file->bytes(), path));
  PRISM_ASSIGN_OR_RETURN(auto impl, ExecutionGraph::Impl::create(std::move(header), columns, file, {path}));
  ExecutionGraph graph(std::move(impl));
  if (check == Check::kAll) PRISM_RETURN_IF_ERROR(validate(graph));
  return graph;
}

}  // namespace prism
